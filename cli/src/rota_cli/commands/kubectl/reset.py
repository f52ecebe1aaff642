"""
`kubectl rota groups reset`: requests an offset reset from the operator, follows it, and prints its plan.

    read the ConsumerGroup → set spec.offsets.reset with a new requestId → watch status.offsetReset → read the plan's ConfigMaps

The operator executes the reset; the command that is interrupted leaves it going.
"""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.kubernetes.resource import ConsumerGroup, parse_group
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import NAME, ApiFlags, ResourceName
from rota_cli.commands.kubectl.upgrade import FIELD_MANAGER
from rota_cli.commands.kubectl.watch import wait_s
from rota_cli.commands.parsing import duration_ms, timestamp_ms
from rota_cli.commands.target_flags import TARGETS, TargetFlags, flag
from rota_cli.diagnosis.resource_reset import (
    ResetIdentity,
    planned_reset,
    progress_of,
    refuse_while_another_is_due,
)
from rota_cli.errors import Failure, WrongUsage
from rota_cli.output.console import print_err
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data, print_list
from rota_cli.output.units import format_timestamp, pluralize

if TYPE_CHECKING:
    from rota_cli.clusters.kubernetes.api import Api
    from rota_cli.clusters.kubernetes.resets import PlannedOffset

COLUMNS = ("topic", "partition", "old", "new", "change", "old_time", "new_time", "remark")


@dataclass(frozen=True, slots=True)
class ResourceTargetFlags(TargetFlags):
    """Flags of the reset's target. At most one is given."""

    from_config_map: Annotated[
        str,
        flag("from-config-map", "Reset to the offsets of the plan in this ConfigMap, such as one that undoes a reset."),
    ] = ""  # fmt: skip

    def to(self) -> dict[str, object]:
        """Return `spec.offsets.reset.to`; empty without a target. Raises WrongUsage."""
        targets: dict[str, object] = {
            "earliest": self.to_earliest or None,
            "latest": self.to_latest or None,
            "offset": self.to_offset,
            "datetime": _timestamp(self.to_datetime) if self.to_datetime else None,
            "shiftBy": self.shift_by,
            "byDuration": _duration(self.by_duration) if self.by_duration else None,
            "fromConfigMap": _config_map(self.from_config_map) if self.from_config_map else None,
        }
        return {name: value for name, value in targets.items() if value is not None}


def _timestamp(text: str) -> str:
    return format_timestamp(max(0, timestamp_ms("--to-datetime", text)))


def _duration(text: str) -> str:
    seconds, rest_ms = divmod(duration_ms("--by-duration", text), 1000)
    return f"PT{seconds}.{rest_ms:03}S" if rest_ms else f"PT{seconds}S"


def _config_map(name: str) -> str:
    if not NAME.fullmatch(name):
        raise WrongUsage(f'--from-config-map "{name}" is not a valid name of a ConfigMap')
    return name


@dataclass(frozen=True, slots=True)
class ExecutionFlags:
    """Flags that choose between plan and execution."""

    execution: Annotated[
        bool | None,
        typer.Option(
            "--execute/--dry-run",
            help="Execute the reset, or only write the plan into a ConfigMap; one of them is required.",
            show_default=False,
        ),
    ] = None
    request_id: Annotated[
        str,
        typer.Option(
            "--request-id", help="Execute the plan of the dry run with this requestId.", show_default=False
        ),
    ] = ""


class ResetRequest(NamedTuple):
    """A reset as the flags ask for it."""

    # `spec.offsets.reset`; None: that of the dry run in the spec, for real.
    reset: dict[str, object] | None
    identity: ResetIdentity

    def for_group(self, group: ConsumerGroup) -> dict[str, Any]:
        """Return the reset to write. Raises Failure if it cannot be requested now."""
        if self.reset is None:
            planned_reset(group, self.identity.request_id)
            return {**group.spec["offsets"]["reset"], "dryRun": False}
        refuse_while_another_is_due(group)
        return self.reset


