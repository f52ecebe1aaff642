"""Validates plans of strategies that are not built in. The leader calls it before it sends assignments."""

from collections.abc import Mapping

from rota_sidecar.core.assignors.index import index_group
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.ownership import NO_OWNER, resolve_ownership


def plan_problem(group: Group, plan: Plan, cooperative: bool) -> str:
    """Return the first problem of a plan in one sentence; empty: the plan is valid."""
    missing = group.members.keys() - plan.keys()
    if missing:
        return f"the plan has no entry for member {min(missing)}: every member needs one, which may be empty"
    unknown = plan.keys() - group.members.keys()
    if unknown:
        return f"the plan names {min(unknown)}, which is not a member of the group"
    owners: dict[tuple[str, int], str] = {}
    for member in sorted(plan):
        wrong = _lists_problem(group, member, plan, owners)
        if wrong:
            return wrong
    return _held_problem(group, owners) if cooperative else ""


def _lists_problem(group: Group, member: str, plan: Plan, owners: dict[tuple[str, int], str]) -> str:
    takes = frozenset(group.members[member].topics)
    for topic, numbers in plan[member].items():
        if topic not in group.topics:
            return (
                f"the plan gives {member} partitions of {topic}, which does not exist: look into group.topics"
            )
        if topic not in takes:
            return (
                f"the plan gives {member} partitions of {topic}, which it does not take: give to subscribers"
            )
        for number in numbers:
            if not 0 <= number < group.topics[topic].partitions:
                return f"the plan gives {member} {topic}-{number}, which does not exist: count from 0"
            if (topic, number) in owners:
                other = owners[topic, number]
                return f"the plan gives {topic}-{number} to {other} and to {member}: give each partition once"
            owners[topic, number] = member
    return ""


def _held_problem(group: Group, owners: Mapping[tuple[str, int], str]) -> str:
    group_index = index_group(group)
    ownership = resolve_ownership(group_index)
    holders = {
        flat: member for member in range(len(group_index.ids)) for flat in ownership.flat_numbers(member)
    }
    holders.update(ownership.held)
    for (topic, number), member in owners.items():
        holder = holders.get(group_index.table.offsets[group_index.table.index[topic]] + number)
        if holder == NO_OWNER:
            return (
                f"the plan gives {member} {topic}-{number}, which two members claim for the same generation: "
                "leave it out for a round"
            )
        if holder is not None and group_index.ids[holder] != member:
            return (
                f"the plan gives {member} {topic}-{number}, which {group_index.ids[holder]} still has: leave it out for a "
                "round, or say cooperative = False"
            )
    return ""
