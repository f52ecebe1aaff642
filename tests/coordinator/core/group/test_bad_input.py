"""Requests with anything in them: each is answered, or waits; none breaks the core, and what is refused changes nothing."""

from typing import Any

from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_coordinator.core.group.config import GROUP_ID_LENGTH_MAX, PENDING_MEMBERS_MAX
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT
from tests.conformance.members import TOPIC, subscription

TEXTS = st.sampled_from(["", "g", "m", "consumer", "range", TOPIC, "é" * 300, "\0", "x" * 1_000_000])
BYTES = st.sampled_from([b"", b"\xff", b"\0" * 9, subscription(), b"\0\0\x7f\xff\xff\xff"])
INT32 = st.sampled_from([-(2**31), -1, 0, 1, 5, 10_000, 2**31 - 1])
INT64 = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
MAYBE_TEXT = st.none() | TEXTS


def some(element: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(element, max_size=3)


OFFSETS = some(
    st.builds(
        pb.TopicOffsets,
        name=TEXTS,
        topic_id=BYTES,
        partitions=some(
            st.builds(pb.PartitionOffset, index=INT32, offset=INT64, leader_epoch=INT32, metadata=TEXTS)
        ),
    )
)
PARTITIONS = some(st.builds(pb.TopicPartitions, name=TEXTS, topic_id=BYTES, partitions=some(INT32)))
MEMBER = {"group_id": TEXTS, "member_id": TEXTS, "group_instance_id": MAYBE_TEXT, "generation_id": INT32}
REQUESTS: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        pb.JoinGroupRequest,
        group_id=TEXTS,
        member_id=TEXTS,
        group_instance_id=MAYBE_TEXT,
        client_id=TEXTS,
        session_timeout_ms=INT32,
        rebalance_timeout_ms=INT32,
        protocol_type=TEXTS,
        protocols=some(st.builds(pb.Protocol, name=TEXTS, metadata=BYTES)),
        reason=TEXTS,
    ),
    st.builds(
        pb.SyncGroupRequest,
        **MEMBER,
        protocol_type=TEXTS,
        protocol_name=TEXTS,
        assignments=some(st.builds(pb.Assignment, member_id=TEXTS, assignment=BYTES)),
    ),
    st.builds(pb.HeartbeatRequest, **MEMBER),
    st.builds(
        pb.LeaveGroupRequest,
        group_id=TEXTS,
        members=some(
            st.builds(pb.LeavingMember, member_id=TEXTS, group_instance_id=MAYBE_TEXT, reason=TEXTS)
        ),
    ),
    st.builds(pb.CommitOffsetsRequest, **MEMBER, topics=OFFSETS),
    st.builds(
        pb.TxnCommitOffsetsRequest,
        **MEMBER,
        topics=OFFSETS,
        transactional_id=TEXTS,
        producer_id=INT64,
        producer_epoch=INT32,
    ),
    st.builds(
        pb.FetchOffsetsRequest,
        group_id=TEXTS,
        topics=PARTITIONS,
        all=st.booleans(),
        require_stable=st.booleans(),
    ),
    st.builds(admin.DescribeGroupsRequest, group_ids=st.tuples(TEXTS)),
    st.builds(admin.DeleteGroupsRequest, group_ids=st.tuples(TEXTS)),
    st.builds(admin.DeleteOffsetsRequest, group_id=TEXTS, topics=PARTITIONS),
    st.builds(admin.AlterOffsetsRequest, group_id=TEXTS, topics=OFFSETS),
)


@settings(max_examples=400, derandomize=True)
@given(st.lists(REQUESTS, min_size=1, max_size=8))
def test_any_requests_are_answered_or_wait(requests: list[Message]) -> None:
    driver = CoreDriver(DEFAULT)
    for request in requests:
        before = driver.groups.snapshot()
        call = driver.send(request)
        answered = driver.answers.get(call.call)
        if answered is not None and getattr(answered, "error_code", pb.NONE) not in MAY_CHANGE_STATE:
            assert driver.groups.snapshot() == before, "a refused request changed what is durable"
    assert all(len(group_id) <= GROUP_ID_LENGTH_MAX for group_id in driver.groups.groups)
    driver.run_until(driver.now_ms + 60 * 60 * 1000)
    waiting = {member.joining for group in driver.groups.groups.values() for member in group.members}
    assert waiting <= {None}, "after an hour somebody still waits"


# A first contact is refused and makes a group all the same, as in Kafka.
MAY_CHANGE_STATE = (pb.NONE, pb.MEMBER_ID_REQUIRED, pb.INCONSISTENT_GROUP_PROTOCOL)


def test_a_strategy_that_is_offered_twice_counts_once() -> None:
    driver = CoreDriver(DEFAULT)
    join = driver.send(
        pb.JoinGroupRequest(
            group_id="g",
            group_instance_id="i",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[pb.Protocol(name="range"), pb.Protocol(name="range")],
        )
    )
    reply = driver.answers[join.call]
    assert isinstance(reply, pb.JoinGroupResponse)
    assert (reply.error_code, reply.protocol_name) == (pb.NONE, "range")


def test_ids_that_nobody_uses_are_handed_out_up_to_a_bound() -> None:
    driver = CoreDriver(DEFAULT)
    request = pb.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range")],
    )

    def join() -> int:
        reply = driver.answers[driver.send(request).call]
        assert isinstance(reply, pb.JoinGroupResponse)
        return reply.error_code

    group = driver.groups.groups
    assert join() == pb.MEMBER_ID_REQUIRED
    group["g"].pending.update({f"m{number}": driver.now_ms + 1 for number in range(PENDING_MEMBERS_MAX - 1)})
    assert join() == pb.GROUP_MAX_SIZE_REACHED
    driver.run_until(driver.now_ms + 10)
    assert join() == pb.MEMBER_ID_REQUIRED, "those that were not used in time make room"
