"""Orders of Fleet: drains, suspensions, other settings, rates; and applications that fetch records themselves."""

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.commit_points import State, parse_commit_metadata
from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.delivery.driven import (
    INTERVAL_MS,
    PROCESSING_MS,
    Driven,
    batch,
    committed,
    delivered,
    names,
    offset_of,
    one,
    with_settings,
)
from tests.sidecar.core.ledger.steps import completed_ahead_of

# ---------------------------------------------------------------------------------------------- drains


def test_a_drain_stops_dispatch_commits_what_is_done_and_reports_its_end() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    driven.credit(5)
    driven.step(on.Drain(driven.now_ms + 30_000))
    assert delivered(driven.credit(50)) == []
    driven.judge(0, 9)
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, parse_commit_metadata(offset.metadata).state) == (10, State.CLEAN)
    assert driven.all(do.Drained) == []
    assert driven.answer_commit() == [do.Drained(0)]


def test_when_time_is_up_it_says_how_many_are_left() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.step(on.Drain(driven.now_ms + 30_000))
    assert driven.pass_time(29_999) == []
    assert driven.pass_time(1) == [do.Drained(10)]


@pytest.mark.parametrize("draining_first", [True, False])
def test_a_drain_does_not_wait_for_a_dead_letter_that_cannot_be_written(draining_first: bool) -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(2)
    driven.judge(0, 0)
    driven.judge(1, verdict=Verdict.DEAD_LETTER)
    failure = on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter, "no such topic")
    if not draining_first:
        driven.step(failure)
    driven.step(on.Drain(driven.now_ms + 30_000))
    if draining_first:
        assert "Drained" not in names(driven.answer_commit())
        driven.step(failure)
    assert driven.answer_commit()[-1] == do.Drained(0)
    assert committed(driven.last(do.Commit)) == {0: 1}


def test_two_drains_are_answered_twice() -> None:
    driven = Driven()
    assert driven.step(on.Drain(driven.now_ms + 30_000)) == [do.Drained(0)]
    assert driven.step(on.Drain(driven.now_ms + 60_000)) == [do.Drained(0)]


def test_a_drain_that_ends_before_it_is_done_says_what_is_left() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.step(on.Drain(driven.now_ms + 30_000))
    assert do.Drained(10) in driven.step(on.Undrain())
    assert do.Drained(10) not in driven.step(on.Undrain())


def test_it_goes_on_after_a_drain_under_an_open_mark() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    driven.step(on.Drain(driven.now_ms + 30_000))
    driven.judge(0, 4)
    driven.answer_commit()
    driven.credit(50)
    assert names(driven.step(on.Undrain()))[-1] == "Commit"
    assert parse_commit_metadata(offset_of(driven.last(do.Commit)).metadata).state is State.OPEN
    assert delivered(driven.answer_commit()) == [(0, 5, 10)]


def test_a_drain_says_what_is_done_behind_a_gap() -> None:
    driven = side_by_side(4)
    driven.step(on.Drain(driven.now_ms + 30_000))
    driven.judge(2, 3)
    driven.judge(0, 0, Verdict.RETRY)
    driven.judge(1, 1, Verdict.RETRY)
    driven.answer_commit()
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, completed_ahead_of(offset.metadata)) == (0, {2, 3})


def test_a_coordinator_that_refuses_long_metadata_gets_less() -> None:
    driven = side_by_side(4)
    driven.judge(2, 3)
    driven.step(on.Drain(driven.now_ms + 30_000))
    driven.judge(0, 0, Verdict.RETRY)
    driven.judge(1, 1, Verdict.RETRY)
    driven.answer_commit()
    assert completed_ahead_of(offset_of(driven.last(do.Commit)).metadata) == {2, 3}
    driven.answer_commit(pb.OFFSET_METADATA_TOO_LARGE)
    driven.pass_time(1_000)
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, offset.metadata) == (0, "rota:1:1:0:clean")
    assert driven.answer_commit() == [do.Drained(0)]
    assert driven.all(do.Problem) == []


def side_by_side(records: int) -> Driven:
    """Records are in flight without an order."""
    driven = Driven(rules=Rules(ordering=Ordering.UNORDERED)).begin(0)
    driven.read(records)
    return driven


def test_what_is_revoked_during_a_drain_is_given_up_as_ever() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.step(on.Drain(driven.now_ms + 30_000))
    driven.revoke(0)
    driven.judge(0, 9)
    driven.acknowledge()
    assert "ReleasePartitions" in names(driven.answer_commit())


