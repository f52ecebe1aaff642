"""Applications come, crash, take as much as they want, share it among partitions, and pause."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.commit_points import State, parse_commit_metadata
from rota_sidecar.core.ledger.rules import Rules, Verdict
from rota_sidecar.core.member.partitions import Tenure
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

UNORDERED = Rules(ordering=Ordering.UNORDERED)


# ---------------------------------------------------------------------------------------------- losing


def test_of_what_is_lost_nothing_is_delivered_or_committed_and_late_verdicts_change_nothing() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    assert names(driven.lose(0, reason="it was expelled")) == ["StopFetching", "LOST"]
    assert driven.last(do.AssignmentEvent).reason == "it was expelled"
    assert driven.judge(0, 4) == []
    assert driven.credit(100) == []
    assert "Commit" not in names(driven.pass_time(INTERVAL_MS * 2))


def test_what_was_under_way_for_what_is_lost_changes_nothing_when_it_comes() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 9)
    driven.pass_time(INTERVAL_MS)
    driven.lose(0)
    assert driven.read(10) == []
    assert driven.answer_commit() == []


def test_a_partition_that_comes_back_begins_anew_in_another_ledger() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    first = driven.last(do.Deliver).delivery_epoch
    driven.lose(0)
    driven.assign(0)
    driven.acknowledge()
    driven.find(3)
    driven.answer_commit()
    driven.read(5)
    assert driven.last(do.Deliver).delivery_epoch > first
    assert driven.judge(0, 9, delivery_epoch=first) == []


def test_a_revocation_that_ends_in_a_loss_is_not_released() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.revoke(0)
    assert names(driven.lose(0)) == ["LOST"]
    assert names(driven.pass_time(100_000)) == []


# ---------------------------------------------------------------------------------------------- coming and going


def test_partitions_assigned_without_an_application_are_prefetched_and_announced_later() -> None:
    driven = Driven()
    assert names(driven.assign(0)) == ["FetchCommitted"]
    assert names(driven.find(5)) == ["Fetch"]
    driven.read(10)
    assert names(driven.attach(credit=4)) == ["ASSIGNED", "Commit"]
    driven.answer_commit()
    assert delivered(driven.acknowledge()) == [(0, 5, 9)]


def test_an_application_is_notified_of_all_owned_partitions_by_tenure() -> None:
    driven = Driven()
    driven.assign(0, 1)
    driven.assign(2)
    driven.attach()
    events = driven.all(do.AssignmentEvent)
    assert [(event.partitions, event.tenure and event.tenure.number) for event in events] == [
        (some(0, 1), 1),
        (some(2), 2),
    ]


def test_an_empty_assignment_is_announced_too_for_its_generation() -> None:
    driven = Driven().begin(0)
    assert names(driven.assign()) == ["ASSIGNED"]
    assert driven.last(do.AssignmentEvent).tenure == Tenure(2, "me", 2, 7)


def test_what_a_crashed_application_held_comes_again_and_counts_as_delivered() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 3)
    assert driven.delivery.held
    driven.detach(clean=False)
    driven.pass_time(INTERVAL_MS)
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, parse_commit_metadata(offset.metadata).crashes) == (4, 1)
    assert driven.delivery.held, "its container may be back in a moment"


def test_one_that_went_in_good_order_is_charged_with_nothing() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 3)
    driven.detach(clean=True)
    driven.pass_time(INTERVAL_MS)
    commit_metadata = parse_commit_metadata(offset_of(driven.last(do.Commit)).metadata)
    assert (commit_metadata.crashes, commit_metadata.state) == (0, State.CLEAN)
    driven.answer_commit()
    driven.attach(credit=100)
    driven.acknowledge()
    driven.answer_commit()
    assert delivered(driven.done)[-1] == (0, 4, 10)
    assert driven.last(do.Deliver).dispatch.deliveries == 1


def test_another_application_is_not_notified_of_what_the_former_one_released() -> None:
    driven = Driven().begin(0, 1)
    driven.revoke(0)
    driven.detach()
    driven.attach()
    assert driven.last(do.AssignmentEvent).partitions == some(1)
    driven.answer_commit()
    assert names(driven.revoked(0)) == []


def test_an_application_that_takes_one_at_a_time_gets_one_at_a_time() -> None:
    driven = Driven().begin(0, takes_many=False)
    assert delivered(driven.read(3)) == [(0, 0, 1)]
    assert delivered(driven.judge(0)) == [(0, 1, 2)]


def test_another_kind_of_application_gets_another_ledger_and_loses_nothing() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(5)
    driven.read(10)
    actions = driven.attach(takes_many=False, credit=10)
    assert names(actions)[:2] == ["ASSIGNED", "StopFetching"]
    driven.acknowledge()
    driven.answer_commit()
    assert driven.fetch_of().offset == 5
    assert delivered(driven.read(10)) == [(0, 5, 6)]


def test_a_verdict_under_the_epoch_of_another_partition_changes_nothing() -> None:
    """As one on a record of the process before: each process numbers its epochs from 1."""
    driven = Driven().begin(0, 1)
    driven.read(3)
    delivered = driven.last(do.Deliver)
    assert driven.judge(0, number=1, delivery_epoch=delivered.delivery_epoch) == []
    assert driven.judge(0, number=0) != []


def test_wrong_verdicts_are_refused_and_say_why() -> None:
    driven = Driven().begin(0, credit=5)
    driven.read(10)
    (refusal,) = driven.judge(5)
    assert isinstance(refusal, do.Refuse)
    assert refusal.partition == one()
    assert "5" in refusal.message


# ---------------------------------------------------------------------------------------------- credit and lanes


def test_no_more_is_handed_out_than_there_is_credit_for() -> None:
    driven = Driven().begin(0, credit=0)
    driven.read(10)
    assert delivered(driven.credit(3)) == [(0, 0, 3)]
    driven.judge(0, 2)
    assert delivered(driven.done) == [(0, 0, 3)], "a verdict gives nothing back by itself"
    assert delivered(driven.credit(2)) == [(0, 3, 5)]


def test_no_more_lanes_are_busy_than_are_allowed() -> None:
    driven = Driven(concurrency=2, rules=UNORDERED).begin(0, 1)
    driven.read(10)
    driven.read(10, 1)
    assert sum(end - first for _, first, end in delivered(driven.done)) == 2
    assert len(delivered(driven.judge(0))) == 1


def test_partitions_in_order_are_a_lane_each() -> None:
    driven = Driven(concurrency=1).begin(0, 1, credit=100)
    driven.read(10)
    assert delivered(driven.read(10, 0)) == [(0, 10, 20)], "a busy lane takes more"
    assert delivered(driven.read(10, 1)) == []
    assert delivered(driven.judge(0, 19)) == [(1, 0, 10)]


def test_a_partition_that_has_much_keeps_no_lane_for_itself() -> None:
    driven = Driven(concurrency=1).begin(0, 1, credit=100)
    driven.read(10)
    driven.read(10, 1)
    assert delivered(driven.read(10, 0)) == [], "another one waits for the lane"
    assert delivered(driven.judge(0, 9)) == [(1, 0, 10)]
    assert delivered(driven.judge(0, 9, number=1)) == [(0, 10, 20)]


def test_each_partition_has_its_turn() -> None:
    driven = Driven().begin(0, 1, 2, credit=0)
    for number in (0, 1, 2):
        driven.read(10, number)
    turns = [delivered(driven.credit(4))[0][0] for _ in range(6)]
    assert turns == [0, 1, 2, 0, 1, 2]


def test_with_much_credit_nobody_waits_behind_a_partition_that_has_much() -> None:
    driven = Driven().begin(0, 1, credit=0)
    driven.read(5_000, 0)
    driven.read(100, 1)
    dispatch_position = delivered(driven.credit(3_000))
    assert [number for number, _, _ in dispatch_position][:2] == [0, 1]
    assert sum(end - first for _, first, end in dispatch_position) == 3_000


def test_no_more_of_a_partition_is_in_hand_than_its_bound() -> None:
    driven = Driven(rules=Rules(in_flight_max=7)).begin(0)
    driven.read(20)
    assert delivered(driven.done) == [(0, 0, 7)]
    assert delivered(driven.judge(0, 1)) == [(0, 7, 9)]


def test_what_was_done_and_is_not_committed_is_bounded_too() -> None:
    driven = Driven(rules=Rules(in_flight_max=5)).begin(0)
    driven.read(20)
    assert "Commit" in names(driven.judge(0, 4))
    assert committed(driven.last(do.Commit)) == {0: 5}


def test_records_of_a_key_follow_each_other_and_others_do_not_wait() -> None:
    driven = Driven(rules=Rules(ordering=Ordering.KEY)).begin(0)
    assert delivered(driven.read(3, keys=[b"a", b"a", b"b"])) == [(0, 0, 1), (0, 2, 3)]
    assert delivered(driven.judge(0)) == [(0, 1, 2)]


# ---------------------------------------------------------------------------------------------- pausing


def test_nothing_of_a_paused_partition_is_handed_out_until_it_goes_on() -> None:
    driven = Driven().begin(0, 1)
    driven.step(on.PauseRequested(1, some(0)))
    assert driven.delivery.paused == some(0)
    assert delivered(driven.read(5, 0)) == []
    assert delivered(driven.read(5, 1)) == [(1, 0, 5)]
    assert delivered(driven.step(on.ResumeRequested(2, some(0)))) == [(0, 0, 5)]
    assert [answer.request for answer in driven.all(do.Answer)] == [1, 2]


def test_a_pause_of_partitions_that_are_not_assigned_is_an_error() -> None:
    driven = Driven().begin(0)
    driven.step(on.PauseRequested(1, some(0, 9)))
    assert driven.answers(1)[0].errors == {one(9): pb.UNKNOWN_TOPIC_OR_PARTITION}
    assert driven.delivery.paused == some(0)


def test_another_application_finds_nothing_paused() -> None:
    driven = Driven().begin(0)
    driven.step(on.PauseRequested(1, some(0)))
    driven.detach()
    driven.attach()
    assert not driven.delivery.paused


def test_a_paused_partition_is_read_ahead_only_as_far_as_there_is_room() -> None:
    driven = Driven(ahead_bytes_max=1_000).begin(0)
    driven.step(on.PauseRequested(1, some(0)))
    assert names(driven.read(40)) == ["Fetch"]
    assert driven.fetch_of().bytes_max == 600
    assert names(driven.read(30)) == [], "more than half is there"
    assert "Fetch" in names(driven.step(on.ResumeRequested(2, some(0))))


def test_a_retry_comes_again_when_its_time_has_come_and_what_was_behind_it_too() -> None:
    driven = Driven().begin(0)
    driven.read(5)
    driven.judge(1, verdict=Verdict.RETRY, retry_after_ms=500)
    assert delivered(driven.pass_time(499)) == []
    again = driven.pass_time(1)
    assert delivered(again) == [(0, 1, 2), (0, 2, 5)]
    assert [deliver.dispatch.deliveries for deliver in again if isinstance(deliver, do.Deliver)] == [2, 1]
