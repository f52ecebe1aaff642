"""A partition that a cooperative rebalance assigns to no member is still with its previous owner."""

import pytest

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.consumer_protocol import NO_CLAIM, TopicPartition, claimed_partitions
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.consumer_protocol import Subscription
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import GroupMember, GroupRecord, HandoverSnapshot, Record
from rota_sidecar.core.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.subscription import encode_subscription

OLD, NEW = "old", "new"


def member(member_id: str, *given: int, claims: tuple[int, ...] = (), generation: int = 4) -> GroupMember:
    """A member as its group's record has it: what it said that it has, and what it was given."""
    return GroupMember(
        member_id=member_id,
        metadata=encode_subscription(Subscription(["orders"], b"x", {"orders": claims}, generation)),
        assignment=encode_assignment(Assignment({"orders": given})),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
    )


def group(*members: GroupMember) -> Groups:
    """A stable group in generation 5."""
    groups = Groups(GroupConfig())
    record = GroupRecord(
        group_id="g",
        incarnation=1,
        generation_id=5,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader=members[0].member_id,
        members=members,
    )
    groups.replay(Record(group=record))
    groups.loaded(MonotonicMs(0), HandoverSnapshot())
    return groups


def commit(groups: Groups, member_id: str, partition: int) -> int:
    """Return the error code of a commit of one partition."""
    topics = [pb.TopicOffsets(name="orders", partitions=[pb.PartitionOffset(index=partition, offset=7)])]
    request = pb.CommitOffsetsRequest(group_id="g", generation_id=5, member_id=member_id, topics=topics)
    effects: Effects = groups.commit(Call(1), request, MonotonicMs(0))
    ((_, reply),) = effects.replies
    assert isinstance(reply, pb.CommitOffsetsResponse)
    return reply.topics[0].partitions[0].error_code


def test_only_the_member_that_has_it_commits_what_the_round_gives_to_nobody() -> None:
    groups = group(member(OLD, 0, claims=(0, 1)), member(NEW))
    assert commit(groups, NEW, 1) == pb.ILLEGAL_GENERATION
    assert commit(groups, OLD, 1) == pb.NONE


def test_the_assignment_counts_before_any_claim() -> None:
    groups = group(member(OLD, claims=(0,)), member(NEW, 0))
    assert commit(groups, OLD, 0) == pb.ILLEGAL_GENERATION
    assert commit(groups, NEW, 0) == pb.NONE


def test_the_newer_claim_counts() -> None:
    groups = group(member(OLD, claims=(0,), generation=3), member(NEW, claims=(0,), generation=4))
    assert commit(groups, OLD, 0) == pb.ILLEGAL_GENERATION
    assert commit(groups, NEW, 0) == pb.NONE


def test_partitions_that_two_members_or_no_member_claims_are_as_in_kafka() -> None:
    groups = group(member(OLD, claims=(0,)), member(NEW, claims=(0,)))
    assert [commit(groups, who, number) for who in (OLD, NEW) for number in (0, 1)] == [pb.NONE] * 4


@pytest.mark.parametrize("cut", range(60))
def test_what_cannot_be_read_claims_nothing(cut: int) -> None:
    whole = encode_subscription(Subscription(["orders"], b"data", {"orders": (0, 3)}, 4))
    read = claimed_partitions(whole)
    assert read.partitions == {TopicPartition("orders", 0), TopicPartition("orders", 3)}
    assert read.generation == 4
    # The rack that comes after the generation is of no interest.
    end_of_generation = whole.index(b"\x00\x00\x00\x04", whole.index(b"data") + 4) + 4
    assert claimed_partitions(whole[:cut]) == (read if cut >= end_of_generation else NO_CLAIM)
