"""Records that fail, dead letters, partitions that stand still, reads and commits that are refused."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import CommitMode, Reset
from rota_sidecar.core.delivery.context import BACKOFF_MAX_MS, BACKOFF_MS
from rota_sidecar.core.ledger.batches import Batch, Ordering
from rota_sidecar.core.ledger.rules import Backoff, Rules, Verdict
from tests.sidecar.core.delivery.driven import (
    INTERVAL_MS,
    Driven,
    committed,
    delivered,
    names,
    one,
)

AT_ONCE = Rules(retries=1, backoff=Backoff.CONSTANT, backoff_ms=100)


def test_a_retry_holds_up_no_other_partition() -> None:
    driven = Driven().begin(0, 1)
    driven.read(5, 0)
    driven.judge(0, verdict=Verdict.RETRY, retry_after_ms=60_000)
    assert delivered(driven.read(5, 1)) == [(1, 0, 5)]
    driven.judge(0, 4, number=1)
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit))[1] == 5


@pytest.mark.parametrize("next_word", [Driven.assign, lambda driven: driven.revoke(1)])
def test_what_was_refused_while_the_member_joined_is_committed_as_soon_as_it_is_in(
    next_word: Callable[[Driven], list[do.Action]],
) -> None:
    """One round after the other refuses it, and the others may wait for just that commit: it must not wait longer each time."""
    driven = Driven(commit_mode=CommitMode.SYNC).begin(0, 1)
    driven.read(5)
    driven.judge(0, 4)
    for _ in range(6):
        driven.answer_commit(pb.REBALANCE_IN_PROGRESS)
        driven.pass_time(10_000)
    assert "Commit" not in names(driven.answer_commit(pb.REBALANCE_IN_PROGRESS))
    assert "Commit" in names(next_word(driven))
    assert committed(driven.last(do.Commit)) == {0: 5}


def test_a_dead_letter_is_written_before_the_commit_passes_it() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(5)
    driven.judge(1, 4)
    (_, dead_letter) = driven.judge(0, verdict=Verdict.DEAD_LETTER)
    assert isinstance(dead_letter, do.WriteDeadLetter)
    assert (dead_letter.topic, dead_letter.partition, dead_letter.batch_slice.first, dead_letter.reason) == (
        "orders.dlq",
        one(),
        0,
        "because",
    )
    assert "Commit" not in names(driven.pass_time(INTERVAL_MS * 2))
    driven.step(on.DeadLetterWritten(dead_letter.dead_letter))
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 5}


def test_a_dead_letter_that_cannot_be_written_is_retried_and_reported_once() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    for _ in range(3):
        failed = driven.step(
            on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter, "no such topic")
        )
        assert "WriteDeadLetter" not in names(failed)
        assert names(driven.pass_time(2_000)).count("WriteDeadLetter") == 1
    problems = [problem for problem in driven.all(do.Problem) if "no such topic" in problem.message]
    assert len(problems) == 1
    assert problems[0].partitions == [one()]


def test_a_revocation_waits_for_the_dead_letters() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    driven.revoke(0)
    assert driven.acknowledge() == []
    assert names(driven.step(on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter))) == ["Commit"]
    assert committed(driven.last(do.Commit)) == {0: 1}


def test_a_revocation_leaves_a_dead_letter_that_cannot_be_written_to_the_next_owner() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    driven.revoke(0)
    driven.acknowledge()
    driven.step(on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter, "no such topic"))
    assert names(driven.answer_commit()) == ["ReleasePartitions"]
    assert committed(driven.last(do.Commit)) == {0: 0}


def test_a_dead_letter_of_a_lost_partition_changes_nothing() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    driven.lose(0)
    assert driven.step(on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter)) == []


def test_after_its_last_retry_a_record_stops_its_partition_and_that_is_said() -> None:
    driven = Driven(rules=AT_ONCE).begin(0, 1)
    driven.read(5)
    driven.judge(0, verdict=Verdict.RETRY)
    driven.pass_time(100)
    assert "Problem" in names(driven.judge(0, verdict=Verdict.RETRY))
    message = driven.last(do.Problem).message
    assert driven.delivery.partitions[one()].stopped == message
    assert "offset 0" in message
    assert delivered(driven.pass_time(100_000)) == []
    assert delivered(driven.read(5, 1)) == [(1, 0, 5)]


def test_a_stopped_partition_goes_on_when_the_application_decides() -> None:
    for decides in ("skip", "commit", "seek"):
        driven = Driven(rules=Rules(retries=0)).begin(0)
        driven.read(5)
        driven.judge(0, verdict=Verdict.RETRY)
        assert driven.delivery.partitions[one()].stopped
        if decides == "skip":
            driven.judge(0, verdict=Verdict.SKIP)
        elif decides == "commit":
            driven.commit_asked({0: 1})
            driven.answer_commit()
        else:
            driven.seek(1, 0)
            driven.answer_commit()
            driven.read(4)
        assert not driven.delivery.partitions[one()].stopped
        assert delivered(driven.done)[-1] == (0, 1, 5), decides


def test_a_dead_letter_topic_that_is_named_later_is_used_for_what_stands_still() -> None:
    driven = Driven(rules=Rules(retries=0)).begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.RETRY)
    driven.step(on.Configure(replace(driven.delivery.config, dead_letter_topic="orders.dlq")))
    driven.answer_commit()
    driven.read(1)
    assert driven.all(do.Problem), "it was said why it stood still"
    while not driven.all(do.WriteDeadLetter):
        driven.judge(0, verdict=Verdict.RETRY)
    assert driven.last(do.WriteDeadLetter).topic == "orders.dlq"


def test_a_suspect_goes_out_when_nothing_else_is_in_hand_and_nothing_with_it() -> None:
    driven = Driven(rules=Rules(ordering=Ordering.UNORDERED, retries=0)).begin(0, 1)
    driven.read(1, 0)
    driven.read(1, 1)
    driven.detach(clean=False)
    driven.pass_time(INTERVAL_MS)
    driven.answer_commit()
    driven.attach(credit=100)
    driven.acknowledge()
    before = len(driven.done)
    for _ in range(10):
        if driven.last(do.Commit) is driven.done[-1]:
            driven.answer_commit()
    first = delivered(driven.done[before:])
    assert len(first) == 1
    number = first[0][0]
    driven.judge(0, number=number)
    driven.answer_commit()
    assert {each[0] for each in delivered(driven.done[before:])} == {0, 1}


# ---------------------------------------------------------------------------------------------- reading


def test_reading_that_fails_is_tried_again_and_said_once() -> None:
    for fetch_error in (
        on.FetchError.UNKNOWN_TOPIC,
        on.FetchError.DENIED,
        on.FetchError.UNREACHABLE,
        on.FetchError.CORRUPT,
    ):
        driven = Driven().begin(0)
        for _ in range(3):
            assert "Fetch" not in names(driven.fail_read(fetch_error))
            assert names(driven.pass_time(1_000)).count("Fetch") == 1
        assert len(driven.all(do.Problem)) == 1
        driven.read(0)
        driven.fail_read(fetch_error)
        assert len(driven.all(do.Problem)) == 2, "it was well in between"


def test_what_cannot_be_read_stops_its_partition_alone_until_it_is_deleted() -> None:
    driven = Driven(on_offset_expired=Reset.LATEST).begin(0, 1)
    driven.fail_read(on.FetchError.CORRUPT)
    assert driven.delivery.partitions[one(0)].stopped == "it says so"
    driven.read(1, 1)
    assert {each.partition for each in driven.all(do.Deliver)} == {one(1)}
    assert driven.delivery.partitions[one(1)].stopped == ""
    driven.pass_time(1_000)
    before = len(driven.all(do.ListOffsets))
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    # Not at the end, as is set for offsets that have expired: nobody deleted what is left.
    assert len(driven.all(do.ListOffsets)) == before + 1
    driven.step(on.OffsetsListed(driven.last(do.ListOffsets).request, {one(0): on.Bounds(5, 9)}))
    assert driven.last(do.Fetch).offset == 5
    assert driven.delivery.partitions[one(0)].stopped == ""


def unreadable(driven: Driven, number: int = 0) -> on.ReadFailed:
    """Return five offsets that cannot be decoded, from the offset of the fetch on."""
    fetch = driven.fetch_of(number)
    kept = Batch(fetch.offset, 1, 10, object(), [None])
    poison = on.Unreadable(kept, fetch.offset + 5, "it cannot be read")
    return on.ReadFailed(fetch.delivery_epoch, on.FetchError.CORRUPT, "stuck", poison)


@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_batch_that_cannot_be_read_becomes_one_dead_letter_when_all_before_it_is_done(
    ordering: Ordering,
) -> None:
    driven = Driven(dead_letter_topic="dead", rules=Rules(ordering=ordering)).begin(0)
    driven.read(2, keys=[b"k", b"l"])
    fetches = len(driven.all(do.Fetch))
    driven.step(unreadable(driven))
    assert not driven.all(do.WriteDeadLetter)
    driven.judge(0, 1)
    (due,) = driven.all(do.WriteDeadLetter)
    assert (due.batch_slice.first, due.batch_slice.end, due.reason, due.deliveries) == (
        2,
        3,
        "it cannot be read",
        0,
    )
    driven.pass_time(INTERVAL_MS)
    assert {offset.offset for commit in driven.all(do.Commit) for offset in commit.offsets.values()} == {0, 2}
    driven.step(on.DeadLetterWritten(due.dead_letter))
    driven.answer_commit()
    driven.pass_time(INTERVAL_MS)
    assert driven.last(do.Commit).offsets[one()].offset == 7
    assert len(driven.all(do.Fetch)) > fetches
    assert driven.last(do.Fetch).offset == 7
    assert (
        max(batch_slice.end for each in driven.all(do.Deliver) for batch_slice in each.dispatch.slices) == 2
    )
    assert len(driven.all(do.Problem)) == 1


def test_without_a_dead_letter_topic_a_batch_that_cannot_be_read_is_waited_for_until_one_is_named() -> None:
    driven = Driven().begin(0)
    driven.step(unreadable(driven))
    assert driven.delivery.partitions[one()].stopped == "stuck"
    driven.pass_time(60_000)
    assert not driven.all(do.WriteDeadLetter)
    assert {fetch.offset for fetch in driven.all(do.Fetch)} == {0}
    driven.step(on.Configure(replace(driven.delivery.config, dead_letter_topic="dead")))
    driven.pass_time(60_000)
    driven.step(unreadable(driven))
    assert driven.last(do.WriteDeadLetter).topic == "dead"
    assert driven.delivery.partitions[one()].stopped == ""


def test_partitions_with_the_same_problem_are_reported_together() -> None:
    driven = Driven()
    driven.assign(0, 1)
    driven.find(error=pb.GROUP_AUTHORIZATION_FAILED)
    assert driven.last(do.Problem).partitions == [one(0), one(1)]


def test_a_commit_that_is_refused_is_said_and_tried_again() -> None:
    driven = Driven().begin(0)
    driven.read(1)
    driven.judge(0)
    driven.pass_time(INTERVAL_MS)
    assert "Problem" in names(driven.answer_commit(pb.TOPIC_AUTHORIZATION_FAILED))
    assert "Commit" in names(driven.pass_time(BACKOFF_MS))


def test_a_commit_that_timed_out_in_the_coordinator_may_be_stored_and_is_sent_again_without_a_word() -> None:
    driven = Driven().begin(0)
    driven.read(1)
    driven.judge(0)
    driven.pass_time(INTERVAL_MS)
    assert "Problem" not in names(driven.answer_commit(pb.REQUEST_TIMED_OUT))
    assert names(driven.pass_time(BACKOFF_MS)) == ["Commit"]
    assert driven.last(do.Commit).offsets[one()].offset == 1
    driven.answer_commit()
    assert "Commit" not in names(driven.pass_time(INTERVAL_MS))


def test_a_commit_that_failed_without_a_coordinator_is_tried_again_once_it_is_found() -> None:
    driven = Driven().begin(0)
    driven.read(1)
    driven.judge(0)
    driven.pass_time(INTERVAL_MS)
    for _ in range(10):
        driven.answer_commit(pb.NOT_COORDINATOR)
        driven.pass_time(BACKOFF_MAX_MS)
    driven.answer_commit(pb.NOT_COORDINATOR)
    assert names(driven.step(on.CoordinatorRegained())) == ["Commit"]
    assert driven.last(do.Commit).offsets[one()].offset == 1


def test_a_commit_of_a_generation_that_is_over_is_tried_again_while_the_partition_is_held() -> None:
    for error in (pb.ILLEGAL_GENERATION, pb.UNKNOWN_MEMBER_ID, pb.FENCED_INSTANCE_ID):
        driven = Driven().begin(0)
        driven.read(1)
        driven.judge(0)
        request = driven.commit_asked({0: 1})
        assert "Problem" not in names(driven.answer_commit(error))
        assert names(driven.pass_time(200)) == ["Commit"]
        driven.answer_commit(error)
        assert driven.answers(request) == []
        driven.lose(0)
        assert driven.answers(request)[0].errors == {one(): pb.ILLEGAL_GENERATION}
        assert "Commit" not in names(driven.pass_time(INTERVAL_MS * 3))


def test_one_partitions_error_concerns_no_other() -> None:
    driven = Driven().begin(0, 1)
    driven.read(1, 0)
    driven.read(1, 1)
    driven.judge(0, number=0)
    driven.judge(0, number=1)
    driven.pass_time(INTERVAL_MS)
    driven.answer_commit(errors={one(0): pb.NOT_COORDINATOR})
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 1}


def test_dead_letters_go_to_the_present_topic() -> None:
    driven = Driven(dead_letter_topic="ordres.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    driven.step(on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter, "no such topic"))
    driven.step(on.Configure(replace(driven.delivery.config, dead_letter_topic="orders.dlq")))
    driven.pass_time(1_000)
    assert driven.last(do.WriteDeadLetter).topic == "orders.dlq"


def test_when_there_is_no_dead_letter_topic_any_more_the_record_comes_again() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    driven.step(on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter, "no such topic"))
    driven.step(on.Configure(replace(driven.delivery.config, dead_letter_topic="")))
    driven.answer_commit()
    assert delivered(driven.read(1)) == [(0, 0, 1)]


def test_a_dead_letter_of_a_record_that_was_settled_is_not_waited_for() -> None:
    driven = Driven(dead_letter_topic="orders.dlq").begin(0)
    driven.read(1)
    driven.judge(0, verdict=Verdict.DEAD_LETTER)
    driven.commit_asked({0: 1})
    driven.answer_commit()
    driven.step(on.DeadLetterWritten(driven.last(do.WriteDeadLetter).dead_letter, "no such topic"))
    driven.revoke(0)
    driven.acknowledge()
    driven.pass_time(1_000)
    driven.answer_commit()
    assert driven.done[-1] == do.ReleasePartitions(1)
    assert len(driven.all(do.WriteDeadLetter)) == 1
