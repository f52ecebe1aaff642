"""`rota groups explain`: why a group stands as it does."""

from rota_cli.clusters.connection import Access
from rota_cli.clusters.local_runner import fleet_beside
from rota_cli.commands.connection_flags import Servers
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName
from rota_cli.commands.queries import existing, partition_counts, stalled
from rota_cli.commands.watch import EVERY_S
from rota_cli.diagnosis.explanation import Remark, explain
from rota_cli.errors import Failure
from rota_cli.output.console import say
from rota_cli.output.render import Output, OutputOption, say_data


@with_flags
def explain_group(servers: Servers, group: GroupName, output: OutputOption = Output.TABLE) -> None:
    """Why a group stands as it does: its last rebalance and its assignment, as far as anybody tells."""
    with servers.open() as cluster:
        existing(cluster, group)
        seen = next(iter(cluster.groups.watch(group, every_s=EVERY_S)))
        topics = partition_counts(cluster)
        remarks = explain(seen.group, topics, seen.reason, cluster.groups.where_reasons_are)
        remarks += [Remark("reading", says) for says in stalled(cluster, seen.group, topics)]
    remarks += _reported(servers.access(), group)
    if output is Output.TABLE:
        for remark in remarks:
            say(f"{remark.about + ':':<12} {remark.says}")
    else:
        say_data([_row(remark) for remark in remarks], output)


def _reported(access: Access, group: str) -> list[Remark]:
    """What the group's sidecars report, where `rota up` runs them in this folder."""
    fleet = fleet_beside(access)
    if fleet is None:
        return []
    try:
        return [Remark("reading", says) for says in fleet.problems(access.timeout_s).get(group, [])]
    except Failure as failure:
        return [Remark("reading", str(failure), known=False)]


def _row(remark: Remark) -> dict[str, object]:
    return {"about": remark.about, "says": remark.says, "known": remark.known}
