"""Requests are validated for every client: each text has a length limit, and each number its range."""

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rota_coordinator.rpc.validate_group import (
    GROUPS_MAX,
    MEMBERS_MAX,
    PARTITIONS_MAX,
    PROTOCOLS_MAX,
    TEXT_LENGTH_MAX,
    validate,
)
from rota_coordinator.rpc.validation_interceptor import request_reader
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.validation_interceptor import UndecodableRequest, request_id_of
from tests.conformance.members import subscription, topic_offsets
from tests.coordinator.callers import METHODS
from tests.coordinator.garbage import fields_of, kind_of

REQUESTS = [GetMessageClass(method.input_type) for method in METHODS if not method.client_streaming]
LOWEST = {FieldDescriptor.TYPE_INT32: -(2**31), FieldDescriptor.TYPE_INT64: -(2**63)}
# Refused by the group, with an error that Kafka has for it.
BOUNDED_BY_THE_CORE = {"metadata", "session_timeout_ms"}


def holders(kind: type[Message]) -> Iterator[tuple[Message, Message]]:
    """A request of a kind, and each message in it that has fields of its own: itself, and one of every list."""
    whole = kind()
    yield whole, whole
    for field in fields_of(whole):
        if field.message_type is not None and field.is_repeated:
            for inner, part in holders(kind_of(field)):
                whole = kind()
                getattr(whole, field.name).append(inner)
                # Found again in the copy that the list has made.
                yield whole, find(getattr(whole, field.name)[0], part.DESCRIPTOR.full_name)


def find(message: Message, name: str) -> Message:
    """The first part of a message that is of the named type."""
    if message.DESCRIPTOR.full_name == name:
        return message
    (inner,) = (value[0] for field, value in message.ListFields() if field.message_type is not None)
    return find(inner, name)


def put(message: Message, field: FieldDescriptor, value: object) -> None:
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_every_text_of_a_request_has_a_bound(kind: type[Message]) -> None:
    for whole, part in holders(kind):
        for field in fields_of(part):
            if field.type != FieldDescriptor.TYPE_STRING or field.name in BOUNDED_BY_THE_CORE:
                continue
            put(part, field, "x" * TEXT_LENGTH_MAX)
            assert "at most" not in validate(whole), field.full_name
            part.ClearField(field.name)
            put(part, field, "x" * (TEXT_LENGTH_MAX + 1))
            assert f"at most {TEXT_LENGTH_MAX}" in validate(whole), field.full_name
            part.ClearField(field.name)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_no_number_of_a_request_is_below_what_it_can_be(kind: type[Message]) -> None:
    for whole, part in holders(kind):
        for field in fields_of(part):
            if field.type in LOWEST and field.name not in BOUNDED_BY_THE_CORE:
                put(part, field, LOWEST[field.type])
                assert validate(whole), field.full_name
                part.ClearField(field.name)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (pb.FindCoordinatorRequest(group_ids=["g"] * (GROUPS_MAX + 1)), "1001 group_ids"),
        (admin.DescribeGroupsRequest(group_ids=["g"] * (GROUPS_MAX + 1)), "1001 group_ids"),
        (admin.DeleteGroupsRequest(group_ids=["g"] * (GROUPS_MAX + 1)), "1001 group_ids"),
        (admin.ListGroupsRequest(states=[1, 99]), "unknown group state 99"),  # type: ignore[list-item]
        (pb.JoinGroupRequest(protocols=[pb.Protocol()] * (PROTOCOLS_MAX + 1)), "101 protocols"),
        (pb.LeaveGroupRequest(members=[pb.LeavingMember()] * (MEMBERS_MAX + 1)), "10001 members"),
        (pb.SyncGroupRequest(assignments=[pb.Assignment()] * (MEMBERS_MAX + 1)), "10001 assignments"),
        (
            pb.FetchOffsetsRequest(
                topics=[
                    pb.TopicPartitions(name="a", partitions=range(PARTITIONS_MAX)),
                    pb.TopicPartitions(name="b", partitions=[0]),
                ]
            ),
            "10001 partitions",
        ),
        (
            pb.CommitOffsetsRequest(topics=[topic_offsets(dict.fromkeys(range(PARTITIONS_MAX + 1), 1))]),
            "10001 partitions",
        ),
        (pb.JoinGroupRequest(group_instance_id=""), "group_instance_id must not be empty"),
        (pb.JoinGroupRequest(protocols=[pb.Protocol(name="range"), pb.Protocol()]), "protocol 2 has no name"),
        (pb.CommitOffsetsRequest(topics=[pb.TopicOffsets(topic_id=b"x")]), "topic_id has 1 bytes"),
        (pb.CommitOffsetsRequest(topics=[topic_offsets({3: -1})]), "partition 3, offset -1"),
        (admin.AlterOffsetsRequest(topics=[topic_offsets({-1: 3})]), "partition -1, offset 3"),
        (
            admin.DeleteOffsetsRequest(topics=[pb.TopicPartitions(partitions=[1, -2])]),
            "partition -2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_out_of_bounds_are_refused_with_a_message(request_: Message, message: str) -> None:
    assert message in validate(request_)


def test_what_members_say_is_well_formed() -> None:
    for request in (
        pb.HeartbeatRequest(group_id="g", generation_id=-1, member_id="m"),
        pb.CommitOffsetsRequest(group_id="g", generation_id=-1, topics=[topic_offsets({0: 0, 1: 2**63 - 1})]),
        pb.CommitOffsetsRequest(topics=[pb.TopicOffsets(name="t", topic_id=b"i" * 16)]),
        pb.JoinGroupRequest(
            group_id="g", client_id="c", protocols=[pb.Protocol(name="range", metadata=subscription())]
        ),
        admin.ListGroupsRequest(states=admin.GroupState.values()),
    ):
        assert validate(request) == ""


def test_bytes_that_are_no_frame_keep_their_number_if_they_have_one() -> None:
    read = request_reader(pb.SessionRequest.FromString)
    whole = pb.SessionRequest(
        request_id=300, heartbeat=pb.HeartbeatRequest(group_id="group")
    ).SerializeToString()
    assert isinstance(read(whole).message, pb.SessionRequest)
    assert read(whole.replace(b"group", b"\xff\xff\xff\xff\xff")).message == UndecodableRequest(300)
    assert read(whole[:-1]).message == UndecodableRequest(300)
    assert read(b"\xff" * 20).message == UndecodableRequest(0)


@pytest.mark.parametrize("number", [1, 127, 128, 2**32, 2**63, 2**64 - 1])
def test_the_number_of_a_frame_is_read_as_it_was_written(number: int) -> None:
    assert request_id_of(pb.SessionRequest(request_id=number).SerializeToString() + b"\xff") == number


@pytest.mark.parametrize("data", [b"", b"\x08", b"\x08\x80", b"\x08" + b"\xff" * 20, b"\x10\x01"])
def test_bytes_without_a_number_are_answered_under_none(data: bytes) -> None:
    assert request_id_of(data) == 0
