"""Replays of dead letters: each dead letter once, whatever ends a replay, and also when two processes replay."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import errors
from rota.records import TopicPartition
from rota_cli.commands import dead_letter_replay
from rota_cli.commands.dead_letter_filter import DeadLetterFilter
from rota_cli.commands.dead_letter_headers import DeadLetter
from rota_cli.commands.dead_letter_replay import Replay
from rota_cli.commands.dead_letter_scan import TopicScan
from rota_cli.errors import Failure, NotReachable
from tests.cli.commands.dead_letter_fakes import Killed, MemoryRecords, Transaction, dead_letter_headers

DLQ = "orders-dlq"
EVERY = DeadLetterFilter()


@pytest.fixture(autouse=True)
def _small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_replay, "DEAD_LETTERS_PER_TRANSACTION", 2)


def filled(dead_letters: int = 7) -> MemoryRecords:
    """With dead letters in two partitions, whose values and origins' offsets are their numbers, some for another reason."""
    records = MemoryRecords(orders=2, orders_dlq=2)
    for number in range(dead_letters):
        reason = "thirds" if number % 3 else "others"
        headers = dead_letter_headers("orders", number % 2, number, reason=reason)
        records.append(DLQ, b"%d" % number, headers, partition=number % 2, timestamp_ms=number)
    return records


def replay_of(
    records: MemoryRecords, wanted: DeadLetterFilter = EVERY, dead_letters_max: int | None = None
) -> Replay:
    seconds = count()
    scan = TopicScan(records, lambda: float(next(seconds)), 10)
    partitions = [TopicPartition(DLQ, number) for number in range(2)]
    return Replay(records, scan, partitions, wanted, dead_letters_max)


def execute(records: MemoryRecords, wanted: DeadLetterFilter = EVERY) -> list[DeadLetter]:
    return replay_of(records, wanted).execute(lambda done: None)


def replayed(records: MemoryRecords) -> Counter[int]:
    """Count each record that is in its topic again, as readers of committed records see it."""
    return Counter(int(record.value or b"") for record in records.committed("orders"))


def once(numbers: int) -> Counter[int]:
    return Counter(range(numbers))


def test_a_record_is_written_as_it_was_to_the_partition_it_came_from() -> None:
    records = filled()
    found = execute(records)
    assert [each.is_replayed for each in found] == [True] * 7
    assert replayed(records) == once(7)
    for record in records.committed("orders"):
        number = int(record.value or b"")
        assert (record.partition, record.timestamp_ms, record.key) == (number % 2, number, b"key")
        assert record.headers == [("kind", b"new")]


def test_a_second_replay_finds_nothing() -> None:
    records = filled()
    execute(records)
    assert replay_of(records).plan() == []
    assert execute(records) == []
    assert replayed(records) == once(7)


def test_a_plan_changes_nothing() -> None:
    records = filled()
    assert len(replay_of(records).plan()) == 7
    assert replayed(records) == Counter()
    assert not records.producers


def test_what_filters_leave_in_between_is_replayed_later() -> None:
    records = filled()
    some = execute(records, DeadLetterFilter(reason="thirds"))
    assert len(some) == 4
    assert replayed(records) == Counter([1, 2, 4, 5])
    assert len(replay_of(records).plan()) == 3
    execute(records)
    assert replayed(records) == once(7)


def test_a_limit_takes_the_first_ones_and_leaves_the_rest() -> None:
    records = filled()
    found = replay_of(records, dead_letters_max=3).execute(lambda done: None)
    assert [(each.partition.partition, each.offset) for each in found] == [(0, 0), (0, 1), (0, 2)]
    execute(records)
    assert replayed(records) == once(7)


def test_what_cannot_be_replayed_is_skipped_with_the_reason_and_stays() -> None:
    records = filled(2)
    records.append(DLQ, b"gone", dead_letter_headers("gone"))
    records.append(DLQ, b"foreign", [("kind", b"x")])
    for _ in range(2):
        found = execute(records)
        assert [each.problem for each in found if each.problem] == [
            "its topic gone does not exist",
            "not a dead letter of Rota: the header rota-dlq-topic is missing",
        ]
    assert replayed(records) == once(2)


