"""Describe the changes between two snapshots of a group. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from rota.records import TopicPartition
from rota_cli.clusters.model import DEAD, Group, Member
from rota_cli.diagnosis.lag import owners_by_partition
from rota_cli.output.units import format_partitions


def describe_changes(before: Group | None, now: Group) -> list[str]:
    """Describe each change since the previous snapshot; without one, describe the current state."""
    if before is None:
        return [_describe_state(now)]
    said = []
    if (before.state, before.generation) != (now.state, now.generation):
        said.append(_describe_state(now))
    said += [f"{member_name(member)} joined" for member in _members_only_in(now.members, before.members)]
    said += [f"{member_name(member)} left" for member in _members_only_in(before.members, now.members)]
    if now.is_settled:
        said += _describe_moves(owners_by_partition(before), owners_by_partition(now))
    return said


def _describe_state(group: Group) -> str:
    if group.state == DEAD:
        return "group does not exist"
    generation = "" if group.generation is None else f" in generation {group.generation}"
    return f"{group.state}{generation}"


def _members_only_in(these: Iterable[Member], those: Iterable[Member]) -> list[Member]:
    known = {member.member_id for member in those}
    return [member for member in these if member.member_id not in known]


def _describe_moves(before: Mapping[TopicPartition, str], now: Mapping[TopicPartition, str]) -> Sequence[str]:
    """Describe the partitions that changed owner, grouped by previous and new owner."""
    moved: dict[tuple[str | None, str | None], list[TopicPartition]] = {}
    for partition in sorted({*before, *now}):
        pair = before.get(partition), now.get(partition)
        if pair[0] != pair[1]:
            moved.setdefault(pair, []).append(partition)
    return [
        f"{format_partitions(partitions)}: {giver or 'unassigned'} → {taker or 'unassigned'}"
        for (giver, taker), partitions in moved.items()
    ]


def member_name(member: Member) -> str:
    """Return the instance id of a static member, else the member id."""
    return member.instance_id or member.member_id