def drained(*, leaves_group: bool = True) -> Driven:
    """Five records are done and committed, and the application is still there."""
    driven = Driven().begin(0)
    driven.read(5)
    driven.step(on.Drain(driven.now_ms + 30_000, leaves_group=leaves_group))
    driven.judge(0, 4)
    assert driven.answer_commit() == [do.Drained(0)]
    return driven


def out_of_group(driven: Driven) -> Driven:
    """The application has said goodbye, and the member has left."""
    assert names(driven.detach(clean=True)) == ["Leave"]
    driven.revoke(0)
    driven.revoked(0)
    assert driven.step(on.LeftGroup()) == []
    return driven


def test_who_is_drained_and_has_said_goodbye_leaves_the_group_at_once() -> None:
    driven = drained()
    assert names(driven.detach(clean=True)) == ["Leave"]
    assert driven.delivery.readiness == driven.last(do.Leave).reason
    assert names(driven.revoke(0))[-1] == "ReleasePartitions"


def test_a_goodbye_before_all_is_committed_waits_for_the_commit() -> None:
    driven = Driven().begin(0)
    driven.read(5)
    driven.step(on.Drain(driven.now_ms + 30_000, leaves_group=True))
    driven.judge(0, 4)
    assert "Leave" not in names(driven.detach(clean=True))
    assert names(driven.answer_commit()) == ["Drained", "Leave"]


def test_a_static_member_does_not_leave_and_neither_does_one_whose_application_has_crashed() -> None:
    assert "Leave" not in names(drained(leaves_group=False).detach(clean=True))
    assert "Leave" not in names(drained().detach(clean=False))


def test_it_rejoins_when_the_drain_has_expired_and_not_before() -> None:
    driven = out_of_group(drained())
    assert "Rejoin" not in names(driven.attach())
    assert names(driven.step(on.Undrain())) == ["Rejoin"]
    assert driven.delivery.readiness == ""


def test_it_rejoins_without_an_application_as_it_had_joined() -> None:
    assert names(out_of_group(drained()).step(on.Undrain())) == ["Rejoin"]


def test_a_drain_that_expires_while_the_member_leaves_is_followed_by_the_rejoin() -> None:
    driven = drained()
    driven.detach(clean=True)
    assert "Rejoin" not in names(driven.step(on.Undrain()))
    driven.revoke(0)
    driven.revoked(0)
    assert names(driven.step(on.LeftGroup())) == ["Rejoin"]


def test_the_drain_of_the_end_of_the_process_leaves_no_second_time() -> None:
    driven = out_of_group(drained())
    assert driven.step(on.Drain(driven.now_ms + 30_000)) == [do.Drained(0)]


# ---------------------------------------------------------------------------------------------- settings


def configure(driven: Driven, **settings: object) -> list[do.Action]:
    return driven.step(on.Configure(with_settings(driven.delivery.config, **settings)))


def test_while_suspended_it_keeps_everything_and_reads_nothing() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    configure(driven, suspended=True)
    assert delivered(driven.credit(50)) == []
    assert names(driven.read(10)) == []
    driven.judge(0, 4)
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 5}
    assert driven.delivery.held
    actions = configure(driven, suspended=False)
    assert delivered(actions) == [(0, 5, 10), (0, 10, 20)]
    assert "Fetch" in names(actions)


def test_other_rules_hold_from_when_nothing_is_in_hand_under_the_old_ones() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    configure(driven, rules=Rules(takes_many=False))
    assert delivered(driven.credit(50)) == []
    driven.judge(0, 4)
    driven.answer_commit()
    assert driven.fetch_of().offset == 5
    assert delivered(driven.read(5)) == [(0, 5, 6)]


