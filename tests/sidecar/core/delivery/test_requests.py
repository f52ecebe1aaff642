"""Requests of the application (commits, seeks) and of the group's operator (resets)."""

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import CommitMode
from rota_sidecar.core.delivery.requests import PENDING_REQUESTS_MAX
from rota_sidecar.core.ledger.commit_points import State, parse_commit_metadata
from rota_sidecar.core.ledger.rules import Rules
from tests.sidecar.core.delivery.driven import (
    INTERVAL_MS,
    Driven,
    committed,
    delivered,
    names,
    offset_of,
    one,
    some,
)

# ---------------------------------------------------------------------------------------------- commit modes


def test_in_sync_mode_verdicts_are_committed_at_once_and_together() -> None:
    driven = Driven(commit_mode=CommitMode.SYNC).begin(0)
    driven.read(10)
    assert names(driven.judge(0)) == ["Settled", "Commit"]
    driven.judge(1)
    driven.judge(2)
    assert names(driven.answer_commit()) == ["Commit"]
    assert committed(driven.last(do.Commit)) == {0: 3}


def test_who_commits_itself_finds_nothing_committed_by_the_sidecar() -> None:
    for mode, commits_itself in (
        (CommitMode.PERIODIC, True),
        (CommitMode.TRANSACTIONAL, False),
        (CommitMode.EXTERNAL, False),
    ):
        driven = Driven(commit_mode=mode).begin(0, commits_itself=commits_itself)
        assert delivered(driven.read(10)) == [(0, 0, 10)]
        driven.judge(0, 9)
        driven.pass_time(INTERVAL_MS * 2)
        driven.revoke(0)
        assert names(driven.acknowledge()) == ["ReleasePartitions"]
        assert driven.all(do.Commit) == []


def test_what_was_not_committed_by_who_commits_itself_comes_again_when_it_is_gone() -> None:
    for clean in (True, False):
        driven = Driven().begin(0, commits_itself=True)
        driven.read(10)
        driven.judge(0, 9)
        driven.detach(clean=clean)
        driven.find(4)
        assert driven.fetch_of().offset == 4


def notices(driven: Driven) -> list[dict[int, int]]:
    """Commits that the application was notified of: offsets by the number of the partition."""
    return [
        {partition.number: offset.offset for partition, offset in each.offsets.items()}
        for each in driven.all(do.OffsetsCommitted)
    ]


def test_an_application_that_takes_commits_hears_of_the_sidecars_own_ones() -> None:
    driven = Driven().begin(0, 1, takes_commits=True)
    assert notices(driven) == [{0: 0, 1: 0}]
    driven.read(10)
    driven.read(10, number=1)
    driven.judge(0, 4)
    driven.judge(0, 9, number=1)
    driven.pass_time(INTERVAL_MS)
    driven.answer_commit(errors={one(1): pb.COORDINATOR_NOT_AVAILABLE})
    assert notices(driven)[1:] == [{0: 5}]


def test_a_commit_that_the_application_asked_for_is_answered_and_no_notice() -> None:
    driven = Driven().begin(0, takes_commits=True)
    driven.read(10)
    driven.judge(0, 4)
    asked = driven.commit_asked({0: 5})
    driven.answer_commit()
    assert len(driven.answers(asked)) == 1
    assert notices(driven) == [{0: 0}]


def test_nobody_hears_of_commits_who_does_not_take_them_or_is_gone() -> None:
    quiet = Driven().begin(0)
    gone = Driven().begin(0, takes_commits=True)
    for driven in (quiet, gone):
        driven.read(10)
        driven.judge(0, 4)
        driven.pass_time(INTERVAL_MS)
    gone.detach()
    for driven in (quiet, gone):
        driven.answer_commit()
    assert (notices(quiet), notices(gone)) == ([], [{0: 0}])


# ---------------------------------------------------------------------------------------------- commits asked for


def test_what_is_asked_for_is_answered_when_it_is_durable() -> None:
    driven = Driven().begin(0, commits_itself=True)
    driven.read(10)
    driven.judge(0, 5)
    request = driven.commit_asked()
    assert committed(driven.last(do.Commit)) == {0: 6}
    assert driven.answers(request) == []
    driven.answer_commit()
    (answer,) = driven.answers(request)
    assert (answer.errors, answer.offsets) == ({one(): pb.NONE}, {one(): 6})


def test_what_is_durable_already_is_not_committed_again() -> None:
    driven = Driven().begin(0, commits_itself=True)
    driven.read(10)
    before = len(driven.all(do.Commit))
    request = driven.commit_asked()
    assert driven.answers(request)[0].errors == {one(): pb.NONE}
    assert len(driven.all(do.Commit)) == before