@with_flags
def reset(
    flags: ApiFlags,
    target_flags: ResourceTargetFlags,
    execution_flags: ExecutionFlags,
    name: ResourceName,
    topic: Annotated[
        list[str],
        typer.Option(help="Reset only this topic; can be repeated.", show_default="all topics of the group"),
    ] = [],  # noqa: B006  typer copies it
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """
    Reset the offsets of a group while its pods run, or write the plan. The command sets spec.offsets.reset with a new
    requestId, and follows the operator until the reset is done; Ctrl-C ends the command, not the reset.
    """  # fmt: skip
    request = _request(target_flags.to(), topic, execution_flags)
    target = flags.open(name)
    from rota_cli.clusters.kubernetes.groups import read_group
    from rota_cli.clusters.kubernetes.resets import request_reset

    with target.api as api:
        group = read_group(api, target.namespace, name)
        warnings = Warnings(api, group)
        wanted = request.for_group(group)
        request_reset(api, group, wanted, FIELD_MANAGER)
        print_err(f"{request.identity.name} of {group.full_name} is requested")
        done = _follow(api, group, request.identity, warnings)
        plan = _read_plan(api, done)
    _show(done, plan, output)


def _request(to: dict[str, object], topics: list[str], flags: ExecutionFlags) -> ResetRequest:
    """Return the request of the flags. Raises WrongUsage."""
    if flags.execution is None:
        raise WrongUsage("add --dry-run to write the plan, or --execute to execute it")
    if flags.request_id:
        if to or topics or not flags.execution:
            raise WrongUsage(
                "--request-id executes the plan of a dry run as it is: use it with --execute, without a target and without --topic"
            )
        return ResetRequest(None, ResetIdentity(flags.request_id, dry_run=False))
    if len(to) != 1:
        raise WrongUsage(f"expected exactly one of {TARGETS}, --from-config-map or --request-id")
    for each in topics:
        if ":" in each:
            raise WrongUsage(
                f"--topic {each}: a reset in a cluster covers whole topics; name a topic without partitions"
            )
    identity = ResetIdentity(_new_request_id(), dry_run=not flags.execution)
    chosen = {"topics": list(dict.fromkeys(topics))} if topics else {}
    spec = {"requestId": identity.request_id, "dryRun": identity.dry_run, **chosen, "to": to}
    return ResetRequest(spec, identity)


def _new_request_id() -> str:
    """Return a requestId that says when the reset was requested, and that no other command uses."""
    seconds = format_timestamp(system_clocks().now_ms())[:19]
    return f"{seconds.replace('-', '').replace(':', '').replace('T', '-')}-{secrets.token_hex(3)}"


class Warnings:
    """Prints Events of type Warning that are new since the command began; those of the reset itself are in the status."""

    def __init__(self, api: "Api", group: ConsumerGroup) -> None:
        self._api = api
        self._group = group
        self._seen: set[tuple[str, str, int]] = set()
        self._is_denied = False
        self._seen.update(self._read())

    def print_new(self) -> None:
        """Read the Events, and print the new ones to standard error."""
        for each in self._read():
            if each not in self._seen:
                self._seen.add(each)
                print_err(f"{each[0]}: {each[1]}")

    def _read(self) -> list[tuple[str, str, int]]:
        from rota_cli.clusters.kubernetes.errors import Forbidden
        from rota_cli.clusters.kubernetes.groups import read_events

        if self._is_denied:
            return []
        try:
            events = read_events(self._api, self._group)
        except Forbidden as error:
            self._is_denied = True
            print_err(f"Events are unknown: {error}")
            return []
        return [
            (each.reason, each.message, each.count)
            for each in events
            if each.type == "Warning" and not each.reason.startswith("OffsetReset")
        ]


def _follow(api: "Api", group: ConsumerGroup, identity: ResetIdentity, warnings: Warnings) -> ConsumerGroup:
    """Print the progress of a reset until it is done; returns the ConsumerGroup. Raises Failure."""
    from rota_cli.clusters.kubernetes.errors import Forbidden
    from rota_cli.clusters.kubernetes.follow import Follower
    from rota_cli.clusters.kubernetes.kinds import CONSUMER_GROUP

    follower = Follower(
        api, CONSUMER_GROUP, group.namespace, group.name, wait_s=wait_s, warn=lambda text: print_err(f"rota: {text}")
    )  # fmt: skip
    printed = ""
    try:
        for found in follower.versions():
            now = None if found is None else parse_group(found)
            progress = progress_of(now, group.uid, group.full_name, identity)
            if progress.is_done and now is not None:
                return now
            if progress.message != printed:
                printed = progress.message
                print_err(printed)
                warnings.print_new()
    except KeyboardInterrupt:
        print_err(
            f"rota: {identity.name} of {group.full_name} goes on in the cluster: follow it with "
            f"`kubectl rota groups watch {group.name} -n {group.namespace}`"
        )
        raise
    except Forbidden as error:
        raise Failure(
            f"{identity.name} of {group.full_name} goes on in the cluster and cannot be followed: {error}"
        ) from None
    raise AssertionError("a follower does not end")


def _read_plan(api: "Api", group: ConsumerGroup) -> "list[PlannedOffset] | None":
    """Read the plan of a reset that is done; None, with a message, where that is not possible: the reset is done anyway."""
    from rota_cli.clusters.kubernetes.resets import read_plan

    record = group.offset_reset
    try:
        return read_plan(api, group.namespace, record["planConfigMap"], record["planHash"])
    except Failure as error:
        print_err(f"the plan is unknown: {error}")
        return None


def _show(group: ConsumerGroup, plan: "list[PlannedOffset] | None", output: OutputFormat) -> None:
    record = group.offset_reset
    rows: list[Row] = [
        {
            **each._asdict(),
            "change": None if each.old is None else each.new - each.old,
            "old_time": each.old_time or None,
            "new_time": each.new_time or None,
            "remark": each.remark or None,
        }
        for each in plan or ()
    ]
    if output is not OutputFormat.TABLE:
        print_data(_data(group, None if plan is None else rows), output)
        return
    if plan is not None:
        print_list(rows, output, COLUMNS, none="")
    command = f"kubectl rota groups reset {group.name} -n {group.namespace}"
    moved = f"{pluralize(int(record.get('skippedRecords') or 0), 'record')} skipped, {record.get('repeatedRecords') or 0} repeated"
    if record.get("dryRun", True):
        print_err(
            f"dry run, nothing changed: {moved}; execute this plan with `{command} --request-id {record['requestId']} --execute`"
        )
        return
    print_err(
        f"reset {pluralize(int(record.get('partitions') or 0), 'offset')} of {group.full_name}: {moved}"
    )
    if record.get("undoConfigMap"):
        print_err(f"undo it with `{command} --from-config-map {record['undoConfigMap']} --execute`")


def _data(group: ConsumerGroup, rows: list[Row] | None) -> Row:
    record = group.offset_reset
    return {
        "name": group.name,
        "namespace": group.namespace,
        "group": group.group_id,
        "request_id": record["requestId"],
        "executed": not record.get("dryRun", True),
        "skipped_records": record.get("skippedRecords"),
        "repeated_records": record.get("repeatedRecords"),
        "plan_config_map": record.get("planConfigMap"),
        "undo_config_map": record.get("undoConfigMap"),
        "partitions": rows,
    }
