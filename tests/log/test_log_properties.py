"""
The log under any order of calls, writes and crashes.

Whatever happens: nothing is there twice, offsets and sequences have no gaps, what readers were shown stays, aborted
records are those of aborted transactions and no others, every group hears once of every end, and what a restart would
read from the file is what the log says it is.
"""

from collections import Counter
from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from rota_coordinator.log.batch import Control, Header
from rota_coordinator.log.config import LogConfig
from rota_coordinator.log.log import Log
from rota_coordinator.log.partition import Partition
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent
from tests.log.engine import TIMEOUT_MS, TOPIC, Engine, Producer, batch

# Two with transactions, one that is idempotent only.
IDS = ("copier", "mover", "")
WHO = st.sampled_from(IDS)
PARTITIONS = st.integers(0, 2)
EXPIRE_MS = 10 * TIMEOUT_MS
CONFIG = LogConfig(epoch_max=3, producers_expire_ms=EXPIRE_MS, partition_producers_max=4)


def told(log: Log) -> list[object]:
    """What a log knows, as far as it may not depend on whether it was live or read."""
    return [
        (
            partition.log_id,
            (partition.topic, partition.index, partition.topic_id, partition.retention),
            (partition.start, partition.end),
            dict(sorted(partition.open.items())),
            {producer_id: known.batches for producer_id, known in partition.sequences},
        )
        for partition in sorted(log.partitions(), key=lambda partition: partition.log_id)
    ]


