"""
`kubectl rota doctor`: checks API server, CustomResourceDefinition, the caller's rights, the operator's Lease, ConsumerGroups and
the sidecars of their pods, in this order, and prints a remedy for each problem.
"""

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from rota_cli.clusters.clocks import Clocks, system_clocks
from rota_cli.clusters.kubernetes.kinds import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    EVENT,
    LEASE,
    POD,
    POD_FORWARD,
    ResourceKind,
)
from rota_cli.clusters.kubernetes.resource import ConsumerGroup, parse_group
from rota_cli.clusters.model import Check, CheckStatus
from rota_cli.commands.doctor import report_checks
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import ApiFlags, Target
from rota_cli.commands.kubectl.operator_lease import LeaseFlags, find_lease, full_name, may_find_lease
from rota_cli.diagnosis.cluster_checks import LeaseState, check_group, check_pods, parse_lease
from rota_cli.errors import ExitCode, Failure
from rota_cli.output.render import OutputFormat, OutputOption
from rota_cli.output.units import pluralize

if TYPE_CHECKING:
    from rota_cli.clusters.kubernetes.api import Api

# Further groups are not checked: it would take long, and a problem of a hundred groups is a problem of all.
GROUPS_MAX = 100
# Native sidecars.
MINOR_VERSION_MIN = 29
LEASE_POLL_S = 1.0
# In the namespace of the ConsumerGroups: verb, kind, and the commands that need the right.
RIGHTS = (
    ("get", CONSUMER_GROUP, "every command"),
    ("list", CONSUMER_GROUP, "groups watch, groups reset and doctor"),
    ("watch", CONSUMER_GROUP, "groups watch and groups reset"),
    ("patch", CONSUMER_GROUP, "groups upgrade and groups reset"),
    ("get", CONFIG_MAP, "groups members for instances of static members, and groups reset for plans"),
    ("list", EVENT, "groups explain"),
    ("list", POD, "doctor"),
)
# In the namespace of the operator, of `ui`. A web socket begins with a GET, and newer API servers ask for `create` too.
FORWARD_VERBS = ("get", "create")


