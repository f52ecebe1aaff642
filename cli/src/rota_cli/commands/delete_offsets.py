"""`rota groups delete-offsets`: deletes committed offsets of topics, as kafka-consumer-groups does."""

from collections.abc import Collection, Sequence
from typing import Annotated

import typer

from rota.records import TopicPartition
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.commands.flags import with_flags
from rota_cli.commands.groups import GroupName
from rota_cli.commands.queries import require_group
from rota_cli.commands.reset_plan import TopicSelection, parse_selection
from rota_cli.errors import Failure, NotFound
from rota_cli.output.console import print_out
from rota_cli.output.units import format_partitions, pluralize


@with_flags
def delete_offsets(
    flags: ConnectionFlags,
    group: GroupName,
    topic: Annotated[
        list[str],
        typer.Option(help="Delete the offsets of this topic, or of TOPIC:0,2 some of them; can be repeated."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: the offsets are deleted permanently.")] = False,
) -> None:
    """Delete committed offsets of topics to which no member of the group subscribes."""
    selections = [parse_selection(text) for text in topic]
    with flags.open() as cluster:
        require_group(cluster, group)
        chosen = choose_committed(group, cluster.groups.offsets(group), selections)
        if not yes:
            raise Failure(
                f"the committed offsets of group {group} in {format_partitions(chosen)} would be deleted: add --yes to confirm"
            )
        kept = cluster.groups.delete_offsets(group, chosen)
    deleted = [partition for partition in chosen if partition.topic not in kept]
    if kept:
        raise members_subscribe(group, kept, deleted)
    print_out(
        f"deleted {pluralize(len(deleted), 'committed offset')} of group {group}: {format_partitions(deleted)}"
    )


def choose_committed(
    group_id: str, committed: Collection[TopicPartition], selections: Sequence[TopicSelection]
) -> list[TopicPartition]:
    """Return the partitions that are selected. Raise NotFound for a selection without a committed offset."""
    found: set[TopicPartition] = set()
    for selection in selections:
        numbers = selection.numbers or [each.partition for each in committed if each.topic == selection.topic]
        wanted = [TopicPartition(selection.topic, number) for number in numbers]
        without = [each for each in wanted if each not in committed]
        if without or not wanted:
            where = format_partitions(without) or f"topic {selection.topic}"
            raise NotFound(
                f"group {group_id} has no committed offsets in {where}: see `rota groups offsets {group_id}`"
            )
        found.update(wanted)
    return sorted(found)


def members_subscribe(group_id: str, topics: Collection[str], deleted: Collection[TopicPartition]) -> Failure:
    """Build the error for offsets that were kept because members subscribe to their topics."""
    others = f"; those of {format_partitions(deleted)} are deleted" if deleted else ""
    return Failure(
        f"group {group_id} has members that subscribe to {', '.join(sorted(topics))}, whose offsets are kept{others}: "
        "stop these consumers, or change their subscription, and retry"
    )
