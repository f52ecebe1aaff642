"""
A consumer group joined by hand: kafka-python's message classes over a plain socket, against a real broker.

This is how tests speak versions of the protocol that no client library offers.
"""

import socket
from collections.abc import Iterator

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    MemberIdRequiredError,
    NotCoordinatorError,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.support.kafka import Kafka, wire

pytestmark = pytest.mark.kafka

JOIN_VERSION = 9
SYNC_VERSION = 5
FIND_VERSION = 4
METADATA_VERSION = 1
TIMEOUT_S = 60
NOT_YET = (
    CoordinatorLoadInProgressError.errno,
    CoordinatorNotAvailableError.errno,
    NotCoordinatorError.errno,
)


@pytest.fixture
def connection(kafka: Kafka) -> Iterator[socket.socket]:
    host, port = kafka.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as opened:
        yield opened


def test_member_joins_in_two_steps_and_gets_its_assignment(
    kafka: Kafka, connection: socket.socket, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=2)

    first = join_first(connection, unique_name)
    assert first.error_code == MemberIdRequiredError.errno
    assert first.member_id

    second = join(connection, unique_name, member_id=first.member_id)
    assert second.error_code == 0
    assert second.leader == second.member_id == first.member_id
    subscription = ConsumerProtocolSubscription.decode(second.members[0].metadata, version=METADATA_VERSION)
    assert subscription.topics == [unique_name]
    assert subscription.user_data == b"ours"

    synced = sync(connection, unique_name, second)
    assert synced.error_code == 0
    assignment = ConsumerProtocolAssignment.decode(synced.assignment, version=METADATA_VERSION)
    assert [(part.topic, part.partitions) for part in assignment.assigned_partitions] == [
        (unique_name, [0, 1])
    ]


def join_first(connection: socket.socket, group: str) -> JoinGroupResponse:
    """Join as a new member, once the broker coordinates the group: asked the first time ever, it prepares that."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    while True:
        ask(connection, find, FindCoordinatorResponse, FIND_VERSION)
        answer = join(connection, group, member_id="")
        if answer.error_code not in NOT_YET:
            return answer


def join(connection: socket.socket, group: str, *, member_id: str) -> JoinGroupResponse:
    # The broker parses the metadata of consumers. Bytes that are no subscription would never be answered.
    subscription = ConsumerProtocolSubscription(topics=[group], user_data=b"ours", owned_partitions=[])
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[("range", subscription.encode(version=METADATA_VERSION))],
        reason="a test",
    )
    return ask(connection, request, JoinGroupResponse, JOIN_VERSION)


def sync(connection: socket.socket, group: str, joined: JoinGroupResponse) -> SyncGroupResponse:
    """The leader's answer to the join: it assigns both partitions of the topic to itself."""
    assignment = ConsumerProtocolAssignment(assigned_partitions=[(group, [0, 1])], user_data=None)
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[(joined.member_id, assignment.encode(version=METADATA_VERSION))],
    )
    return ask(connection, request, SyncGroupResponse, SYNC_VERSION)


def ask(
    connection: socket.socket, request: ApiMessage, response: type[ApiMessage], version: int
) -> ApiMessage:
    request.with_header(correlation_id=1, client_id="rota-tests")
    answer = wire.exchange(connection, request.encode(version=version, header=True))
    return response.decode(answer, version=version, header=True)
