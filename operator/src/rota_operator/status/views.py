"""
Prepares a group's view for its status: partitions of topics that are not subscribed any more are removed, and where no
coordinator describes the group to the operator, as on Kafka, the reports of its sidecars do.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rota_operator.overview.description import STABLE, UNKNOWN
from rota_operator.overview.view import GroupView, MemberView, PartitionView
from rota_operator.spec.model import ConsumerGroupSpec

# Kafka's name of the state in which members have different generations.
REBALANCING = "PreparingRebalance"


def subscribed(view: GroupView, spec: ConsumerGroupSpec) -> GroupView:
    """
    Return the view without partitions that the group neither owns nor subscribes to: their committed offsets stay until they
    expire.

    A view that is cut off is returned as it is, because its sums are over more partitions than it holds.
    """
    kept = tuple(
        each for each in view.partitions if each.owner is not None or _is_subscribed(each.topic, spec)
    )
    if view.partitions_left_out or len(kept) == len(view.partitions):
        return view
    return replace(
        view,
        partitions=kept,
        unowned=sum(each.owner is None for each in kept),
        lag_records=_whole(each.lag_records for each in kept),
        lag_seconds=_latest(kept),
    )


def reported(view: GroupView) -> GroupView:
    """
    Return the view of a group whose coordinator the operator cannot ask, by the reports of its sidecars.

    Members that are all in one generation own all partitions together, because a leader assigns every one. Without any report
    the view stays unknown.
    """
    live = [each for each in view.members if is_reporting(each)]
    if not live:
        return view
    is_stable = all(each.state == STABLE for each in live) and len({each.generation for each in live}) == 1
    return replace(view, state=STABLE if is_stable else REBALANCING)


def is_reporting(member: MemberView) -> bool:
    """Return whether a member's sidecar reports: a client that is no sidecar has no generation here."""
    return member.state != UNKNOWN and member.generation is not None


def _is_subscribed(topic: str, spec: ConsumerGroupSpec) -> bool:
    if spec.topics:
        return topic in spec.topics
    try:
        return re.fullmatch(spec.topic_pattern, topic) is not None
    except (re.error, RecursionError, OverflowError):
        # Refused elsewhere; the group consumes what it did before.
        return True


def _whole(values: Iterable[int | None]) -> int | None:
    known: list[int] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return sum(known) if known else None


def _latest(partitions: Sequence[PartitionView]) -> float | None:
    known = [each.lag_seconds for each in partitions if each.lag_seconds is not None]
    return max(known) if known and len(known) == len(partitions) else None
