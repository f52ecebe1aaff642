"""Of all commits of a partition that count, the latest one is its committed offset, whatever order transactions end in."""

from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_coordinator.core.group.offsets import Committed, Offsets
from rota_proto.coordinator.v1.records_pb2 import OffsetCommitted, OffsetPending, ProducerEnded, Record

PARTITIONS = PRODUCERS = st.integers(min_value=0, max_value=2)
STEPS = st.one_of(
    st.tuples(st.just("plain"), st.just(0), PARTITIONS),
    st.tuples(st.just("transactional"), PRODUCERS, PARTITIONS),
    st.tuples(st.sampled_from(["commit", "abort"]), PRODUCERS, st.just(0)),
    st.tuples(st.just("compact"), st.just(0), st.just(0)),
)
Step = tuple[str, int, int]


def offset_at(step: int, partition: int) -> OffsetCommitted:
    """The offset that a step commits: its own number."""
    return OffsetCommitted(group_id="group", topic="topic", partition=partition, offset=step)


def run(steps: Sequence[Step]) -> dict[int, int]:
    """The committed offsets after these steps, by partition."""
    offsets = Offsets()
    for number, (kind, producer, partition) in enumerate(steps):
        match kind:
            case "plain":
                offsets.replay(Record(offset_committed=offset_at(number, partition)))
            case "transactional":
                pending = OffsetPending(offset=offset_at(number, partition), producer_id=producer)
                offsets.replay(Record(offset_pending=pending))
            case "compact":
                whole, offsets = offsets, Offsets()
                for record in whole.snapshot():
                    offsets.replay(record)
            case _:
                ended = ProducerEnded(producer_id=producer, committed=kind == "commit")
                offsets.replay(Record(producer_ended=ended))
    return {partition.partition: stored.offset.offset for partition, stored in offsets.committed.items()}


def expected(steps: Sequence[Step]) -> dict[int, int]:
    """The same, from the definition: a commit is the number of its step, so the highest one that counts is the latest."""
    latest: dict[int, int] = {}
    for number, (kind, producer, partition) in enumerate(steps):
        ends = (each for each, by, _ in steps[number:] if by == producer and each in ("commit", "abort"))
        if kind == "plain" or (kind == "transactional" and next(ends, "abort") == "commit"):
            latest[partition] = number
    return latest


@settings(max_examples=500)
@given(st.lists(STEPS, max_size=30))
def test_the_latest_commit_that_counts_is_the_committed_offset(steps: list[Step]) -> None:
    assert run(steps) == expected(steps)


LATE_END: list[Step] = [
    ("transactional", 1, 0),
    ("transactional", 2, 0),
    ("commit", 1, 0),
    ("commit", 2, 0),
]


@pytest.mark.parametrize("index", range(5))
def test_compaction_at_any_time_keeps_the_order_of_commits(index: int) -> None:
    steps = [*LATE_END[:index], ("compact", 0, 0), *LATE_END[index:]]
    assert run(steps) == expected(steps)


def test_the_position_of_a_transactions_end_is_not_that_of_its_commits() -> None:
    """The rule can fail: with the position of the end, which was a bug, the later commit is lost."""

    def end_at_its_own_position(self: Offsets, ended: ProducerEnded) -> None:
        self._position += 1
        for partition, pending in self.pending.pop(ended.producer_id, {}).items():
            stored = self.committed.get(partition)
            if ended.committed and (stored is None or stored.position < pending.position):
                self.committed[partition] = Committed(self._position, pending.offset)

    with patch.object(Offsets, "_end", end_at_its_own_position):
        assert run(LATE_END) != expected(LATE_END)