def test_an_offset_that_is_named_is_a_verdict_on_all_before_it() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.commit_asked({0: 7})
    assert committed(driven.last(do.Commit)) == {0: 7}
    driven.answer_commit()
    assert isinstance(driven.judge(6)[0], do.Refuse)
    driven.judge(7)
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 8}


def test_an_application_may_commit_a_lower_offset_than_before_and_its_own_metadata() -> None:
    driven = Driven().begin(0, offset=50, commits_itself=True)
    driven.commit_asked({0: 20}, metadata="mine")
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, offset.metadata) == (20, "mine")


def test_without_metadata_of_its_own_that_of_the_sidecar_stays() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.commit_asked({0: 7})
    assert parse_commit_metadata(offset_of(driven.last(do.Commit)).metadata).state is State.OPEN


def test_what_is_not_held_or_in_another_tenure_is_refused_and_the_rest_committed() -> None:
    driven = Driven().begin(0)
    driven.assign(1)
    driven.acknowledge()
    driven.find(0)
    driven.answer_commit()
    request = driven.commit_asked({0: 1, 1: 1, 9: 1}, tenure=2)
    assert committed(driven.last(do.Commit)) == {1: 1}
    driven.answer_commit()
    assert driven.answers(request)[0].errors == {
        one(0): pb.ILLEGAL_GENERATION,
        one(1): pb.NONE,
        one(9): pb.ILLEGAL_GENERATION,
    }


def test_what_is_refused_for_the_moment_is_sent_again_and_never_behind_what_was_asked_for_later() -> None:
    driven = Driven().begin(0, commits_itself=True)
    first = driven.commit_asked({0: 3})
    driven.answer_commit(pb.NOT_COORDINATOR)
    second = driven.commit_asked({0: 5})
    assert driven.answers(first) == driven.answers(second) == []
    driven.pass_time(INTERVAL_MS)
    driven.answer_commit()
    driven.pass_time(INTERVAL_MS)
    assert [committed(commit) for commit in driven.all(do.Commit)] == [{0: 3}, {0: 5}]
    answers = [answer.request for answer in driven.all(do.Answer)]
    assert answers == [first, second]


def test_an_error_that_does_not_pass_is_the_answer() -> None:
    driven = Driven().begin(0, commits_itself=True)
    request = driven.commit_asked({0: 5}, metadata="long")
    driven.answer_commit(pb.OFFSET_METADATA_TOO_LARGE)
    assert driven.answers(request)[0].errors == {one(): pb.OFFSET_METADATA_TOO_LARGE}
    assert "Commit" not in names(driven.pass_time(INTERVAL_MS))


@pytest.mark.parametrize("error", [pb.NOT_COORDINATOR, pb.REQUEST_TIMED_OUT], ids=pb.ErrorCode.Name)
def test_while_the_coordinator_moves_or_its_store_is_slow_the_commit_is_tried_again(
    error: pb.ErrorCode.ValueType,
) -> None:
    driven = Driven().begin(0, commits_itself=True)
    request = driven.commit_asked({0: 5})
    for _ in range(3):
        driven.answer_commit(error)
        assert driven.answers(request) == []
        assert "Commit" in names(driven.pass_time(1_000))
    driven.answer_commit()
    assert len(driven.answers(request)) == 1


def test_commits_that_wait_go_in_one_and_each_is_answered() -> None:
    driven = Driven().begin(0, commits_itself=True)
    requests = [driven.commit_asked({0: offset}) for offset in (1, 2, 3)]
    driven.answer_commit()
    assert committed(driven.last(do.Commit)) == {0: 3}
    driven.answer_commit()
    assert [len(driven.answers(request)) for request in requests] == [1, 1, 1]


def test_a_commit_of_what_is_lost_meanwhile_is_answered_too() -> None:
    driven = Driven().begin(0, 1, commits_itself=True)
    under_way, waiting = driven.commit_asked({0: 1}), driven.commit_asked({0: 2})
    driven.lose(0)
    assert driven.answers(waiting)[0].errors == {one(): pb.ILLEGAL_GENERATION}
    driven.answer_commit(pb.NOT_COORDINATOR)
    assert driven.answers(under_way)[0].errors == {one(): pb.ILLEGAL_GENERATION}


