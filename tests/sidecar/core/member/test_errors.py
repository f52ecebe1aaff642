"""Every error of every request: what Kafka's consumer does, and where a member departs from it, written by hand."""

from typing import TypeAlias

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.reactions import Api, Reaction, error_message, reaction

Error: TypeAlias = pb.ErrorCode.ValueType
NOTHING, RETRY, REDISCOVER, REJOIN, END = (
    Reaction.NOTHING,
    Reaction.RETRY,
    Reaction.REDISCOVER,
    Reaction.REJOIN,
    Reaction.END,
)
ADOPT, GENERATION, MEMBER = Reaction.ADOPT_MEMBER_ID, Reaction.FORGET_GENERATION, Reaction.FORGET_MEMBER
# The caller of a commit or of a fetch gets the error, and the membership is not concerned.
RAISE = Reaction.NOTHING

# Kafka's AbstractCoordinator and ConsumerCoordinator. In Kafka "fatal" ends the consumer's poll; a commit or a fetch of
# offsets raises to its caller, which only a group that is denied is more than.
KAFKA: dict[Error, tuple[Reaction, ...]] = {
    # FIND, JOIN, SYNC, HEARTBEAT, COMMIT, FETCH
    pb.NONE: (NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING),
    pb.UNKNOWN_SERVER_ERROR: (END, END, END, END, RAISE, RAISE),
    pb.COORDINATOR_LOAD_IN_PROGRESS: (RETRY, RETRY, END, END, RETRY, RETRY),
    pb.COORDINATOR_NOT_AVAILABLE: (RETRY, REDISCOVER, REDISCOVER, REDISCOVER, REDISCOVER, REDISCOVER),
    pb.NOT_COORDINATOR: (RETRY, REDISCOVER, REDISCOVER, REDISCOVER, REDISCOVER, REDISCOVER),
    pb.REQUEST_TIMED_OUT: (RETRY, END, END, END, REDISCOVER, RETRY),
    pb.UNKNOWN_MEMBER_ID: (END, MEMBER, MEMBER, MEMBER, MEMBER, RAISE),
    pb.ILLEGAL_GENERATION: (END, END, GENERATION, GENERATION, GENERATION, RAISE),
    pb.REBALANCE_IN_PROGRESS: (END, RETRY, REJOIN, REJOIN, REJOIN, RAISE),
    pb.FENCED_INSTANCE_ID: (END, END, END, END, END, RAISE),
    pb.MEMBER_ID_REQUIRED: (END, ADOPT, END, END, RAISE, RAISE),
    pb.GROUP_AUTHORIZATION_FAILED: (END, END, END, END, END, END),
    pb.INCONSISTENT_GROUP_PROTOCOL: (END, END, END, END, RAISE, RAISE),
    pb.INVALID_SESSION_TIMEOUT: (END, END, END, END, RAISE, RAISE),
    pb.INVALID_GROUP_ID: (END, END, END, END, RAISE, RAISE),
    pb.GROUP_MAX_SIZE_REACHED: (END, END, END, END, RAISE, RAISE),
    pb.UNSUPPORTED_VERSION: (END, END, END, END, RAISE, RAISE),
    pb.UNKNOWN_TOPIC_OR_PARTITION: (END, END, END, END, RETRY, RAISE),
    pb.TOPIC_AUTHORIZATION_FAILED: (END, END, END, END, RAISE, RAISE),
    pb.OFFSET_METADATA_TOO_LARGE: (END, END, END, END, RAISE, RAISE),
    pb.INVALID_COMMIT_OFFSET_SIZE: (END, END, END, END, RAISE, RAISE),
    pb.UNSTABLE_OFFSET_COMMIT: (END, END, END, END, RAISE, RETRY),
}
# Of records, topics, producers, transactions and administrators: no answer to a member has them.
OF_OTHERS: frozenset[Error] = frozenset(
    {
        pb.OFFSET_OUT_OF_RANGE,
        pb.CORRUPT_MESSAGE,
        pb.MESSAGE_TOO_LARGE,
        pb.INVALID_TOPIC_EXCEPTION,
        pb.RECORD_LIST_TOO_LARGE,
        pb.INVALID_REQUIRED_ACKS,
        pb.CLUSTER_AUTHORIZATION_FAILED,
        pb.INVALID_TIMESTAMP,
        pb.TOPIC_ALREADY_EXISTS,
        pb.INVALID_PARTITIONS,
        pb.INVALID_CONFIG,
        pb.INVALID_REQUEST,
        pb.POLICY_VIOLATION,
        pb.OUT_OF_ORDER_SEQUENCE_NUMBER,
        pb.DUPLICATE_SEQUENCE_NUMBER,
        pb.INVALID_PRODUCER_EPOCH,
        pb.INVALID_TXN_STATE,
        pb.INVALID_PRODUCER_ID_MAPPING,
        pb.INVALID_TRANSACTION_TIMEOUT,
        pb.CONCURRENT_TRANSACTIONS,
        pb.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        pb.KAFKA_STORAGE_ERROR,
        pb.UNKNOWN_PRODUCER_ID,
        pb.NON_EMPTY_GROUP,
        pb.GROUP_ID_NOT_FOUND,
        pb.FENCED_LEADER_EPOCH,
        pb.UNKNOWN_LEADER_EPOCH,
        pb.UNSUPPORTED_COMPRESSION_TYPE,
        pb.OFFSET_NOT_AVAILABLE,
        pb.GROUP_SUBSCRIBED_TO_TOPIC,
        pb.INVALID_RECORD,
        pb.THROTTLING_QUOTA_EXCEEDED,
        pb.PRODUCER_FENCED,
        pb.UNKNOWN_TOPIC_ID,
        pb.INCONSISTENT_TOPIC_ID,
        pb.TRANSACTIONAL_ID_NOT_FOUND,
        pb.TRANSACTION_ABORTABLE,
    }
)
UNEXPECTED = (END, END, END, END, RAISE, RAISE)

