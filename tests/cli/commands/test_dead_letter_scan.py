"""A scan of a dead-letter topic: markers, filters, open transactions."""

from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from typing_extensions import override

from rota.records import Record, TopicPartition
from rota_cli.clusters.port import FetchResult, Offsets
from rota_cli.commands.dead_letter_filter import DeadLetterFilter, DeadLetterFlags
from rota_cli.commands.dead_letter_headers import DeadLetter, marker_of
from rota_cli.commands.dead_letter_scan import TopicScan, with_problems
from rota_cli.errors import NotReachable, WrongUsage
from tests.cli.commands.dead_letter_fakes import MemoryRecords, Outcome, Transaction, dead_letter_headers

DLQ = "orders-dlq"
EVERY = DeadLetterFilter()


@pytest.fixture
def records() -> MemoryRecords:
    return MemoryRecords(orders=2, orders_dlq=2)


def scan(
    records: MemoryRecords,
    wanted: DeadLetterFilter = EVERY,
    *,
    to_the_end: bool = False,
    keep_replayed: bool = False,
) -> list[DeadLetter]:
    """By a clock that advances by a second with each look."""
    seconds = count()
    ranges = records.ranges(
        [TopicPartition(DLQ, number) for number in range(2)], read_committed=not to_the_end
    )
    return TopicScan(records, lambda: float(next(seconds)), 10).dead_letters(
        {here: there.start for here, there in ranges.items()},
        {here: there.end for here, there in ranges.items()},
        wanted,
        keep_replayed=keep_replayed,
    )


def positions(found: list[DeadLetter]) -> list[tuple[int, int]]:
    return [(each.partition.partition, each.offset) for each in found]


def test_what_a_later_marker_of_the_partition_names_was_replayed(records: MemoryRecords) -> None:
    for number in range(5):
        records.append(DLQ, headers=dead_letter_headers(offset=number))
        records.append(DLQ, headers=dead_letter_headers(offset=number), partition=1)
    records.append(DLQ, None, marker_of([1, 2, 4]))
    records.append(DLQ, headers=dead_letter_headers(offset=9))
    assert positions(scan(records)) == [(0, 0), (0, 3), (0, 6), *((1, number) for number in range(5))]
    kept = scan(records, keep_replayed=True)
    assert [(each.offset, each.is_replayed) for each in kept if not each.partition.partition] == [
        (0, False),
        (1, True),
        (2, True),
        (3, False),
        (4, True),
        (6, False),
    ]


def test_a_marker_of_an_aborted_replay_says_nothing(records: MemoryRecords) -> None:
    records.append(DLQ, headers=dead_letter_headers())
    transaction = Transaction()
    records.append(DLQ, None, marker_of([0]), transaction=transaction)
    assert positions(scan(records)) == [(0, 0)]
    transaction.outcome = Outcome.ABORTED
    assert positions(scan(records, to_the_end=True)) == [(0, 0)]
    transaction.outcome = Outcome.COMMITTED
    assert positions(scan(records)) == []


def test_a_marker_behind_another_producers_open_transaction_is_waited_for(records: MemoryRecords) -> None:
    records.append(DLQ, headers=dead_letter_headers())
    transaction = Transaction()
    records.append(DLQ, headers=dead_letter_headers(offset=1), transaction=transaction)
    records.append(DLQ, None, marker_of([0]))
    with pytest.raises(
        NotReachable, match=r"orders-dlq\[0\] gave no records from offset 1 on for 10 s, as behind"
    ):
        scan(records, to_the_end=True)

    def commit() -> None:
        transaction.outcome = Outcome.COMMITTED

    records.on_idle = commit
    assert positions(scan(records, to_the_end=True)) == [(0, 1)]


class OnePage(MemoryRecords):
    """Returns these records, and then the end of the partition."""

    page: Sequence[Record] = ()

    @override
    def read(self, offsets: Offsets, *, read_committed: bool) -> Iterator[FetchResult]:
        yield FetchResult(self.page, {TopicPartition(DLQ, 0): self.page[-1].offset + 1})


def test_a_marker_of_a_huge_range_takes_no_longer_than_its_dead_letters() -> None:
    records = OnePage()
    everything = [("rota-dlq-replayed", b"0-%d" % (2**62 - 1))]
    records.page = [
        Record(DLQ, 0, 7, 0, None, b"", dead_letter_headers()),
        Record(DLQ, 0, 2**62, 0, None, None, everything),
    ]
    here = TopicPartition(DLQ, 0)
    assert TopicScan(records, lambda: 0.0, 10).dead_letters({here: 0}, {here: 2**62 + 1}, EVERY) == []


def test_dead_letters_are_chosen_by_topic_group_reason_and_time(records: MemoryRecords) -> None:
    records.append(DLQ, headers=dead_letter_headers(reason="no price"), timestamp_ms=1_000)
    records.append(DLQ, headers=dead_letter_headers(group="mail"), timestamp_ms=2_000)
    records.append(DLQ, headers=dead_letter_headers("refunds"), timestamp_ms=3_000)
    records.append(DLQ, headers=[("kind", b"other")], timestamp_ms=3_000)

    def chosen(**wanted: str) -> list[int]:
        return [each.offset for each in scan(records, DeadLetterFlags(**wanted).filter())]

    assert chosen() == [0, 1, 2, 3]
    assert chosen(origin="orders") == [0, 1]
    assert chosen(group="mail") == [1]
    assert chosen(reason="price") == [0, 1, 2]
    assert chosen(reason="no price") == [0]
    assert chosen(since="1970-01-01T00:00:02Z") == [1, 2, 3]
    assert chosen(since="1970-01-01T00:00:02Z", until="1970-01-01T00:00:03Z") == [1]
    assert chosen(origin="orders", reason="KeyError") == [1]
    with pytest.raises(WrongUsage, match="--since must be earlier than --until"):
        chosen(since="1970-01-01T00:00:02Z", until="1970-01-01T00:00:02Z")
    with pytest.raises(WrongUsage, match="--until noon: expected a time"):
        chosen(until="noon")


def test_a_dead_letter_whose_origin_is_gone_says_which(records: MemoryRecords) -> None:
    for topic, partition in (("orders", 1), ("orders", 2), ("gone", 0)):
        records.append(DLQ, headers=dead_letter_headers(topic, partition))
    found = with_problems(scan(records), records.topics())
    assert [each.problem for each in found] == [
        "",
        "its topic orders has no partition 2 (it has 2)",
        "its topic gone does not exist",
    ]
