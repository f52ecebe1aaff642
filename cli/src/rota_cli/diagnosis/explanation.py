"""
Explain a group's state, last rebalance and assignment from its members' subscriptions. Pure.

A member's subscription holds the partitions that it owned when it joined, and the generation in which it owned them; the
leader's assignment holds the partitions that it owns now. The difference is the last rebalance. Where the members'
subscriptions say nothing, the explanation is "unknown" and names where to look; nothing is guessed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rota.records import TopicPartition
from rota_cli.clusters.model import EMPTY, STABLE, Group, Member
from rota_cli.diagnosis.changes import member_name
from rota_cli.diagnosis.lag import owners_by_partition
from rota_cli.output.units import format_partitions, pluralize

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Remark:
    """
    A statement about the group's state, rebalance, assignment or scaling; `known` is False if it only names where to
    look.
    """

    about: str
    message: str
    known: bool = True


def explain(
    group: Group, partitions: Mapping[str, int], reason: str, rebalance_reason_hint: str
) -> list[Remark]:
    """
    Explain a group. `partitions` counts each topic's partitions; `reason` is the coordinator's, empty if unknown.

    >>> [remark.message for remark in explain(Group("shop", "Empty", "", "", []), {}, "", "")][0]
    'no active members: the committed offsets are kept, and the next member starts from them'
    """
    return [
        Remark("state", _state(group)),
        *_rebalance(group, reason, rebalance_reason_hint),
        *_assignment(group, partitions),
        Remark(
            "scaling",
            "the coordinator cannot say why there are this many members; see the ConsumerGroup's status",
            known=False,
        ),
    ]


def _state(group: Group) -> str:
    generation = "the next generation" if group.generation is None else f"generation {group.generation}"
    count = len(group.members)
    match group.state:
        case "Empty":
            return "no active members: the committed offsets are kept, and the next member starts from them"
        case "Stable":
            shared = sum(len(member.partitions) for member in group.members)
            where = "" if group.generation is None else f" in {generation}"
            return f"stable{where}: {pluralize(count, 'member')} share{'s' * (count == 1)} {pluralize(shared, 'partition')}, assigned by {group.strategy or 'an unknown strategy'}"
        case "PreparingRebalance":
            return (
                "rebalance in progress: the coordinator waits until all members have rejoined or the rebalance timeout expires; "
                "members that revoke nothing keep consuming"
            )
        case "CompletingRebalance":
            return f"all members have joined {generation} and wait for the leader's assignment"
        case other:
            return f"{other}: the group is changing state; check again in a moment"


def _rebalance(group: Group, reason: str, rebalance_reason_hint: str) -> Iterator[Remark]:
    if group.state == EMPTY:
        return
    if reason:
        yield Remark("rebalance", f"the last rebalance was triggered by: {reason}")
    else:
        yield Remark(
            "rebalance",
            rebalance_reason_hint,
            known=False,
        )
    reporting = [member for member in group.members if member.subscription is not None]
    new_members = [
        each for each in reporting if each.subscription and each.subscription.generation == NO_GENERATION
    ]
    if group.state != STABLE or not reporting:
        return
    if len(new_members) < len(reporting):
        for member in new_members:
            yield Remark(
                "rebalance",
                f"{member_name(member)} joined in the last rebalance, or had lost its partitions before it",
            )
    else:
        yield Remark(
            "rebalance",
            "no member reports what it owned before: all are new, or the strategy revokes all partitions in each rebalance",
            known=False,
        )


def _assignment(group: Group, partitions: Mapping[str, int]) -> Iterator[Remark]:
    if group.state != STABLE:
        return
    if group.leader:
        leader = next(
            (member_name(each) for each in group.members if each.member_id == group.leader), group.leader
        )
        yield Remark("assignment", f"{leader} is the leader and assigned with {group.strategy}")
    owners = owners_by_partition(group)
    for member in group.members:
        yield Remark("assignment", _describe_member(member, owners))
    for says in assignment_problems(group, partitions):
        yield Remark("assignment", says)


def _describe_member(member: Member, owners: Mapping[TopicPartition, str]) -> str:
    """Describe a member's partitions, and how the last rebalance changed them."""
    now = set(member.partitions)
    said = (
        f"{member_name(member)} owns {format_partitions(now)}"
        if now
        else f"{member_name(member)} owns no partitions"
    )
    if member.subscription is None or member.subscription.generation == NO_GENERATION:
        return said
    before = set(member.subscription.owned)
    parts = []
    if before & now and before != now:
        parts.append(f"kept {format_partitions(before & now)}")
    if now - before:
        parts.append(f"gained {format_partitions(now - before)}")
    for partition in sorted(before - now):
        taker = f"to {owners[partition]}" if partition in owners else "and it is not yet reassigned"
        parts.append(f"lost {format_partitions([partition])} {taker}")
    if not parts:
        return f"{said}, unchanged"
    return f"{said}: in the last rebalance it {', '.join(parts)}"


def assignment_problems(group: Group, partitions: Mapping[str, int]) -> Iterator[str]:
    """Find missing topics, partitions without an owner, and idle members."""
    subscribed = {
        topic for member in group.members if member.subscription for topic in member.subscription.topics
    }
    for topic in sorted(subscribed - set(partitions)):
        yield f"subscribed topic {topic} does not exist: create it with `rota topics create`"
    owners = owners_by_partition(group)
    every = [
        TopicPartition(topic, number) for topic in subscribed for number in range(partitions.get(topic, 0))
    ]
    unowned = [each for each in every if each not in owners]
    if unowned:
        yield (
            f"{format_partitions(unowned)} has no owner: it was added after the last rebalance, or is moving between members; "
            "if this persists, see the leader's log"
        )
    idle = sum(not member.partitions for member in group.members)
    if idle and every and not unowned:
        yield (
            f"{idle} of {len(group.members)} members {'is' if idle == 1 else 'are'} idle, with "
            f"{pluralize(len(every), 'partition')}: add partitions or run fewer members"
        )
