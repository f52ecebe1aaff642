"""The names that are fixed: services, calls, fields in their order, and Kafka's error numbers."""

import pytest
from google.protobuf.descriptor import Descriptor
from kafka import errors as kafka_errors

from rota_proto.coordinator.v1 import admin_pb2, coordinator_pb2
from rota_proto.fleet.v1 import fleet_pb2
from rota_proto.log.v1 import log_pb2
from rota_proto.sidecar.v1 import sidecar_pb2

CALLS = {
    coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"]: (
        "FindCoordinator JoinGroup SyncGroup Heartbeat LeaveGroup CommitOffsets TxnCommitOffsets FetchOffsets Session"
    ),
    admin_pb2.DESCRIPTOR.services_by_name["Admin"]: (
        "ListGroups DescribeGroups WatchGroup DeleteGroups DeleteOffsets AlterOffsets DescribeSlots"
    ),
    log_pb2.DESCRIPTOR.services_by_name["Log"]: (
        "CreateTopics DeleteTopics DescribeTopics CreatePartitions Produce Fetch ListOffsets InitProducer "
        "AddOffsetsToTransaction EndTransaction DeleteRecords AlterTopics"
    ),
    sidecar_pb2.DESCRIPTOR.services_by_name["Consumer"]: (
        "Attach Deliver Subscribe Assign Poll Commit Seek Position Committed Pause Resume Assignment "
        "OffsetsForTimes BeginningOffsets EndOffsets Partitions Topics Metrics"
    ),
    fleet_pb2.DESCRIPTOR.services_by_name["Fleet"]: "Connect",
}

# In the order of their numbers: a field that is renumbered, renamed or removed fails here.
FIELDS = {
    "FindCoordinatorRequest": "group_ids",
    "FindCoordinatorResponse": "coordinators",
    "JoinGroupRequest": (
        "group_id member_id group_instance_id client_id session_timeout_ms rebalance_timeout_ms protocol_type "
        "protocols reason"
    ),
    "Protocol": "name metadata",
    "JoinGroupResponse": (
        "error_code generation_id protocol_type protocol_name leader member_id skip_assignment members"
    ),
    "Member": "member_id group_instance_id metadata",
    "SyncGroupRequest": (
        "group_id generation_id member_id group_instance_id protocol_type protocol_name assignments"
    ),
    "Assignment": "member_id assignment",
    "SyncGroupResponse": "error_code protocol_type protocol_name assignment",
    "HeartbeatRequest": "group_id generation_id member_id group_instance_id",
    "HeartbeatResponse": "error_code",
    "LeaveGroupRequest": "group_id members",
    "LeavingMember": "member_id group_instance_id reason",
    "LeaveGroupResponse": "error_code members",
    "LeftMember": "member_id group_instance_id error_code",
    "CommitOffsetsRequest": "group_id generation_id member_id group_instance_id topics",
    "TopicOffsets": "name partitions topic_id",
    "PartitionOffset": "index offset leader_epoch metadata",
    "CommitOffsetsResponse": "error_code topics",
    "TopicErrors": "name partitions",
    "PartitionError": "index error_code",
    "TxnCommitOffsetsRequest": (
        "group_id generation_id member_id group_instance_id topics transactional_id producer_id producer_epoch"
    ),
    "TxnCommitOffsetsResponse": "error_code topics",
    "FetchOffsetsRequest": "group_id topics all require_stable",
    "TopicPartitions": "name topic_id partitions",
    "FetchOffsetsResponse": "error_code topics",
    "FetchedTopic": "name partitions",
    "FetchedPartition": "index offset leader_epoch metadata error_code",
    "SessionRequest": (
        "request_id join_group sync_group heartbeat leave_group commit_offsets fetch_offsets find_coordinator "
        "txn_commit_offsets"
    ),
    "SessionResponse": (
        "request_id join_group sync_group heartbeat leave_group commit_offsets fetch_offsets rebalance_notice "
        "go_away failure find_coordinator txn_commit_offsets"
    ),
    "RebalanceNotice": "group_id member_id generation_id reason",
    "GoAway": "group_id address",
    "Failure": "grpc_code message",
}


def fields(message: Descriptor) -> str:
    return " ".join(field.name for field in sorted(message.fields, key=lambda field: field.number))


@pytest.mark.parametrize("service", CALLS, ids=lambda service: service.full_name)
def test_a_service_has_the_calls_of_the_contract(service: object) -> None:
    assert " ".join(call.name for call in service.methods) == CALLS[service]  # type: ignore[attr-defined,index]


def test_the_coordinators_messages_have_the_fields_of_the_contract() -> None:
    messages = coordinator_pb2.DESCRIPTOR.message_types_by_name
    assert {name: fields(message) for name, message in messages.items()} == FIELDS


def test_field_numbers_have_no_gaps() -> None:
    for message in coordinator_pb2.DESCRIPTOR.message_types_by_name.values():
        assert sorted(field.number for field in message.fields) == list(range(1, len(message.fields) + 1))


def test_error_codes_have_kafkas_numbers() -> None:
    # kafka-python still uses these names of old.
    renamed = {
        "UNKNOWN_SERVER_ERROR": "UNKNOWN",
        "NONE": "NO_ERROR",
        "MESSAGE_TOO_LARGE": "MESSAGE_SIZE_TOO_LARGE",
        "INVALID_TOPIC_EXCEPTION": "INVALID_TOPIC",
    }
    errors = [
        error
        for error in vars(kafka_errors).values()
        if hasattr(error, "errno") and hasattr(error, "message")
    ]
    known = {error.errno: error.message for error in errors}
    for name, number in coordinator_pb2.ErrorCode.items():
        assert known[number] == renamed.get(name, name)


def test_a_verdict_that_was_forgotten_is_not_an_ack() -> None:
    assert sidecar_pb2.DeliverRequest.Judgement().verdict == sidecar_pb2.VERDICT_UNSPECIFIED
    assert [name for name, number in sidecar_pb2.Verdict.items() if number] == [
        "ACK",
        "RETRY",
        "DEAD_LETTER",
        "SKIP",
    ]


def test_absent_and_empty_instance_ids_differ() -> None:
    absent = coordinator_pb2.JoinGroupRequest()
    empty = coordinator_pb2.JoinGroupRequest(group_instance_id="")
    assert not coordinator_pb2.JoinGroupRequest.FromString(absent.SerializeToString()).HasField(
        "group_instance_id"
    )
    assert coordinator_pb2.JoinGroupRequest.FromString(empty.SerializeToString()).HasField(
        "group_instance_id"
    )