def test_an_offset_committed_while_the_beginning_is_looked_for_is_the_beginning() -> None:
    driven = Driven()
    driven.attach(commits_itself=True)
    driven.assign(0)
    driven.commit_asked({0: 42})
    driven.answer_commit()
    assert driven.fetch_of().offset == 42
    driven.find(7)
    assert len(driven.all(do.Fetch)) == 1


def test_questions_are_bounded() -> None:
    driven = Driven().begin(0, commits_itself=True)
    for _ in range(PENDING_REQUESTS_MAX):
        driven.commit_asked({0: 1})
    last = driven.commit_asked({0: 1})
    assert driven.answers(last)[0].error == pb.COORDINATOR_LOAD_IN_PROGRESS


def test_a_revocation_waits_for_commits_that_were_asked_for() -> None:
    driven = Driven().begin(0, commits_itself=True)
    driven.revoke(0)
    request = driven.commit_asked({0: 3})
    assert driven.acknowledge(driven.last(do.AssignmentEvent).event_id) == []
    assert names(driven.answer_commit()) == ["Answer", "ReleasePartitions"]
    assert driven.answers(request)[0].errors == {one(): pb.NONE}


def test_when_a_partition_is_given_up_nothing_is_committed_for_it_any_more() -> None:
    driven = Driven().begin(0, commits_itself=True)
    driven.revoke(0)
    driven.acknowledge()
    assert driven.answers(driven.commit_asked({0: 3}))[0].errors == {one(): pb.ILLEGAL_GENERATION}


# ---------------------------------------------------------------------------------------------- seeks


def test_a_seek_makes_void_what_is_in_hand_and_reads_on_there() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    old = driven.last(do.Deliver).delivery_epoch
    request = driven.seek(40, 0)
    (answer,) = driven.answers(request)
    assert answer.errors == {one(): pb.NONE}
    assert answer.delivery_epoch >= old
    assert driven.judge(0, 4, delivery_epoch=old) == []
    assert committed(driven.last(do.Commit)) == {0: 40}
    driven.answer_commit()
    assert driven.fetch_of().offset == 40
    driven.credit(5)
    assert delivered(driven.read(3)) == [(0, 40, 43)]
    assert driven.last(do.Deliver).delivery_epoch > answer.delivery_epoch


def test_a_seek_back_is_committed_though_it_is_lower() -> None:
    driven = Driven().begin(0, offset=100)
    driven.seek(10, 0)
    assert committed(driven.last(do.Commit)) == {0: 10}


def test_a_seek_to_an_end_is_answered_when_it_is_known_where_that_is() -> None:
    driven = Driven().begin(0)
    to_start, to_end = driven.seek(-2, 0), driven.seek(-1, 0)
    assert len(driven.answers(to_start)) == 1, "the later one stands for both"
    assert driven.answers(to_end) == []
    driven.list_offsets(3, 99)
    assert driven.answers(to_end)[0].errors == {one(): pb.NONE}
    assert driven.fetch_of().offset == 99


def test_a_seek_in_what_is_not_there_or_nowhere_is_refused() -> None:
    driven = Driven().begin(0)
    assert driven.answers(driven.seek(5, 9))[0].errors == {one(9): pb.UNKNOWN_TOPIC_OR_PARTITION}
    assert driven.answers(driven.seek(-3, 0))[0].errors == {one(0): pb.OFFSET_OUT_OF_RANGE}


def test_a_seek_in_what_is_going_says_where_the_next_owner_begins() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.revoke(0)
    assert driven.answers(driven.seek(7, 0))[0].errors == {one(): pb.NONE}
    assert driven.all(do.ReleasePartitions) == [], "the application is told of it still"
    driven.acknowledge()
    assert committed(driven.last(do.Commit)) == {0: 7}
    assert driven.answer_commit() == [do.ReleasePartitions(1)]


def test_where_the_log_ends_is_not_looked_up_for_what_is_going() -> None:
    driven = Driven().begin(0)
    driven.revoke(0)
    assert driven.answers(driven.seek(-1, 0))[0].errors == {one(): pb.ILLEGAL_GENERATION}


def test_what_was_given_up_is_not_sought_any_more() -> None:
    driven = Driven().begin(0)
    driven.revoke(0)
    driven.acknowledge()
    driven.answer_commit()
    assert driven.all(do.ReleasePartitions) == [do.ReleasePartitions(1)]
    assert driven.answers(driven.seek(7, 0))[0].errors == {one(): pb.ILLEGAL_GENERATION}


def test_a_seek_that_waits_is_answered_when_the_partition_goes() -> None:
    driven = Driven().begin(0, 1)
    request = driven.seek(-1, 0, 1)
    driven.lose(0)
    driven.revoke(1)
    assert driven.answers(request)[0].errors == dict.fromkeys(some(0, 1), pb.ILLEGAL_GENERATION)