# docs/decisions/0010-the-member.md has the reasons.
DEPARTURES: dict[tuple[Api, Error], Reaction] = {
    (Api.FIND, pb.UNKNOWN_SERVER_ERROR): RETRY,
    (Api.JOIN, pb.UNKNOWN_SERVER_ERROR): RETRY,
    (Api.SYNC, pb.UNKNOWN_SERVER_ERROR): RETRY,
    (Api.HEARTBEAT, pb.UNKNOWN_SERVER_ERROR): RETRY,
    (Api.SYNC, pb.COORDINATOR_LOAD_IN_PROGRESS): RETRY,
    (Api.HEARTBEAT, pb.COORDINATOR_LOAD_IN_PROGRESS): RETRY,
    (Api.JOIN, pb.REQUEST_TIMED_OUT): REDISCOVER,
    (Api.SYNC, pb.REQUEST_TIMED_OUT): REDISCOVER,
    (Api.HEARTBEAT, pb.REQUEST_TIMED_OUT): REDISCOVER,
    (Api.FETCH, pb.REQUEST_TIMED_OUT): REDISCOVER,
    (Api.JOIN, pb.ILLEGAL_GENERATION): GENERATION,
    # The caller decides whether to repeat its commit or its fetch.
    (Api.COMMIT, pb.COORDINATOR_LOAD_IN_PROGRESS): RAISE,
    (Api.COMMIT, pb.UNKNOWN_TOPIC_OR_PARTITION): RAISE,
    (Api.FETCH, pb.COORDINATOR_LOAD_IN_PROGRESS): RAISE,
    (Api.FETCH, pb.UNSTABLE_OFFSET_COMMIT): RAISE,
}


def kafkas(api: Api, error: Error) -> Reaction:
    return KAFKA.get(error, UNEXPECTED)[list(Api).index(api)]


def test_every_error_is_in_one_of_the_tables() -> None:
    assert KAFKA.keys() | OF_OTHERS == set(pb.ErrorCode.values())
    assert not KAFKA.keys() & OF_OTHERS


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.name)
def test_every_error_of_every_request_has_the_reaction_of_the_table(api: Api) -> None:
    errors = pb.ErrorCode.values()
    expected = {error: DEPARTURES.get((api, error), kafkas(api, error)) for error in errors}
    found = {error: reaction(api, error) for error in errors}
    wrong = {
        pb.ErrorCode.Name(error): found[error] for error in errors if found[error] is not expected[error]
    }
    assert wrong == {}


def test_each_departure_is_one() -> None:
    assert [key for key, ours in DEPARTURES.items() if kafkas(*key) is ours] == []


def test_every_error_has_a_message_with_the_next_step() -> None:
    for error in pb.ErrorCode.values():
        said, _, advice = error_message("orders", error).partition(": ")
        assert said == f"the coordinator of group orders answered {pb.ErrorCode.Name(error)}"
        assert advice
    unknown = error_message("orders", 999)  # type: ignore[arg-type]
    assert unknown == "the coordinator of group orders answered 999: see the coordinator's log"
