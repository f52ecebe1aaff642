"""Samples of a group cover 15 minutes in bounded memory; unknown values stay unknown, and readers get each sample once."""

from collections.abc import Mapping, Sequence

import pytest

from rota_operator.overview.assignment import Partition
from rota_operator.overview.offsets import OFFSETS_VALID_MS, PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.recording import START, GroupRecording
from rota_operator.overview.samples import (
    PARTITIONS_MAX,
    SAMPLE_EVERY_MS,
    SAMPLES_MAX,
    WINDOW_MS,
    Sample,
    Samples,
    Values,
)
from rota_operator.overview.view import GroupView

NOW = 1_000_000


class Sampled:
    """One group of an engine that reports offsets, its samples, and a clock."""

    def __init__(self) -> None:
        self.overview = Overview("rota://127.0.0.1:7070", [("orders", "shop/orders")])
        self.samples = Samples()
        self.now_ms = NOW

    def view(self) -> GroupView:
        view = self.overview.group("orders", (), self.now_ms)
        assert view is not None
        return view

    def offsets(self, committed: Mapping[int, int | None], end: int = 1_000) -> None:
        found = {
            Partition("orders", number): PartitionOffsets(each, 0, end, self.now_ms)
            for number, each in committed.items()
        }
        self.overview.update_offsets("orders", found, self.now_ms)

    def add(self, after_ms: int = SAMPLE_EVERY_MS) -> bool:
        self.now_ms += after_ms
        return self.samples.add(self.view(), self.now_ms)

    @property
    def all(self) -> Sequence[Sample]:
        return self.samples.since(None)

    @property
    def last(self) -> Sample:
        return self.all[-1]


@pytest.fixture
def sampled() -> Sampled:
    return Sampled()


def test_a_sample_has_the_values_of_the_group_and_of_each_partition(sampled: Sampled) -> None:
    sampled.offsets({0: 990, 1: 970})
    sampled.add(0)
    assert sampled.last.names == ("orders-0", "orders-1")
    assert sampled.last.group == Values(40, 0.0, None, None)
    assert [each.lag_records for each in sampled.last.partitions] == [10, 30]


def test_unknown_values_stay_unknown(sampled: Sampled) -> None:
    sampled.offsets({0: None, 1: 970})
    sampled.add(0)
    assert [each.lag_records for each in (sampled.last.group, *sampled.last.partitions)] == [None, None, 30]
    sampled.add(OFFSETS_VALID_MS + 1)
    assert sampled.last.partitions == (Values(None, None, None, None),) * 2


def test_samples_are_taken_at_most_every_few_seconds(sampled: Sampled) -> None:
    assert [sampled.add(after_ms) for after_ms in (0, 0, SAMPLE_EVERY_MS - 1, 1)] == [
        True,
        False,
        False,
        True,
    ]


def test_samples_older_than_the_window_are_dropped(sampled: Sampled) -> None:
    for _ in range(3 * SAMPLES_MAX):
        sampled.add()
    assert len(sampled.all) == SAMPLES_MAX
    sampled.add(WINDOW_MS - SAMPLE_EVERY_MS)
    assert len(sampled.all) == 2
    sampled.add(WINDOW_MS)
    assert len(sampled.all) == 1


def test_partitions_over_the_bound_are_part_of_the_sums_only(sampled: Sampled) -> None:
    sampled.offsets(dict.fromkeys(range(PARTITIONS_MAX + 1), 999))
    sampled.add()
    assert len(sampled.last.names) == len(sampled.last.partitions) == PARTITIONS_MAX
    assert sampled.last.group.lag_records == PARTITIONS_MAX + 1


def test_a_clock_that_is_set_back_takes_later_samples_away(sampled: Sampled) -> None:
    for _ in range(4):
        sampled.add()
    before = sampled.last.number
    assert not sampled.add(-2 * SAMPLE_EVERY_MS)
    assert [each.at_ms for each in sampled.all] == [NOW + SAMPLE_EVERY_MS, NOW + 2 * SAMPLE_EVERY_MS]
    sampled.add()
    assert [each.number for each in sampled.samples.since(before)] == [before + 1]


def test_the_rate_of_a_partition_is_that_of_its_commits_over_some_seconds(sampled: Sampled) -> None:
    rates = []
    for committed in (100, 100, 150, 300, 300):
        sampled.now_ms += SAMPLE_EVERY_MS
        sampled.offsets({0: committed})
        sampled.add(0)
        rates.append(sampled.last.partitions[0].done_rate)
    assert rates == [None, 0.0, 5.0, 13.333, 13.333]


def test_an_offset_that_went_back_or_was_unknown_has_no_rate(sampled: Sampled) -> None:
    rates = []
    for committed in (500, 600, 10, 20, None, 30, 40):
        sampled.now_ms += SAMPLE_EVERY_MS
        sampled.offsets({0: committed})
        sampled.add(0)
        rates.append(sampled.last.partitions[0].done_rate)
    assert rates == [None, 20.0, None, None, None, 1.333, 1.333]


def test_names_are_the_same_object_while_the_partitions_stay_the_same(sampled: Sampled) -> None:
    sampled.offsets({0: 1})
    sampled.add()
    sampled.offsets({0: 2})
    sampled.add()
    first, second = sampled.all
    assert first.names is second.names
    sampled.offsets({0: 2, 1: 2})
    sampled.add()
    assert sampled.last.names == ("orders-0", "orders-1")


def test_a_reader_gets_everything_once_and_then_what_is_new(sampled: Sampled) -> None:
    recording = GroupRecording("orders")
    recording.record(sampled.view(), NOW)
    first = recording.since(START)
    assert (first.is_complete, len(first.samples)) == (True, 1)
    nothing = recording.since(first.cursor)
    assert (nothing.is_complete, nothing.samples, nothing.cursor) == (False, (), first.cursor)
    recording.record(sampled.view(), NOW + SAMPLE_EVERY_MS)
    assert [each.at_ms for each in recording.since(first.cursor).samples] == [NOW + SAMPLE_EVERY_MS]
