"""`rota groups explain`: the reasons for a group's state and assignment."""

from collections.abc import Sequence

from rota_cli.clusters.connection import Connection
from rota_cli.clusters.local_runner import find_local_runner
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName
from rota_cli.commands.queries import find_stalled, partition_counts, require_group
from rota_cli.commands.watch import EVERY_S
from rota_cli.diagnosis.explanation import Remark, explain
from rota_cli.errors import Failure
from rota_cli.output.console import print_out
from rota_cli.output.render import OutputFormat, OutputOption, print_data


@with_flags
def explain_command(
    flags: ConnectionFlags, group: GroupName, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Explain the state of a group: its last rebalance, its assignment, and partitions that are not consumed."""
    with flags.open() as cluster:
        require_group(cluster, group)
        snapshot = next(iter(cluster.groups.watch(group, every_s=EVERY_S)))
        topics = partition_counts(cluster)
        remarks = explain(snapshot.group, topics, snapshot.reason, cluster.groups.rebalance_reason_hint)
        remarks += [Remark("reading", says) for says in find_stalled(cluster, snapshot.group, topics)]
    remarks += _reported(flags.connection(), group)
    print_remarks(remarks, output)


def print_remarks(remarks: Sequence[Remark], output: OutputFormat) -> None:
    """Print an explanation."""
    if output is OutputFormat.TABLE:
        for remark in remarks:
            print_out(f"{remark.about + ':':<12} {remark.message}")
    else:
        print_data([_row(remark) for remark in remarks], output)


def _reported(connection: Connection, group: str) -> list[Remark]:
    """Return what the group's sidecars report and what its autoscaler decided, if `rota up` runs them in this folder."""
    runner = find_local_runner(connection)
    if runner is None:
        return []
    try:
        problems = runner.problems(connection.timeout_s).get(group, [])
        decisions = runner.decisions(group, connection.timeout_s)
    except Failure as failure:
        return [Remark("reading", str(failure), known=False)]
    return [*(Remark("reading", says) for says in problems), *(Remark("scaling", says) for says in decisions)]


def _row(remark: Remark) -> dict[str, object]:
    return {"about": remark.about, "says": remark.message, "known": remark.known}
