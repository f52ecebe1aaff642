"""Every state of a member meets every event, and does what the page says."""

from typing import get_args

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.member import events as on
from rota_sidecar.member import states as st
from rota_sidecar.member.reactions import Api, Reaction, reaction, sentence
from tests.sidecar.member import table


def test_each_state_meets_each_event_and_does_what_the_page_says() -> None:
    assert table.page() == table.PAGE.read_text(), (
        "see that each change is meant, then: python -m tests.sidecar.member.table"
    )


def test_no_state_and_no_event_is_left_out() -> None:
    assert table.kinds_of_states() == set(get_args(st.State))
    driven = table.stable()
    assert {type(make(driven)) for make in table.EVENTS.values()} == set(get_args(on.Event))


def test_every_error_of_every_request_is_decided() -> None:
    for api in Api:
        for error in pb.ErrorCode.values():
            expected = Reaction.NOTHING if error == pb.NONE else reaction(api, error)
            assert reaction(api, error) is expected
            assert sentence("orders", error).startswith("the coordinator of group orders says ")


def test_kafkas_table_of_errors() -> None:
    rows = {
        (Api.JOIN, pb.MEMBER_ID_REQUIRED): Reaction.ADOPT_MEMBER_ID,
        (Api.JOIN, pb.REBALANCE_IN_PROGRESS): Reaction.RETRY,
        (Api.JOIN, pb.COORDINATOR_LOAD_IN_PROGRESS): Reaction.RETRY,
        (Api.JOIN, pb.NOT_COORDINATOR): Reaction.REDISCOVER,
        (Api.JOIN, pb.UNKNOWN_MEMBER_ID): Reaction.FORGET_MEMBER,
        (Api.JOIN, pb.INCONSISTENT_GROUP_PROTOCOL): Reaction.END,
        (Api.JOIN, pb.GROUP_MAX_SIZE_REACHED): Reaction.END,
        (Api.SYNC, pb.REBALANCE_IN_PROGRESS): Reaction.REJOIN,
        (Api.SYNC, pb.ILLEGAL_GENERATION): Reaction.FORGET_GENERATION,
        (Api.HEARTBEAT, pb.REBALANCE_IN_PROGRESS): Reaction.REJOIN,
        (Api.HEARTBEAT, pb.ILLEGAL_GENERATION): Reaction.FORGET_GENERATION,
        (Api.HEARTBEAT, pb.UNKNOWN_MEMBER_ID): Reaction.FORGET_MEMBER,
        (Api.HEARTBEAT, pb.FENCED_INSTANCE_ID): Reaction.END,
        (Api.HEARTBEAT, pb.GROUP_AUTHORIZATION_FAILED): Reaction.END,
        (Api.COMMIT, pb.REBALANCE_IN_PROGRESS): Reaction.REJOIN,
        (Api.COMMIT, pb.OFFSET_METADATA_TOO_LARGE): Reaction.NOTHING,
        (Api.COMMIT, pb.UNKNOWN_TOPIC_OR_PARTITION): Reaction.NOTHING,
        (Api.FETCH, pb.UNSTABLE_OFFSET_COMMIT): Reaction.NOTHING,
        (Api.FETCH, pb.NOT_COORDINATOR): Reaction.REDISCOVER,
    }
    assert {key: reaction(*key) for key in rows} == rows