def test_a_shorter_processing_timeout_holds_at_once() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.pass_time(PROCESSING_MS // 2)
    assert "Leave" in names(configure(driven, processing_timeout_ms=1_000))


def test_no_more_records_a_second_than_are_allowed() -> None:
    driven = Driven(rate_max=100).begin(0, credit=100_000)
    driven.read(1_000)
    driven.pass_time(10_000)
    records = sum(end - first for _, first, end in delivered(driven.done))
    assert 990 <= records <= 1_000


def test_a_rate_of_one_is_one_each_second() -> None:
    driven = Driven(rate_max=1).begin(0)
    driven.read(100)
    driven.pass_time(20_000)
    records = sum(end - first for _, first, end in delivered(driven.done))
    assert 19 <= records <= 21


def test_topics_of_a_higher_priority_go_first() -> None:
    driven = Driven(priorities={"urgent": 5})
    driven.attach()
    driven.assign(0)
    driven.acknowledge()
    driven.find(0)
    driven.answer_commit()
    driven.assign(0, topic="urgent")
    driven.acknowledge()
    driven.find(0)
    driven.answer_commit()
    driven.read(10)
    urgent = driven.fetch_of(0, "urgent")
    driven.step(on.Read(urgent.delivery_epoch, [batch(0, 10)], 10, on.Bounds(0, 10)))
    dispatch_position = [
        deliver.partition.topic for deliver in driven.credit(15) if isinstance(deliver, do.Deliver)
    ]
    assert dispatch_position == ["urgent", "orders"]


def test_the_room_for_reading_ahead_is_shared() -> None:
    driven = Driven(ahead_bytes_max=1 << 20, ahead_bytes_total_max=1 << 20).begin(*range(4))
    assert driven.fetch_of(0).bytes_max == 1 << 18


# ---------------------------------------------------------------------------------------------- other applications


def reads_itself() -> Driven:
    driven = Driven().begin(0, offset=5, reads_itself=True)
    assert driven.all(do.Fetch) == []
    return driven


def report(driven: Driven, position: int, tenure: int = 1, timestamp_ms: int | None = 99) -> list[do.Action]:
    return driven.step(on.Reported([on.ReportedPosition(one(), tenure, position, timestamp_ms)]))


def test_for_who_reads_by_itself_nothing_is_read_and_what_it_reports_is_committed() -> None:
    driven = reads_itself()
    report(driven, 50)
    assert driven.delivery.positions == {one(): 50}
    assert driven.delivery.partitions[one()].reported_ms == 99
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 50}
    assert driven.all(do.Fetch) == []


def test_the_position_is_that_of_the_first_record_without_a_verdict_while_records_are_on_their_way() -> None:
    driven = Driven().begin(0, offset=3)
    assert len(delivered(driven.read(2))) > 0
    assert driven.delivery.positions == {one(): 3}
    driven.judge(3, 3)
    assert driven.delivery.positions == {one(): 4}
    driven.judge(4, 4)
    assert driven.delivery.positions == {one(): 5}


def test_a_report_of_another_tenure_or_of_less_changes_nothing() -> None:
    driven = reads_itself()
    report(driven, 50)
    report(driven, 20)
    report(driven, 90, tenure=7)
    assert driven.delivery.positions == {one(): 50}


def test_a_report_that_comes_before_the_beginning_is_known_counts() -> None:
    driven = Driven()
    driven.attach(reads_itself=True)
    driven.assign(0)
    report(driven, 50)
    driven.find(5)
    assert driven.delivery.positions == {one(): 50}


def test_what_it_reports_before_it_lets_go_is_committed() -> None:
    driven = reads_itself()
    driven.revoke(0)
    report(driven, 70)
    driven.acknowledge()
    assert committed(driven.last(do.Commit)) == {0: 70}
    assert names(driven.answer_commit()) == ["ReleasePartitions"]


def test_who_reads_by_itself_goes_back_by_a_seek() -> None:
    driven = reads_itself()
    report(driven, 50)
    driven.seek(20, 0)
    assert driven.delivery.positions == {one(): 20}
    report(driven, 30)
    assert driven.delivery.positions == {one(): 30}
    driven.pass_time(INTERVAL_MS)
    driven.answer_commit()
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 30}


def test_the_time_of_a_report_is_that_of_no_later_record() -> None:
    driven = reads_itself()
    report(driven, 50)
    driven.commit_asked({0: 60})
    assert driven.delivery.positions == {one(): 60}
    assert driven.delivery.partitions[one()].reported_ms is None


def report_time(driven: Driven, position: int, timestamp_ms: int = 99, tenure: int = 1) -> list[do.Action]:
    return driven.step(
        on.Reported([on.ReportedPosition(one(), tenure, position, timestamp_ms, timestamp_only=True)])
    )


def test_a_timestamp_alone_moves_no_position_and_counts_while_the_position_is_that_of_its_record() -> None:
    driven = Driven().begin(0, offset=5, reads_itself=True, commits_itself=True)
    assert report_time(driven, 60) == []
    assert (driven.delivery.positions, driven.delivery.partitions[one()].reported_ms) == ({one(): 5}, None)
    driven.commit_asked({0: 60})
    assert (driven.delivery.positions, driven.delivery.partitions[one()].reported_ms) == ({one(): 60}, 99)
    driven.commit_asked({0: 61})
    assert driven.delivery.partitions[one()].reported_ms is None


