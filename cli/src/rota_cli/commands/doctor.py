"""
`rota doctor`: checks addresses, files, coordinator, topics and groups in this order, and prints a remedy for each
problem.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator

import typer

from rota.addresses import SCHEME
from rota.errors import RotaError
from rota_cli.clusters.connection import ADDRESS_FILE, Connection, is_same_address
from rota_cli.clusters.local_runner import find_local_runner
from rota_cli.clusters.model import EMPTY, STABLE, Check, CheckStatus, Group
from rota_cli.clusters.open import open_cluster
from rota_cli.clusters.port import Cluster
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.parts import PARTS, installed_version
from rota_cli.commands.queries import find_stalled, partition_counts
from rota_cli.diagnosis.explanation import assignment_problems
from rota_cli.errors import ExitCode, Failure, exit_code_for
from rota_cli.output.console import print_out
from rota_cli.output.render import OutputFormat, OutputOption, print_data
from rota_cli.output.units import pluralize

# Further groups are not checked: it would take long, and a problem of a hundred groups is a problem of all.
GROUPS_MAX = 100
OTHERS_MAY_READ = 0o077


@with_flags
def doctor(flags: ConnectionFlags, output: OutputOption = OutputFormat.TABLE) -> None:
    """Check the connection, the coordinator, topics and groups, and print how to fix what is wrong."""
    report_checks(run_checks(flags.connection(), open_cluster), output)


def report_checks(checks: Iterable[Check], output: OutputFormat) -> None:
    """Print each check as it is done, and exit with the code of the first that failed."""
    found: list[Check] = []
    for check in checks:
        found.append(check)
        if output is OutputFormat.TABLE:
            print_out(f"{check.status:<8}  {check.name:<12} {check.message}")
    if output is not OutputFormat.TABLE:
        print_data([_row(check) for check in found], output)
    elif all(check.status is CheckStatus.OK for check in found):
        print_out("no problems found")
    raise typer.Exit(exit_code_of(found))


def run_checks(connection: Connection, open_cluster: Callable[[Connection], Cluster]) -> Iterator[Check]:
    """Run all checks; a check that depends on a failed one is left out."""
    yield _parts()
    yield _address(connection)
    yield from _secrets(connection)
    reached = [_dial(each, connection.timeout_s) for each in server_addresses(connection)]
    yield from reached
    if all(check.status is CheckStatus.FAILED for check in reached):
        return
    with open_cluster(connection) as cluster:
        for what, look in (
            ("coordinator", cluster.groups.health),
            ("records", lambda: _records(cluster)),
            ("groups", lambda: _groups(cluster)),
        ):
            for check in _run_check(what, look):
                yield check
                if check.exit_code is ExitCode.NOT_REACHABLE:
                    return
    yield from _fleet(connection)


def server_addresses(connection: Connection) -> list[str]:
    """Return all given servers as host:port."""
    named = [connection.servers, connection.coordinator] if connection.coordinator else [connection.servers]
    return [server for each in named for server in each.removeprefix(SCHEME).split(",")]


def _parts() -> Check:
    found = {name: version for name in PARTS if (version := installed_version(name)) is not None}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in found.items())
        return Check(
            "parts",
            CheckStatus.WARNING,
            f"installed parts differ in version: {listed}; install one version",
        )
    return Check(
        "parts",
        CheckStatus.OK,
        f"{len(found)} of {len(PARTS)} parts installed, version {found['rota-cli']}",
    )


def _address(connection: Connection) -> Check:
    says = f"{connection.servers}, from {connection.source}"
    if connection.coordinator:
        says += f"; groups at {connection.coordinator}"
    if ADDRESS_FILE.is_file() and not is_same_address(ADDRESS_FILE.read_text(), connection.servers):
        return Check(
            "address",
            CheckStatus.WARNING,
            f"{says}; {ADDRESS_FILE} names another server, which is ignored",
        )
    return Check("address", CheckStatus.OK, says)


def _secrets(connection: Connection) -> Iterator[Check]:
    for file in (connection.token_file, connection.key_file):
        if file is not None and file.stat().st_mode & OTHERS_MAY_READ:
            yield Check(
                "secrets",
                CheckStatus.WARNING,
                f"{file} is readable by other users: run chmod 600 {file}",
            )


def _dial(server: str, within_s: float) -> Check:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=within_s).close()
    except socket.gaierror as error:
        return _unreachable(server, f"cannot be resolved ({error.strerror}): check the host name")
    except TimeoutError:
        return _unreachable(
            server, f"did not answer within {within_s:g} s: check the address and the network"
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return _unreachable(
            server,
            f"cannot be reached ({reason}): check that it is running; `rota coordinator` or `rota up` start one here",
        )
    return Check("reachable", CheckStatus.OK, f"{server} accepts connections")


def _unreachable(server: str, says: str) -> Check:
    return Check("reachable", CheckStatus.FAILED, f"{server} {says}", ExitCode.NOT_REACHABLE)


def _run_check(what: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    try:
        yield from look()
    except Failure as failure:
        yield Check(what, CheckStatus.FAILED, str(failure), failure.exit_code)
    except RotaError as error:
        yield Check(what, CheckStatus.FAILED, str(error), exit_code_for(error))


def _records(cluster: Cluster) -> Iterator[Check]:
    topics = cluster.records.topics()
    partitions = sum(topic.partitions for topic in topics)
    yield Check(
        "records",
        CheckStatus.OK,
        f"{pluralize(len(topics), 'topic')} with {pluralize(partitions, 'partition')}",
    )


def _groups(cluster: Cluster) -> Iterator[Check]:
    listed = cluster.groups.list_all()
    counts = partition_counts(cluster)
    yield Check(
        "groups",
        CheckStatus.OK,
        f"{pluralize(len(listed), 'group')}, {sum(each.state != EMPTY for each in listed)} with members",
    )
    for each in listed[:GROUPS_MAX]:
        if each.state != EMPTY:
            yield from _group(cluster, cluster.groups.describe(each.group), counts)
    if len(listed) > GROUPS_MAX:
        yield Check("groups", CheckStatus.WARNING, f"only the first {GROUPS_MAX} groups were checked")


def _group(cluster: Cluster, group: Group, counts: dict[str, int]) -> Iterator[Check]:
    if group.state not in (STABLE, EMPTY):
        yield Check(
            "groups",
            CheckStatus.WARNING,
            f"group {group.group} is {group.state}: check again in a moment; if this persists, a member does not rejoin, see `rota groups members {group.group}`",
        )
        return
    for says in (*assignment_problems(group, counts), *find_stalled(cluster, group, counts)):
        yield Check("groups", CheckStatus.WARNING, f"group {group.group}: {says}")


def _fleet(connection: Connection) -> Iterator[Check]:
    """Check what the sidecars of `rota up` in this folder report."""
    runner = find_local_runner(connection)
    if runner is None:
        return
    try:
        problems = runner.problems(connection.timeout_s)
    except Failure as failure:
        yield Check("groups", CheckStatus.WARNING, str(failure))
        return
    for group, says in problems.items():
        for each in says:
            yield Check("groups", CheckStatus.WARNING, f"group {group}: {each}")


def exit_code_of(checks: list[Check]) -> ExitCode:
    """Return the exit code of the first failed check."""
    return next((check.exit_code for check in checks if check.status is CheckStatus.FAILED), ExitCode.DONE)


def _row(check: Check) -> dict[str, object]:
    return {"what": check.name, "verdict": str(check.status), "says": check.message}
