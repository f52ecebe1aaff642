"""
Read a dead-letter topic once: its dead letters, without those that a marker behind them names.

Records of open and aborted transactions are left out, so a marker counts if and only if the records of its replay do.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from rota.records import Record, TopicPartition
from rota_cli.clusters.model import Topic
from rota_cli.clusters.port import Offsets, Records
from rota_cli.commands.dead_letter_filter import DeadLetterFilter
from rota_cli.commands.dead_letter_headers import DeadLetter, dead_letter_of, marked_offsets
from rota_cli.errors import Failure, NotReachable

# Bound on memory: some hundred bytes each.
DEAD_LETTERS_MAX = 1_000_000


class TopicScan:
    """Reads up to given offsets; `stall_s` bounds the time without progress, by the given clock."""

    def __init__(self, records: Records, clock: Callable[[], float], stall_s: float) -> None:
        self._records = records
        self._clock = clock
        self._stall_s = stall_s

    def read(self, starts: Offsets, ends: Offsets) -> Iterator[Record]:
        """
        Yield the committed records of the partitions in `ends`, from `starts` up to `ends`. Raises NotReachable if a partition
        gives nothing for too long, as behind the start of an open transaction.
        """
        positions = {here: starts[here] for here, end in ends.items() if starts[here] < end}
        if not positions:
            return
        deadline_s = self._clock() + self._stall_s
        for fetched in self._records.read(positions, read_committed=True):
            for record in fetched.records:
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    yield record
            moved = {
                here: offset for here, offset in fetched.next_offsets.items() if offset > positions[here]
            }
            positions |= moved
            left = [here for here, offset in positions.items() if offset < ends[here]]
            if not left:
                return
            now_s = self._clock()
            if moved:
                deadline_s = now_s + self._stall_s
            elif now_s > deadline_s:
                topic, number = left[0]
                raise NotReachable(
                    f"{topic}[{number}] gave no records from offset {positions[left[0]]} on for {self._stall_s:g} s, as behind an "
                    "open transaction: retry once it has ended, or raise --timeout"
                )

    def dead_letters(
        self, starts: Offsets, ends: Offsets, wanted: DeadLetterFilter, *, keep_replayed: bool = False
    ) -> list[DeadLetter]:
        """Return the chosen dead letters by partition and offset; with `keep_replayed` also those that were replayed."""
        found: dict[TopicPartition, dict[int, DeadLetter]] = {here: {} for here in ends}
        count = 0
        for record in self.read(starts, ends):
            of_partition = found[TopicPartition(record.topic, record.partition)]
            marked = marked_offsets(record)
            if marked is not None:
                for offsets in marked:
                    _mark(of_partition, offsets, keep_replayed=keep_replayed)
                continue
            dead_letter = dead_letter_of(record)
            if not wanted.matches(dead_letter):
                continue
            of_partition[record.offset] = dead_letter
            count += 1
            if count > DEAD_LETTERS_MAX:
                count = sum(map(len, found.values()))
            if count > DEAD_LETTERS_MAX:
                raise Failure(
                    f"more than {DEAD_LETTERS_MAX:,} dead letters of {record.topic} match: add --topic, --group, --reason, --since or --until"
                )
        return [found[here][offset] for here in sorted(found) for offset in sorted(found[here])]


def _mark(found: dict[int, DeadLetter], offsets: range, *, keep_replayed: bool) -> None:
    """Drop the dead letters of these offsets, or note that they were replayed; takes the shorter way."""
    named = offsets if len(offsets) <= len(found) else [each for each in found if each in offsets]
    for offset in named:
        dead_letter = found.pop(offset, None)
        if dead_letter is not None and keep_replayed:
            found[offset] = replace(dead_letter, is_replayed=True)


def with_problems(dead_letters: list[DeadLetter], topics: list[Topic]) -> list[DeadLetter]:
    """Note the problem of each dead letter whose origin does not exist any more."""
    counts = {topic.name: topic.partitions for topic in topics}
    return [_checked(each, counts) for each in dead_letters]


def _checked(dead_letter: DeadLetter, counts: Mapping[str, int]) -> DeadLetter:
    if dead_letter.origin is None or dead_letter.problem:
        return dead_letter
    topic, partition = dead_letter.origin.partition
    if topic not in counts:
        return replace(dead_letter, problem=f"its topic {topic} does not exist")
    if partition >= counts[topic]:
        return replace(
            dead_letter, problem=f"its topic {topic} has no partition {partition} (it has {counts[topic]})"
        )
    return dead_letter