def test_a_timestamp_that_comes_after_a_seek_does_not_undo_it() -> None:
    driven = Driven().begin(0, offset=5, reads_itself=True, commits_itself=True)
    driven.commit_asked({0: 50})
    driven.answer_commit()
    driven.seek(20, 0)
    report_time(driven, 50)
    assert (driven.delivery.positions, driven.delivery.partitions[one()].reported_ms) == ({one(): 20}, None)
    report_time(driven, 20, tenure=7)
    assert driven.delivery.partitions[one()].reported_ms is None
    report_time(driven, 20)
    assert driven.delivery.partitions[one()].reported_ms == 99


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_reported_and_not_committed_is_forgotten_with_who_commits_itself(clean: bool) -> None:
    driven = Driven().begin(0, offset=5, reads_itself=True, commits_itself=True)
    report(driven, 50)
    driven.detach(clean=clean)
    driven.attach(reads_itself=True, commits_itself=True)
    driven.find(7)
    assert driven.delivery.positions == {one(): 7}
    assert driven.delivery.partitions[one()].reported_ms is None
    report(driven, 20)
    assert driven.delivery.positions == {one(): 20}
    assert driven.all(do.Commit) == []


def test_who_does_not_read_by_itself_has_nothing_to_report() -> None:
    driven = Driven().begin(0)
    assert report(driven, 50) == []
    assert driven.delivery.positions == {one(): 0}


def test_what_is_picked_by_hand_is_found_and_committed_outside_of_the_group() -> None:
    driven = Driven()
    driven.attach(credit=10)
    driven.assign(0, is_manual=True)
    driven.acknowledge()
    assert driven.last(do.FetchCommitted).is_manual
    driven.find(0)
    assert driven.last(do.Commit).is_manual
    driven.answer_commit()
    driven.read(5)
    driven.judge(0, 4)
    driven.pass_time(INTERVAL_MS)
    assert driven.last(do.Commit).is_manual
    assert committed(driven.last(do.Commit)) == {0: 5}


def test_a_group_that_refuses_commits_by_hand_is_asked_again() -> None:
    driven = Driven()
    driven.attach(credit=10)
    driven.assign(0, is_manual=True)
    driven.acknowledge()
    driven.find(0)
    assert "Problem" in names(driven.answer_commit(pb.UNKNOWN_MEMBER_ID))
    assert "Commit" in names(driven.pass_time(1_000))


@pytest.mark.parametrize("reads", [True, False])
def test_everything_there_is_to_see(reads: bool) -> None:
    driven = Driven().begin(0, offset=5, reads_itself=reads)
    driven.assign(1)
    view = driven.delivery.partitions
    assert (view[one(0)].position, view[one(0)].committed) == (5, 5)
    assert (view[one(1)].position, view[one(1)].committed, view[one(1)].stopped) == (None, None, "")
    if not reads:
        driven.read(10)
        view = driven.delivery.partitions
        assert (view[one(0)].in_flight, view[one(0)].position, view[one(0)].bounds) == (
            10,
            15,
            on.Bounds(0, 15),
        )
        assert view[one(0)].first_unresolved is not None


def test_who_cannot_go_first_holds_up_nobody() -> None:
    driven = Driven(priorities={"urgent": 5})
    driven.attach(credit=10)
    driven.assign(0, topic="urgent")
    driven.acknowledge()
    driven.find(0)
    driven.answer_commit()
    driven.assign(0)
    driven.acknowledge()
    driven.find(0)
    driven.answer_commit()
    urgent, orders = driven.fetch_of(0, "urgent").delivery_epoch, driven.fetch_of().delivery_epoch
    driven.step(on.Read(urgent, [batch(0, 10)], 10, on.Bounds(0, 10)))
    retry = on.Judgement(urgent, one(0, "urgent"), 0, 0, Verdict.RETRY, 60_000)
    driven.step(on.Judged([retry]))
    driven.step(on.Read(orders, [batch(0, 10)], 10, on.Bounds(0, 10)))
    assert delivered(driven.credit(100)) == [(0, 0, 10)]


def test_what_went_out_before_there_was_a_rate_does_not_count() -> None:
    driven = Driven().begin(0, credit=100_000)
    driven.read(5_000)
    configure(driven, rate_max=100)
    assert delivered(driven.read(50)) == [(0, 5_000, 5_010)]