# ---------------------------------------------------------------------------------------------- resets


def test_a_reset_is_committed_first_and_then_read_on_from() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.step(on.ResetOffsets(77, 1, {one(): 500}))
    assert committed(driven.last(do.Commit)) == {0: 500}
    assert driven.answers(77) == []
    driven.answer_commit()
    assert driven.answers(77)[0].errors == {one(): pb.NONE}
    assert driven.fetch_of().offset == 500


def test_a_reset_that_is_not_committed_changes_nothing() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.step(on.ResetOffsets(77, 1, {one(): 500}))
    driven.answer_commit(pb.GROUP_AUTHORIZATION_FAILED)
    assert driven.answers(77)[0].errors == {one(): pb.GROUP_AUTHORIZATION_FAILED}
    assert driven.fetch_of().offset == 10


def test_a_reset_planned_for_another_generation_is_refused() -> None:
    driven = Driven().begin(0)
    driven.step(on.ResetOffsets(77, 9, {one(): 500}))
    assert driven.answers(77)[0].error == pb.ILLEGAL_GENERATION


def test_a_reset_of_what_is_not_held_or_makes_no_sense_is_refused_for_that() -> None:
    driven = Driven(rules=Rules()).begin(0)
    driven.step(on.ResetOffsets(77, 1, {one(0): -5, one(9): 3}))
    assert driven.answers(77)[0].errors == {
        one(0): pb.OFFSET_OUT_OF_RANGE,
        one(9): pb.ILLEGAL_GENERATION,
    }


def test_offsets_committed_while_nobody_knows_where_to_begin_count_in_their_order() -> None:
    driven = Driven()
    driven.attach(commits_itself=True, credit=10)
    driven.assign(0)
    driven.acknowledge()
    driven.commit_asked({0: 15})
    driven.commit_asked({0: 18})
    driven.answer_commit()
    driven.answer_commit()
    assert driven.delivery.positions == {one(): 18}


def test_what_is_found_while_the_owner_commits_is_older() -> None:
    driven = Driven()
    driven.attach(commits_itself=True)
    driven.assign(0)
    driven.commit_asked({0: 15})
    driven.find(7)
    assert driven.all(do.Fetch) == []
    driven.answer_commit()
    assert driven.fetch_of().offset == 15


def test_a_reset_of_what_is_let_go_is_its_last_commit_and_older_wishes_are_refused() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 4)
    driven.pass_time(INTERVAL_MS)
    driven.step(on.ResetOffsets(77, 1, {one(): 500}))
    older = driven.commit_asked({0: 7})
    driven.revoke(0)
    driven.answer_commit()
    assert committed(driven.last(do.Commit)) == {0: 500}
    driven.answer_commit()
    assert driven.answers(older)[0].errors == {one(): pb.ILLEGAL_GENERATION}
    assert driven.answers(77)[0].errors == {one(): pb.NONE}
    assert names(driven.acknowledge()) == ["ReleasePartitions"]
    assert committed(driven.last(do.Commit)) == {0: 500}


def test_a_commit_of_another_tenure_that_is_under_way_holds_up_nothing_for_good() -> None:
    driven = Driven().begin(0)
    driven.read(1)
    driven.judge(0)
    driven.pass_time(INTERVAL_MS)
    driven.lose(0)
    driven.assign(0)
    driven.acknowledge()
    driven.find(0)
    assert names(driven.answer_commit(pb.ILLEGAL_GENERATION)) == ["Commit"]
    assert offset_of(driven.last(do.Commit)).tenure == 2


def test_a_seek_to_where_it_stands_waits_for_no_commit_that_there_is_already() -> None:
    driven = Driven().begin(0)
    driven.read(1)
    driven.judge(0)
    driven.pass_time(INTERVAL_MS)
    driven.seek(1, 0)
    request = driven.commit_asked()
    driven.answer_commit()
    assert len(driven.answers(request)) == 1
    assert delivered(driven.read(3)) == [(0, 1, 4)]


def test_an_answer_says_what_is_wrong_and_what_to_do() -> None:
    driven = Driven().begin(0)
    (answer,) = driven.answers(driven.seek(5, 8, 9))
    assert answer.message == (
        "orders-8 and 1 more: UNKNOWN_TOPIC_OR_PARTITION, it does not exist or is not assigned to this member: check the assignment"
    )
    (answer,) = driven.answers(driven.seek(5, 0))
    assert answer.message == ""
