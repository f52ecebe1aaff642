"""Translation of Kafka's responses that a real broker rarely gives. The others are covered by the conformance tests."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.messages import Request, Response
from rota_sidecar.engines.kafka.connection import UNREADABLE
from rota_sidecar.engines.kafka.translate import error_of, from_kafka, to_kafka
from rota_sidecar.engines.kafka.versions import VERSIONS

# STALE_MEMBER_EPOCH: of the newer protocol.
NOT_OURS = 113
ANSWERS = [
    group.JoinGroupResponse(
        leader="m", member_id="m", protocol_type="consumer", members=[("m", None, b"1"), ("n", "i", b"2")]
    ),
    group.SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=b"bytes"),
    group.HeartbeatResponse(error_code=27),
    group.LeaveGroupResponse(members=[("m", "i", 25)]),
    group.OffsetCommitResponse(topics=[("orders", [(0, 0), (1, 22)])]),
    group.OffsetFetchResponse(groups=[("g", [("orders", [(0, 7, -1, "so far", 0)])], 0)]),
]


def on_the_wire(request: Request) -> ApiMessage:
    """Return the request as a broker decodes it."""
    message = to_kafka(request)
    version = VERSIONS[type(message)].version
    return type(message).decode(message.encode(version=version), version=version)


def answered(answer: ApiMessage) -> Response:
    """Encode a broker's response, decode it and translate it."""
    request = next(
        kind for kind, message_version in VERSIONS.items() if message_version.response is type(answer)
    )
    version = VERSIONS[request].version
    return from_kafka(type(answer).decode(answer.encode(version=version), version=version))


def test_errors_that_rota_does_not_know_are_unknown() -> None:
    assert error_of(NOT_OURS) == pb.UNKNOWN_SERVER_ERROR
    assert error_of(-1) == pb.UNKNOWN_SERVER_ERROR
    assert error_of(27) == pb.REBALANCE_IN_PROGRESS
    answer = answered(group.HeartbeatResponse(error_code=NOT_OURS))
    assert answer == pb.HeartbeatResponse(error_code=pb.UNKNOWN_SERVER_ERROR)


def test_an_instance_id_may_be_empty_or_none() -> None:
    assert on_the_wire(pb.HeartbeatRequest(group_id="g")).group_instance_id is None
    assert on_the_wire(pb.HeartbeatRequest(group_id="g", group_instance_id="")).group_instance_id == ""
    joined = group.JoinGroupResponse(members=[("m", None, b"1"), ("n", "i", b"2")], leader="m", member_id="m")
    answer = answered(joined)
    assert isinstance(answer, pb.JoinGroupResponse)
    assert [each.HasField("group_instance_id") for each in answer.members] == [False, True]


def test_kafkas_null_texts_are_empty() -> None:
    answer = answered(group.SyncGroupResponse(protocol_type=None, protocol_name=None, assignment=b""))
    assert answer == pb.SyncGroupResponse()
    joined = group.JoinGroupResponse(
        protocol_type=None, protocol_name=None, leader="", member_id="", members=[]
    )
    assert answered(joined) == pb.JoinGroupResponse(generation_id=-1)


def test_what_we_leave_empty_is_null_where_kafka_has_it() -> None:
    synced = on_the_wire(pb.SyncGroupRequest(group_id="g"))
    assert (synced.protocol_type, synced.protocol_name) == (None, None)
    assert on_the_wire(pb.JoinGroupRequest(group_id="g")).reason is None


def test_all_offsets_are_asked_for_with_null_and_none_with_an_empty_list() -> None:
    assert on_the_wire(pb.FetchOffsetsRequest(group_id="g", all=True)).groups[0].topics is None
    assert on_the_wire(pb.FetchOffsetsRequest(group_id="g")).groups[0].topics == []


def committed(*codes: int) -> pb.CommitOffsetsResponse:
    answer = answered(group.OffsetCommitResponse(topics=[("t", list(enumerate(codes)))]))
    assert isinstance(answer, pb.CommitOffsetsResponse)
    return answer


def test_an_error_of_the_member_is_one_of_the_whole_commit() -> None:
    refused = committed(pb.UNKNOWN_TOPIC_OR_PARTITION, pb.ILLEGAL_GENERATION, pb.ILLEGAL_GENERATION)
    assert refused.error_code == pb.ILLEGAL_GENERATION
    assert [each.error_code for each in refused.topics[0].partitions] == [3, 22, 22]
    assert committed(pb.NONE, pb.OFFSET_METADATA_TOO_LARGE).error_code == pb.NONE
    assert committed(NOT_OURS).topics[0].partitions[0].error_code == pb.UNKNOWN_SERVER_ERROR


@given(st.sampled_from(sorted(VERSIONS, key=lambda kind: kind.name)), st.binary(max_size=200))
def test_an_answer_of_any_bytes_is_read_or_unreadable(kind: type[ApiMessage], data: bytes) -> None:
    message_version = VERSIONS[kind]
    with suppress(*UNREADABLE):
        message_version.response.decode(data, version=message_version.version, header=True)


@given(st.data(), st.sampled_from(ANSWERS))
def test_an_answer_with_a_wrong_byte_is_read_or_unreadable(data: st.DataObject, answer: ApiMessage) -> None:
    message_version = next(each for each in VERSIONS.values() if each.response is type(answer))
    bytes_ = bytearray(b"\0\0\0\0\0" + answer.encode(version=message_version.version))
    at = data.draw(st.integers(0, len(bytes_) - 1))
    bytes_[at] = data.draw(st.integers(0, 255))
    with suppress(*UNREADABLE):
        from_kafka(
            message_version.response.decode(bytes(bytes_), version=message_version.version, header=True)
        )
