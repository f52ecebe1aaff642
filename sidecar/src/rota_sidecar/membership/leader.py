"""
The leader's part of a rebalance: decode the subscriptions, describe the topics, plan, and encode all assignments.

Called by `driver` for the action ComputeAssignment. `plan_for` runs the strategy and validates its plan.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rota_proto.consumer_protocol import Malformed
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.built_in import NAMES
from rota_sidecar.core.assignors.flat_assignment import FlatAssignment
from rota_sidecar.core.assignors.model import Assignor, Group, Plan, Subscriber, Topic
from rota_sidecar.core.assignors.packed_partitions import PackedPartitions
from rota_sidecar.core.assignors.validation import plan_problem
from rota_sidecar.core.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.offers import member_data_of, subscriber_of
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts
from rota_sidecar.core.consumer_protocol.user_data import (
    NO_INCARNATION,
    AssignmentData,
    encode_assignment_data,
    fingerprint_of_plan,
    fingerprint_of_topics,
)
from rota_sidecar.core.consumer_protocol.wire import TopicHeaders
from rota_sidecar.core.member.actions import ComputeAssignment
from rota_sidecar.core.member.events import AssignmentComputed
from rota_sidecar.engines.port import Coordination, Refused, Topics

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoundMembers:
    """Decoded subscriptions of all members of a generation."""

    subscribers: Mapping[str, Subscriber]
    # Incarnation of each generation, as reported by the members that were in that generation last.
    incarnations: Mapping[int, int]
    # Members whose subscription cannot be decoded; they are assigned no partitions.
    unreadable: Sequence[str]

    @property
    def topics(self) -> frozenset[str]:
        """Topics to which at least one member subscribes."""
        # Members with equal subscriptions share one list: each list is read once.
        lists = {id(each.topics): each.topics for each in self.subscribers.values()}
        return frozenset(topic for topics in lists.values() for topic in topics)


@dataclass(frozen=True, slots=True)
class Leader:
    """Computes assignments with the strategies by name. `wall_ms` gives the number of a new incarnation."""

    group_id: str
    coordination: Coordination
    topics: Topics
    strategies: Mapping[str, Assignor]
    wall_ms: Callable[[], int]

    async def lead(self, request: ComputeAssignment) -> AssignmentComputed:
        """Compute all assignments. Raises Unreachable if the backend does not answer, Refused if the strategy fails."""
        within_s = request.within_ms / 1000
        members = read_members(request)
        for member_id in members.unreadable:
            LOG.warning(
                "member %s of group %s sent an invalid subscription and is assigned no partitions: check which client it is",
                member_id,
                self.group_id,
            )
        topics = await self.topics.describe(members.topics, within_s)
        minted = await self.coordination.incarnation(within_s)
        incarnation = minted if minted is not None else incarnation_for(request, members, self.wall_ms())
        strategy = self.strategies.get(request.strategy)
        if strategy is None:
            raise Refused(
                f"group {self.group_id} chose the strategy {request.strategy}, which this member no longer offers"
            )
        # Planning for a large group takes long, and the duration of a custom strategy is unknown.
        return await asyncio.to_thread(compute_assignment, request, members, topics, strategy, incarnation)


def read_members(request: ComputeAssignment) -> RoundMembers:
    """Decode the subscriptions of all members."""
    subscribers: dict[str, Subscriber] = {}
    unreadable: list[str] = []
    incarnations: dict[int, int] = {}
    shared = SharedLayouts()
    for member in request.members:
        instance_id = member.group_instance_id if member.HasField("group_instance_id") else None
        try:
            subscribers[member.member_id] = subscriber_of(
                request.strategy, member.metadata, instance_id, shared
            )
            known = member_data_of(request.strategy, member.metadata, shared)
            incarnations[known.generation] = max(
                incarnations.get(known.generation, NO_INCARNATION), known.incarnation
            )
        except Malformed:
            subscribers[member.member_id] = Subscriber(topics=(), instance_id=instance_id)
            unreadable.append(member.member_id)
    return RoundMembers(subscribers, incarnations, unreadable)


def incarnation_for(request: ComputeAssignment, members: RoundMembers, wall_ms: int) -> int:
    """
    Return the incarnation on a backend without one: that of the last generation if a member was in it, else a new one.

    (incarnation, generation) has to rise, although a deleted group counts its generations from the beginning and the leader
    of the last generation may have chosen a number that no present member knows. So a new one is above all known ones.
    """
    last = members.incarnations.get(request.generation - 1, NO_INCARNATION)
    if last != NO_INCARNATION:
        return last
    return max(*members.incarnations.values(), NO_INCARNATION, wall_ms - 1) + 1


def compute_assignment(
    request: ComputeAssignment,
    members: RoundMembers,
    topics: Mapping[str, Topic],
    strategy: Assignor,
    incarnation: int,
) -> AssignmentComputed:
    """Plan, and encode the assignment of each member. Raises Refused."""
    plan = plan_for(members, topics, strategy)
    planned = {name: topics[name].partitions if name in topics else 0 for name in members.topics}
    revoking = holders_of_withheld(members, plan, planned) if strategy.cooperative else frozenset()
    headers = TopicHeaders()
    # Members with equal subscriptions share one list: each list is read once.
    prints: dict[int, bytes] = {}
    assignments = []
    for member_id, each in members.subscribers.items():
        key = id(each.topics)
        data = AssignmentData(
            incarnation,
            member_id in revoking,
            prints.get(key) or prints.setdefault(key, fingerprint_of_topics(each.topics)),
            fingerprint_of_plan(planned) if member_id == request.member_id else b"",
        )
        written = encode_assignment(Assignment(plan[member_id], encode_assignment_data(data)), headers)
        assignments.append(pb.Assignment(member_id=member_id, assignment=written))
    return AssignmentComputed(request.call, assignments, planned)


def holders_of_withheld(members: RoundMembers, plan: Plan, planned: Mapping[str, int]) -> frozenset[str]:
    """Return the members that have to revoke partitions which the plan withholds for one rebalance."""
    if sum(map(count, plan.values())) == sum(planned.values()):
        return frozenset()
    return frozenset(
        member_id
        for member_id, each in members.subscribers.items()
        if plan[member_id] is not each.owned
        and any(not set(plan[member_id].get(topic, ())) >= set(owned) for topic, owned in each.owned.items())
    )


def count(parts: Mapping[str, Sequence[int]]) -> int:
    """Return the number of partitions; the plans of built-in strategies know it without being expanded."""
    match parts:
        case PackedPartitions():
            return parts.layout.size
        case FlatAssignment():
            return len(parts.flats)
        case _:
            return sum(map(len, parts.values()))


def plan_for(members: RoundMembers, topics: Mapping[str, Topic], strategy: Assignor) -> Plan:
    """Return the plan of the strategy after validation. Raises Refused."""
    group = Group(members.subscribers, topics)
    try:
        plan = strategy.assign(group)
    except Exception as error:
        raise Refused(
            f"the strategy {strategy.name} failed ({type(error).__name__}: {error}): correct it or choose another"
        ) from error
    wrong = "" if strategy.name in NAMES else plan_problem(group, plan, strategy.cooperative)
    if wrong:
        raise Refused(f"the strategy {strategy.name} returned an invalid plan: {wrong}")
    return plan
