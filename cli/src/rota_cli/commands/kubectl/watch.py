"""`kubectl rota groups watch`: prints each change of a ConsumerGroup."""

import json
import threading
from contextlib import suppress

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.kubernetes.resource import ConsumerGroup, parse_group
from rota_cli.commands.flags import with_flags
from rota_cli.commands.kubectl.api_flags import ApiFlags, ResourceName
from rota_cli.commands.kubectl.rows import condition_row, group_row, member_row
from rota_cli.diagnosis.resource_changes import describe_first, describe_resource_changes
from rota_cli.output.console import print_err, print_out
from rota_cli.output.render import OutputFormat, OutputOption, Row, print_data
from rota_cli.output.units import format_timestamp


@with_flags
def watch(flags: ApiFlags, name: ResourceName, output: OutputOption = OutputFormat.TABLE) -> None:
    """Print each change of a ConsumerGroup until Ctrl-C: its phase, members, conditions, replicas and sidecar image."""
    target = flags.open(name)
    from rota_cli.clusters.kubernetes.follow import Follower
    from rota_cli.clusters.kubernetes.groups import read_group
    from rota_cli.clusters.kubernetes.kinds import CONSUMER_GROUP

    clocks = system_clocks()
    with target.api as api, suppress(KeyboardInterrupt):
        # A name without a ConsumerGroup is an error, one whose ConsumerGroup is deleted later is a change.
        read_group(api, target.namespace, name)
        follower = Follower(api, CONSUMER_GROUP, target.namespace, name, wait_s=wait_s, warn=_warn)
        before: ConsumerGroup | None = None
        for number, found in enumerate(follower.versions()):
            now = None if found is None else parse_group(found)
            changes = describe_resource_changes(before, now) if number else describe_first(now)
            before = now
            if changes:
                _show(format_timestamp(clocks.now_ms()), now, changes, output)


def wait_s(seconds: float) -> None:
    """Wait; Ctrl-C ends it."""
    threading.Event().wait(seconds)


def _warn(problem: str) -> None:
    print_err(f"rota: {problem}")


def _show(at: str, group: ConsumerGroup | None, changes: list[str], output: OutputFormat) -> None:
    if output is OutputFormat.TABLE:
        print_out(f"{at}   {'; '.join(changes)}")
        return
    row: Row = {"at": at, **({} if group is None else _state(group)), "changes": changes}
    if output is OutputFormat.JSON:
        print_out(json.dumps(row, ensure_ascii=False))
    else:
        print_out("---")
        print_data(dict(row), output)


def _state(group: ConsumerGroup) -> Row:
    return {
        **group_row(group),
        "conditions": [condition_row(each) for each in group.conditions],
        # Instances are in another object, which is not watched.
        "members": [member_row(each, {}) for each in group.placements],
    }
