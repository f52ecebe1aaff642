"""`rota doctor`: what is reachable, what is misconfigured, what to do; looks at one thing after the other."""

import os
import socket
from collections.abc import Callable, Iterator

import typer

from rota.addresses import SCHEME
from rota.errors import RotaError
from rota_cli.clusters.connection import ADDRESS_FILE, Access, is_named
from rota_cli.clusters.local_runner import fleet_beside
from rota_cli.clusters.model import EMPTY, STABLE, Check, Group, Verdict
from rota_cli.clusters.open import open_cluster
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import Servers
from rota_cli.commands.flags import with_flags
from rota_cli.commands.parts import PARTS, installed
from rota_cli.commands.queries import partition_counts, stalled
from rota_cli.diagnosis.explanation import topic_remarks
from rota_cli.errors import Exit, Failure, exit_of
from rota_cli.output.console import say
from rota_cli.output.render import Output, OutputOption, say_data
from rota_cli.output.units import many

# More are not looked at: that would take long, and what is wrong with a hundred is wrong with all.
GROUPS_MAX = 100
OTHERS_MAY_READ = 0o077


@with_flags
def doctor(servers: Servers, output: OutputOption = Output.TABLE) -> None:
    """See what is reachable, what is misconfigured, and what to do."""
    found: list[Check] = []
    for check in check_all(servers.access(), open_cluster):
        found.append(check)
        if output is Output.TABLE:
            say(f"{check.verdict:<8}  {check.what:<12} {check.says}")
    if output is not Output.TABLE:
        say_data([_row(check) for check in found], output)
    elif all(check.verdict is Verdict.OK for check in found):
        say("nothing is wrong that can be seen from here")
    raise typer.Exit(worst(found))


def check_all(access: Access, open_cluster: Callable[[Access], Cluster]) -> Iterator[Check]:
    """All of them; what builds on a thing that failed is left out."""
    yield _parts()
    yield _address(access)
    yield from _secrets(access)
    reached = [_dial(each, access.timeout_s) for each in servers_of(access)]
    yield from reached
    if all(check.verdict is Verdict.FAILED for check in reached):
        return
    with open_cluster(access) as cluster:
        for what, look in (
            ("coordinator", cluster.groups.health),
            ("records", lambda: _records(cluster)),
            ("groups", lambda: _groups(cluster)),
        ):
            for check in _asked(what, look):
                yield check
                if check.exit is Exit.NOT_REACHABLE:
                    return
    yield from _fleet(access)


def servers_of(access: Access) -> list[str]:
    """All that were named, as host:port."""
    named = [access.servers, access.coordinator] if access.coordinator else [access.servers]
    return [server for each in named for server in each.removeprefix(SCHEME).split(",")]


def _parts() -> Check:
    found = {name: version for name in PARTS if (version := installed(name)) is not None}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in found.items())
        return Check(
            "parts",
            Verdict.WARNING,
            f"parts of several versions are installed: {listed}; install one version",
        )
    return Check(
        "parts", Verdict.OK, f"{len(found)} of {len(PARTS)} parts are installed, version {found['rota-cli']}"
    )


def _address(access: Access) -> Check:
    says = f"{access.servers}, from {access.source}"
    if access.coordinator:
        says += f"; groups at {access.coordinator}"
    if ADDRESS_FILE.is_file() and not is_named(ADDRESS_FILE.read_text(), access.servers):
        return Check(
            "address",
            Verdict.WARNING,
            f"{says}; {ADDRESS_FILE} names another server, which is not asked because of that",
        )
    return Check("address", Verdict.OK, says)


def _secrets(access: Access) -> Iterator[Check]:
    for file in (access.token_file, access.key_file):
        if file is not None and file.stat().st_mode & OTHERS_MAY_READ:
            yield Check(
                "secrets", Verdict.WARNING, f"others on this machine may read {file}: run chmod 600 {file}"
            )


def _dial(server: str, within_s: float) -> Check:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=within_s).close()
    except socket.gaierror as error:
        return _unreachable(server, f"has a name that nobody knows ({error.strerror}): check how it is spelt")
    except TimeoutError:
        return _unreachable(
            server, f"did not answer within {within_s:g} s: check the address, and what is between"
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return _unreachable(
            server,
            f"cannot be reached ({reason}): see whether it runs; `rota coordinator` or `rota up` start one here",
        )
    return Check("reachable", Verdict.OK, f"somebody listens on {server}")


def _unreachable(server: str, says: str) -> Check:
    return Check("reachable", Verdict.FAILED, f"{server} {says}", Exit.NOT_REACHABLE)


def _asked(what: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from look()
    except Failure as failure:
        yield Check(what, Verdict.FAILED, str(failure), failure.exit)
    except RotaError as error:
        yield Check(what, Verdict.FAILED, str(error), exit_of(error))


def _records(cluster: Cluster) -> Iterator[Check]:
    topics = cluster.records.topics()
    partitions = sum(topic.partitions for topic in topics)
    yield Check("records", Verdict.OK, f"{many(len(topics), 'topic')} with {many(partitions, 'partition')}")


def _groups(cluster: Cluster) -> Iterator[Check]:
    listed = cluster.groups.all()
    counts = partition_counts(cluster)
    yield Check(
        "groups",
        Verdict.OK,
        f"{many(len(listed), 'group')}, {sum(each.state != EMPTY for each in listed)} with members",
    )
    for each in listed[:GROUPS_MAX]:
        if each.state != EMPTY:
            yield from _group(cluster, cluster.groups.describe(each.group), counts)
    if len(listed) > GROUPS_MAX:
        yield Check("groups", Verdict.WARNING, f"only the first {GROUPS_MAX} groups were looked at")


def _group(cluster: Cluster, group: Group, counts: dict[str, int]) -> Iterator[Check]:
    if group.state not in (STABLE, EMPTY):
        yield Check(
            "groups",
            Verdict.WARNING,
            f"group {group.group} is {group.state}: look again in a moment; if it stays so, a member does not come to "
            f"the round, see `rota groups members {group.group}`",
        )
        return
    for says in (*topic_remarks(group, counts), *stalled(cluster, group, counts)):
        yield Check("groups", Verdict.WARNING, f"group {group.group}: {says}")


def _fleet(access: Access) -> Iterator[Check]:
    """What the sidecars of `rota up` report, where it runs in this folder."""
    fleet = fleet_beside(access)
    if fleet is None:
        return
    try:
        problems = fleet.problems(access.timeout_s)
    except Failure as failure:
        yield Check("groups", Verdict.WARNING, str(failure))
        return
    for group, says in problems.items():
        for each in says:
            yield Check("groups", Verdict.WARNING, f"group {group}: {each}")


def worst(checks: list[Check]) -> Exit:
    """The code for the shell: that of the first failure."""
    return next((check.exit for check in checks if check.verdict is Verdict.FAILED), Exit.DONE)


def _row(check: Check) -> dict[str, object]:
    return {"what": check.what, "verdict": str(check.verdict), "says": check.says}
