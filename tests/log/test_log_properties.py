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

from rota_coordinator.core.log.batch import Control, Header
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.log import Log
from rota_coordinator.core.log.partition import Partition
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent
from tests.log.engine import TIMEOUT_MS, TOPIC, Engine, Producer, batch

# Two with transactions, one that is idempotent only.
IDS = ("copier", "mover", "")
WHO = st.sampled_from(IDS)
TRANSACTIONAL = st.sampled_from(IDS[:2])
WRITES = st.booleans()
# The third is there at times.
PARTITIONS = st.sampled_from([0, 0, 0, 1, 1, 2])
EXPIRE_MS = 10 * TIMEOUT_MS
CONFIG = LogConfig(epoch_max=3, producers_expire_ms=EXPIRE_MS)


def visible(log: Log) -> list[object]:
    """Return the state of a log that must be equal whether it was live or replayed."""
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
        self.now = {who: Producer(transactional_id=who) for who in IDS}
        self.before = {who: Producer(transactional_id=who) for who in IDS}
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

    def become(self, who: str) -> None:
        """A new process, or a second one beside the old."""
        self.go_on(who, self.engine.init(who))

    def send(self, who: str, records: int, index: int) -> None:
        """The next batch of a producer."""
        reply = self.engine.produce(self.now[who], self.next[who, index], records, index)
        if reply.error_code == codes.NONE:
            self.next[who, index] += records

    @rule(
        who=WHO, records=st.lists(st.integers(1, 3), min_size=1, max_size=7), index=PARTITIONS, write=WRITES
    )
    def produce(self, who: str, records: list[int], index: int, write: bool) -> None:
        for each in records:
            self.send(who, each, index)
        self.write(write)

    @rule(who=WHO, index=st.integers(0, 1), back=st.integers(1, 7), old=st.booleans())
    def produce_again(self, who: str, index: int, back: int, old: bool) -> None:
        """One of the last batches, because its answer was lost, or late."""
        producer = (self.before if old else self.now)[who]
        found = self.engine.log.partition(TOPIC, index)
        if not isinstance(found, Partition) or producer.producer_id < 0:
            return
        sent = [header for header in self.engine.headers(index) if header[4:6] == producer[:2]]
        if len(sent) >= back and sent[-back].control is Control.RECORDS:
            header, end = sent[-back], found.end
            reply = self.engine.produce(producer, header.base_sequence, header.count, index)
            known = header.next_offset > found.start
            assert reply.error_code or not known or reply.base_offset == header.base_offset
            if reply.error_code == codes.NONE and reply.base_offset == end:
                self.next[who, index] = header.base_sequence + header.count

    @rule(who=WHO, index=PARTITIONS, ahead=st.integers(-3, 3).filter(bool), records=st.integers(1, 3))
    def produce_out_of_order(self, who: str, index: int, ahead: int, records: int) -> None:
        sequence = max(self.next[who, index] + ahead, 0)
        end = len(self.engine.rows)
        reply = self.engine.produce(self.now[who], sequence, records, index)
        if reply.error_code == codes.NONE and len(self.engine.rows) > end:
            self.next[who, index] = sequence + records

    @rule(index=PARTITIONS)
    def produce_without_name(self, index: int) -> None:
        self.engine.send(batch(), batch(records=2), index=index)

    @rule(who=TRANSACTIONAL, group=st.sampled_from("ab"), old=st.booleans())
    def add_group(self, who: str, group: str, old: bool) -> None:
        self.engine.add_group((self.before if old else self.now)[who], group)

    @rule(who=TRANSACTIONAL, how=st.sampled_from(["commit", "commit", "abort", "refused"]), write=WRITES)
    def end(self, who: str, how: str, write: bool) -> None:
        refused = codes.ILLEGAL_GENERATION if how == "refused" else codes.NONE
        reply = self.engine.end(self.now[who], commit=how != "abort", refused=refused)
        if reply.producer_id >= 0:
            producer = Producer(reply.producer_id, reply.producer_epoch, who)
            if producer != self.now[who]:
                self.go_on(who, producer)
        self.write(write)

    @rule(who=TRANSACTIONAL, commit=st.booleans())
    def end_late(self, who: str, commit: bool) -> None:
        reply = self.engine.end(self.before[who], commit=commit)
        if reply.producer_id >= 0:
            assert (reply.producer_id, reply.producer_epoch) == self.now[who][:2]

    @rule(index=PARTITIONS, offset=st.integers(-1, 12))
    def delete_records(self, index: int, offset: int) -> None:
        self.engine.delete_records(offset, index)

    @rule(
        what=st.sampled_from(["time", "replaced", "crash", "compact", "half", "grow", "made again"]),
        data=st.data(),
    )
    def rarely(self, what: str, data: st.DataObject) -> None:
        """One rule for all that would else leave no time for long transactions."""
        match what:
            case "time":
                self.engine.pass_time(data.draw(st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS, EXPIRE_MS])))
            case "replaced":
                self.become(data.draw(WHO))
            case "crash":
                self.crash()
            case "compact":
                self.compact()
            case "half":
                self.engine.write(until=(self.engine.in_file + len(self.engine.writes)) // 2)
            case "grow":
                self.engine.grow(TOPIC, 3)
            case "made again":
                self.engine.delete()
                self.engine.create(partitions=2)
                self.next.clear()

    def write(self, really: bool = True) -> None:
        if really:
            self.engine.write()

    def crash(self) -> None:
        """Lose unwritten batches; no response was sent for them, so no producer has an id from there."""
        self.engine.crash()
        for who in IDS:
            self.now[who] = Producer(transactional_id=who)
            self.become(who)

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
    def every_end_is_reported_once_and_everywhere_the_same(self) -> None:
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
            assert visible(read) == visible(live)
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
        """Stop all producers and readers."""
        self.engine.pass_time(TIMEOUT_MS)
        self.engine.pass_time(EXPIRE_MS)
        self.engine.write()
        assert self.engine.log.wake_at_ms() is None
        for partition in self.engine.log.partitions():
            assert partition.open == {}
            assert partition.last_stable_offset == partition.end


TestAnyOrder = AnyOrder.TestCase
# Fixed examples: the same tree gives the same verdict.
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=40, derandomize=True)