class AnyOrder(RuleBasedStateMachine):
    """Three producers, of whom each may have a zombie, and an administrator."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(CONFIG, writes_at_once=False)
        self.now = dict.fromkeys(IDS, Producer())
        self.before = dict.fromkeys(IDS, Producer())
        # The next sequence of each producer in each partition.
        self.next: Counter[tuple[str, int]] = Counter()
        self.shown: dict[int, tuple[int, int]] = {}

    @initialize()
    def begin(self) -> None:
        self.engine.create(partitions=2)
        for who in IDS:
            self.become(who)
        self.write()

    def go_on(self, who: str, producer: Producer) -> None:
        self.before[who], self.now[who] = self.now[who], producer
        for index in range(3):
            self.next[who, index] = 0

    @rule(who=WHO)
    def become(self, who: str) -> None:
        """A new process, or a second one beside the old."""
        self.go_on(who, self.engine.init(who))

    @rule(who=WHO, index=PARTITIONS, records=st.integers(1, 3))
    def produce(self, who: str, index: int, records: int) -> None:
        reply = self.engine.produce(self.now[who], self.next[who, index], records, index)
        if reply.error_code == codes.NONE:
            self.next[who, index] += records

    @rule(who=WHO, index=PARTITIONS, back=st.integers(-1, 7), records=st.integers(1, 3), old=st.booleans())
    def produce_again(self, who: str, index: int, back: int, records: int, old: bool) -> None:
        """Late, twice, or too early."""
        producer = (self.before if old else self.now)[who]
        end = self.engine.log.partition(TOPIC, index)
        before = end.end if isinstance(end, Partition) else 0
        sequence = max(self.next[who, index] - back, 0)
        reply = self.engine.produce(producer, sequence, records, index)
        if reply.error_code == codes.NONE and reply.base_offset == before and not old:
            self.next[who, index] = sequence + records

    @rule(index=PARTITIONS)
    def produce_without_name(self, index: int) -> None:
        self.engine.send(batch(), batch(records=2), index=index)

    @rule(who=WHO, group=st.sampled_from("ab"), old=st.booleans())
    def add_group(self, who: str, group: str, old: bool) -> None:
        self.engine.add_group((self.before if old else self.now)[who], group)

    @rule(who=WHO, commit=st.booleans(), refused=st.booleans())
    def end(self, who: str, commit: bool, refused: bool) -> None:
        reply = self.engine.end(
            self.now[who], commit=commit, refused=codes.ILLEGAL_GENERATION if refused else codes.NONE
        )
        if reply.producer_id >= 0:
            producer = Producer(reply.producer_id, reply.producer_epoch, who)
            if producer != self.now[who]:
                self.go_on(who, producer)

    @rule(who=WHO, commit=st.booleans())
    def end_late(self, who: str, commit: bool) -> None:
        reply = self.engine.end(self.before[who], commit=commit)
        if reply.producer_id >= 0:
            assert (reply.producer_id, reply.producer_epoch) == self.now[who][:2]

    @rule(ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS, EXPIRE_MS]))
    def time_passes(self, ms: int) -> None:
        self.engine.pass_time(ms)

    @rule(index=PARTITIONS, offset=st.integers(-1, 30))
    def delete_records(self, index: int, offset: int) -> None:
        self.engine.delete_records(offset, index)

    @rule()
    def grow(self) -> None:
        self.engine.grow(TOPIC, 3)

    @rule()
    def make_again(self) -> None:
        self.engine.delete()
        self.engine.create(partitions=2)
        self.next.clear()

    @rule()
    def write(self) -> None:
        self.engine.write()

    @rule()
    def write_a_part(self) -> None:
        self.engine.write(until=(self.engine.in_file + len(self.engine.writes)) // 2)

    @rule()
    def crash(self) -> None:
        """Nobody was told of what was not written, so nobody's identity is from there."""
        self.engine.crash()
        for who in IDS:
            self.now[who] = Producer()
            self.become(who)

    @rule()
    def compact(self) -> None:
        """The events are replaced by a snapshot, as the store does it; nothing waits then."""
        self.engine.write()
        events: list[LogEvent] = self.engine.log.snapshot()
        for effects in self.engine.writes:
            effects.events.clear()
        self.engine.writes[0].events += events

    def logs(self) -> Iterator[tuple[Partition, list[Header]]]:
        """Every partition that there is, with all that was ever appended to it and not lost."""
        for partition in self.engine.log.partitions():
            yield partition, [row.header for row in self.engine.rows if row.log_id == partition.log_id]

    @invariant()
    def offsets_have_no_gaps(self) -> None:
        for partition, headers in self.logs():
            offset = 0
            for header in headers:
                assert header.base_offset == offset
                offset = header.next_offset
            assert partition.end == offset

    @invariant()
    def nothing_is_there_twice_and_nothing_is_missing(self) -> None:
        """As far as the producer's batches were known all the time: a deleted one may come again."""
        for partition, headers in self.logs():
            following: dict[tuple[int, int], int] = {}
            for header in headers:
                if header.control is Control.RECORDS and header.producer_id >= 0 and partition.start == 0:
                    who = header.producer_id, header.producer_epoch
                    assert header.base_sequence == following.get(who, header.base_sequence)
                    following[who] = header.base_sequence + header.count

    @invariant()
    def what_was_shown_stays(self) -> None:
        shown = {}
        for partition, headers in self.logs():
            now = partition.last_stable_offset, partition.high_watermark
            assert partition.start <= now[0] <= now[1] <= partition.end
            before = self.shown.get(partition.log_id, now)
            assert all(one >= other for one, other in zip(now, before, strict=True))
            shown[partition.log_id] = now
            in_file = [header for header in headers if header.next_offset <= partition.high_watermark]
            undecided: dict[int, int] = {}
            for header in in_file:
                if header.control is not Control.RECORDS:
                    undecided.pop(header.producer_id, None)
                elif header.transactional:
                    undecided.setdefault(header.producer_id, header.base_offset)
            expected = min(undecided.values(), default=partition.high_watermark)
            assert partition.last_stable_offset == expected
        self.shown = shown

    @invariant()
    def aborted_records_are_those_of_aborted_transactions(self) -> None:
        for partition, headers in self.logs():
            outcomes = {
                (header.producer_id, header.producer_epoch): header.control
                for header in headers
                if header.control is not Control.RECORDS
            }
            for header in headers:
                if partition.start < header.next_offset and header.control is Control.RECORDS:
                    outcome = outcomes.get((header.producer_id, header.producer_epoch))
                    aborted = header.transactional and outcome is Control.ABORT
                    assert partition.is_aborted(header) == aborted

    @invariant()
    def every_end_is_told_once_and_everywhere_the_same(self) -> None:
        ends = {(ending.group_id, *ending[1:3]) for ending in self.engine.endings}
        assert len(ends) == len(self.engine.endings)
        outcomes: dict[tuple[int, int], set[bool]] = {}
        for ending in self.engine.endings:
            outcomes.setdefault(ending[1:3], set()).add(ending.committed)
        for row in self.engine.rows:
            if row.header.control is not Control.RECORDS:
                who = row.header.producer_id, row.header.producer_epoch
                outcomes.setdefault(who, set()).add(row.header.control is Control.COMMIT)
        assert all(len(found) == 1 for found in outcomes.values())

    @invariant()
    def a_restart_reads_what_the_log_says(self) -> None:
        live = self.engine.log
        snapshot = live.snapshot()
        for events in (self.engine.events, snapshot):
            read = self.engine.read(events)
            assert told(read) == told(live)
            assert read.snapshot() == snapshot
            for partition, headers in self.logs():
                same = read.partition(partition.topic, partition.index)
                assert isinstance(same, Partition)
                left = [header for header in headers if header.next_offset > partition.start]
                assert [same.is_aborted(header) for header in left] == [
                    partition.is_aborted(header) for header in left
                ]

    @override
    def teardown(self) -> None:
        """Everybody goes quiet."""
        self.engine.pass_time(TIMEOUT_MS)
        self.engine.pass_time(EXPIRE_MS)
        self.engine.write()
        assert self.engine.log.wake_at_ms() is None
        for partition in self.engine.log.partitions():
            assert partition.open == {}
            assert partition.last_stable_offset == partition.end


TestAnyOrder = AnyOrder.TestCase
# Fixed examples: the same tree gives the same verdict.
TestAnyOrder.settings = settings(max_examples=120, stateful_step_count=40, derandomize=True, deadline=None)