@with_flags
def doctor(
    flags: ApiFlags,
    lease: LeaseFlags,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Name of a ConsumerGroup.", show_default="all of the namespace"
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check the API server, your rights, the operator and ConsumerGroups, and print how to fix what is wrong."""
    target = flags.open(*([] if name is None else [name]))
    with target.api:
        report_checks(run_checks(target, lease, name, system_clocks(), wait_s), output)


def wait_s(seconds: float) -> None:
    """Wait; Ctrl-C ends it."""
    threading.Event().wait(seconds)


def run_checks(
    target: Target, lease: LeaseFlags, name: str | None, clocks: Clocks, wait: Callable[[float], object]
) -> Iterator[Check]:
    """Run all checks; a check that depends on a failed one is left out."""
    api, namespace = target.api, target.namespace
    for what, look in (("api server", lambda: _server(target)), ("resource", lambda: _definition(api))):
        for check in _run_check(what, look):
            yield check
            if check.status is CheckStatus.FAILED:
                return
    yield from _run_check("rights", lambda: _rights(api, namespace, lease))
    yield from _run_check("operator", lambda: _operator(api, lease, clocks, wait))
    yield from _run_check("group", lambda: _groups(api, namespace, name))


def _run_check(what: str, look: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    from rota_cli.clusters.kubernetes.errors import Forbidden

    try:
        yield from look()
    except Forbidden as failure:
        # Nothing is wrong as far as the caller may see.
        yield Check(what, CheckStatus.WARNING, f"unknown: {failure}")
    except Failure as failure:
        yield Check(what, CheckStatus.FAILED, str(failure), failure.exit_code)


def _failed(name: str, message: str, code: ExitCode = ExitCode.FAILED) -> Check:
    return Check(name, CheckStatus.FAILED, message, code)


def _server(target: Target) -> Iterator[Check]:
    version = target.api.read("/version", ResourceKind("v1", "version", "version"))
    said = f"{target.api.server} of {target.source} runs Kubernetes {version.get('gitVersion')}"
    # Some distributions append a plus sign to the minor version.
    minor = str(version.get("minor", "")).rstrip("+")
    if version.get("major") == "1" and minor.isdecimal() and int(minor) < MINOR_VERSION_MIN:
        yield _failed(
            "api server",
            f"{said}, which has no native sidecars: upgrade to 1.{MINOR_VERSION_MIN} or newer",
        )
        return
    yield Check("api server", CheckStatus.OK, said)


def _definition(api: "Api") -> Iterator[Check]:
    served = api.read(f"/apis/{CONSUMER_GROUP.api_version}", CONSUMER_GROUP)
    names = {str(each.get("name")) for each in served.get("resources") or ()}
    missing = {CONSUMER_GROUP.plural, f"{CONSUMER_GROUP.plural}/status"} - names
    if missing:
        yield _failed(
            "resource",
            f"{CONSUMER_GROUP.api_version} is served without {', '.join(sorted(missing))}: install the CustomResourceDefinition of Rota",
            ExitCode.NOT_FOUND,
        )
        return
    yield Check(
        "resource", CheckStatus.OK, f"{CONSUMER_GROUP.plural} of {CONSUMER_GROUP.api_version} are served"
    )


def _rights(api: "Api", namespace: str, lease: LeaseFlags) -> Iterator[Check]:
    found = [
        (api.may(verb, kind, namespace), f"{verb} {kind.resource} in namespace {namespace}", needed_by)
        for verb, kind, needed_by in RIGHTS
    ]
    # Without a Lease `ui` finds no page.
    if lease.likely_name:
        where = lease.operator_namespace
        found.append((may_find_lease(api, lease), f"get {LEASE.resource} in namespace {where}", "ui"))
        found += [
            (api.may(verb, POD_FORWARD, where), f"{verb} {POD_FORWARD.resource} in namespace {where}", "ui")
            for verb in FORWARD_VERBS
        ]
    for is_allowed, right, needed_by in found:
        if not is_allowed:
            yield Check("rights", CheckStatus.WARNING, f"you may not {right}, as {needed_by} needs")
    if all(is_allowed for is_allowed, _, _ in found):
        spaces = dict.fromkeys([namespace, lease.operator_namespace] if lease.likely_name else [namespace])
        yield Check(
            "rights",
            CheckStatus.OK,
            f"you have all {len(found)} rights of these commands in namespace {' and '.join(spaces)}",
        )


def _operator(
    api: "Api", names: LeaseFlags, clocks: Clocks, wait: Callable[[float], object]
) -> Iterator[Check]:
    if not names.likely_name:
        return
    lease = find_lease(api, names)
    name, state = full_name(lease), parse_lease(lease)

    def read() -> LeaseState:
        return parse_lease(find_lease(api, names))

    if not state.holder:
        yield _failed(
            "operator",
            f"Lease {name} is not held, so no operator leads: see `kubectl get pods -n {names.operator_namespace}`",
        )
    elif state.is_fresh(clocks.now_ms()) or _is_renewed(read, state, clocks, wait):
        yield Check("operator", CheckStatus.OK, f"{state.holder} leads, by Lease {name}")
    else:
        yield _failed(
            "operator",
            f"{state.holder} has not renewed Lease {name} within its {state.duration_s:g} s: see "
            f"`kubectl get pods -n {names.operator_namespace}`",
        )


def _is_renewed(
    read: Callable[[], LeaseState],
    former: LeaseState,
    clocks: Clocks,
    wait: Callable[[float], object],
) -> bool:
    """Read the Lease until another version of it is there, for its duration at most: clocks of two machines may differ."""
    deadline_s = clocks.monotonic_s() + former.duration_s
    while clocks.monotonic_s() < deadline_s:
        wait(LEASE_POLL_S)
        now = read()
        if now.holder and now.version != former.version:
            return True
    return False


def _groups(api: "Api", namespace: str, name: str | None) -> Iterator[Check]:
    if name is not None:
        yield from _group(api, parse_group(api.get(CONSUMER_GROUP, namespace, name)))
        return
    page = api.list(CONSUMER_GROUP, namespace)
    if not page.items:
        yield Check("group", CheckStatus.OK, f"no ConsumerGroups in namespace {namespace}")
    for each in page.items[:GROUPS_MAX]:
        yield from _group(api, parse_group(each))
    if len(page.items) > GROUPS_MAX:
        yield Check(
            "group", CheckStatus.WARNING, f"only the first {pluralize(GROUPS_MAX, 'group')} were checked"
        )


def _group(api: "Api", group: ConsumerGroup) -> Iterator[Check]:
    yield from check_group(group)
    if group.selector:
        page = api.list(POD, group.namespace, selector=group.selector)
        yield from check_pods(group, page.items)