def killed_at(records: MemoryRecords, step: int) -> bool:
    """Replay, and end the process at the given step of its producer; return whether it has come that far."""
    steps = count()

    def kill(name: str) -> None:
        if next(steps) == step:
            raise Killed

    records.on_step = kill
    try:
        execute(records)
    except Killed:
        return True
    finally:
        records.on_step = lambda name: None
    return False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 25), st.sampled_from(["", "thirds", "others"])), max_size=5))
def test_each_is_replayed_once_whenever_and_however_often_it_is_killed(
    kills: list[tuple[int, str]],
) -> None:
    records = filled()
    for step, reason in kills:
        killed_at(records, step)
        execute(records, DeadLetterFilter(reason=reason))
        assert max(replayed(records).values(), default=1) == 1
    execute(records)
    assert replayed(records) == once(7)


def test_a_kill_at_every_step_leaves_no_gap_and_no_double() -> None:
    for step in count():
        records = filled()
        if not killed_at(records, step):
            break
        execute(records)
        assert replayed(records) == once(7), step
    assert step > 7


def taken_over_at(records: MemoryRecords, step: int) -> tuple[str, bool]:
    """
    Replay, and replay again as another process would at the given step of the first producer; return the failure of the first replay,
    and whether it has come that far.
    """
    steps = count()

    def start_another(name: str) -> None:
        if next(steps) == step:
            execute(records)

    records.on_step = start_another
    failed = ""
    try:
        execute(records)
    except Failure as failure:
        failed = str(failure)
    return failed, next(steps) > step


def test_a_replay_that_is_started_meanwhile_takes_over() -> None:
    failures: list[str] = []
    for step in count():
        records = filled()
        failed, happened = taken_over_at(records, step)
        assert replayed(records) == once(7), step
        if not happened:
            break
        failures.append(failed)
    # Behind the last commit there is nothing left to take over.
    assert failures.pop() == ""
    assert len(failures) > 7
    for failed in failures:
        assert failed.startswith(
            "another replay of orders-dlq was started, or the transaction has timed out;"
        )


def test_a_marker_behind_an_open_transaction_is_not_missed() -> None:
    records = filled(2)
    records.append(DLQ, b"2", dead_letter_headers(offset=2), transaction=Transaction())
    # A replay is not possible before: what it has marked would be hidden from the next one.
    with pytest.raises(NotReachable, match="as behind an open transaction"):
        execute(records)
    assert replayed(records) == Counter()
    assert len(replay_of(records).plan()) == 2


def test_the_commit_is_asked_for_again_when_its_outcome_is_unknown() -> None:
    records = filled()
    undecided = iter([True])

    def lose_the_answer(name: str) -> None:
        if name == "commit" and next(undecided, False):
            raise errors.UndecidedCommit("no answer")

    records.on_step = lose_the_answer
    assert all(each.is_replayed for each in execute(records))
    assert replayed(records) == once(7)


def test_a_commit_after_a_fenced_send_names_the_other_replay_too() -> None:
    records = filled()

    def fail(name: str) -> None:
        if name == "commit":
            raise errors.TransactionAbortable("abort it") from errors.InvalidProducerEpoch("orders[0]")

    records.on_step = fail
    with pytest.raises(Failure, match=r"^another replay of orders-dlq was started"):
        execute(records)


def test_an_error_says_how_many_were_replayed_before() -> None:
    records = filled()
    sends = count()

    def fail(name: str) -> None:
        if name == "send" and next(sends) == 7:
            raise errors.RecordTooLarge("a record of 2 MiB")

    records.on_step = fail
    with pytest.raises(Failure, match=r"^a record of 2 MiB: .*; 4 dead letters replayed before: run the"):
        execute(records)
    records.on_step = lambda name: None
    execute(records)
    assert replayed(records) == once(7)
