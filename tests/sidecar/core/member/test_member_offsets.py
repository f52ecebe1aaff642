"""Commits and fetches on behalf of others: what the member sends, what it refuses itself, and what it makes of answers."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.partitions import Offset
from tests.sidecar.core.member.driven import HEARTBEAT_MS, MEMBER_ID, Driven, given, names


def test_commits_of_another_tenure_are_refused_on_the_spot() -> None:
    driven = Driven().join(0, 1)
    old = Offset(driven.member.held[next(iter(given(0)))].number, 4)
    driven.pass_time(HEARTBEAT_MS / 1000)
    driven.answer_heartbeat(pb.UNKNOWN_MEMBER_ID)
    driven.answer_join()
    driven.answer_sync(0)
    actions = driven.step(on.Commit(1, dict.fromkeys(given(0), old)))
    assert names(actions) == ["Committed"]
    assert driven.last(do.Committed).errors == dict.fromkeys(given(0), pb.ILLEGAL_GENERATION)


def test_a_commit_goes_out_for_what_is_held_and_the_rest_is_refused() -> None:
    driven = Driven().join(0)
    tenure = driven.member.held[next(iter(given(0)))].number
    driven.step(on.Commit(1, dict.fromkeys(given(0, 5), Offset(tenure, 4, metadata="m"))))
    sent = driven.sent(pb.CommitOffsetsRequest)[1]
    assert [(each.index, each.offset, each.metadata) for each in sent.topics[0].partitions] == [(0, 4, "m")]
    driven.answer_commit()
    assert driven.last(do.Committed).errors == {
        **dict.fromkeys(given(0), pb.NONE),
        **dict.fromkeys(given(5), pb.ILLEGAL_GENERATION),
    }


def test_a_commit_that_is_answered_without_its_partitions_has_not_committed_them() -> None:
    driven = Driven().join(0)
    driven.commit()
    call, _ = driven.sent(pb.CommitOffsetsRequest)
    driven.step(on.ResponseReceived(call, pb.CommitOffsetsResponse()))
    assert driven.last(do.Committed).errors == dict.fromkeys(given(0), pb.UNKNOWN_SERVER_ERROR)


def test_a_commit_that_meets_a_rebalance_sends_the_member_there() -> None:
    driven = Driven().join(0)
    driven.commit()
    assert names(driven.answer_commit(pb.REBALANCE_IN_PROGRESS)) == ["Committed", "JoinGroup"]


def test_a_commit_that_the_coordinator_did_not_complete_in_time_costs_no_membership() -> None:
    """Its outcome is unknown, as with one that was not answered: the caller is told so, and the coordinator is found again."""
    driven = Driven().join(0)
    driven.commit()
    actions = driven.answer_commit(pb.REQUEST_TIMED_OUT)
    assert names(actions) == ["Committed", "Problem", "FindCoordinator"]
    assert driven.last(do.Committed).errors == dict.fromkeys(given(0), pb.REQUEST_TIMED_OUT)
    assert "REQUEST_TIMED_OUT: it did not complete a request in time" in driven.last(do.Problem).message
    assert driven.member.held.keys() == given(0)


def test_nobody_commits_between_two_generations() -> None:
    driven = Driven().join(0)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    driven.commit()
    assert driven.last(do.Committed).errors == dict.fromkeys(given(0), pb.REBALANCE_IN_PROGRESS)


def test_commits_under_way_fail_with_the_connection_and_may_be_asked_again() -> None:
    driven = Driven().join(0)
    driven.commit()
    call, _ = driven.sent(pb.CommitOffsetsRequest)
    actions = driven.step(on.CallFailed(call, "the connection ended"))
    assert names(actions) == ["Committed", "Problem", "FindCoordinator"]
    assert driven.last(do.Committed).errors == dict.fromkeys(given(0), pb.NOT_COORDINATOR)
