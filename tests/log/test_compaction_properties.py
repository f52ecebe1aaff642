"""
Compaction under any order of producers, transactions, passes that are cut off, and restarts.

Whatever happens: what is left is as it was appended, what a reader makes of all records stays the same, the state after a restart
is the live one, and a producer goes on as if nothing had been removed.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rota_coordinator.core.log.batch import Control, Header
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from tests.log.compacting import CONFIG, Compacting, Record, keyed, state_of
from tests.log.engine import Producer
from tests.log.test_log_properties import visible

# Two with transactions, one that is idempotent only, and one that is neither.
WHO = st.sampled_from(["copier", "mover", "", "plain"])
RECORDS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), st.sampled_from([b"1", b"2", None])),
    min_size=1,
    max_size=6,
)
EXPIRE_MS = 1_000
DELETE_RETENTION_MS = 300


class AnyPass(RuleBasedStateMachine):
    """One partition, its producers, and what they have appended."""

    def __init__(self) -> None:
        super().__init__()
        config = replace(
            CONFIG, min_compaction_lag_ms=50, sequences_expire_ms=EXPIRE_MS, compaction_keys_max=4
        )
        self.log = Compacting(config, delete_retention_ms=DELETE_RETENTION_MS)
        self.now: dict[str, Producer] = {}
        self.next: Counter[str] = Counter()
        # All records that were appended, and the batches of transactions without an end yet.
        self.appended: dict[int, Record] = {}
        self.open: dict[str, list[int]] = {}
        self.aborted: set[int] = set()

    @initialize()
    def begin(self) -> None:
        for who in ("copier", "mover", ""):
            self.now[who] = self.log.init(who)

    @rule(who=WHO, records=RECORDS, codec=st.sampled_from([0, 1]))
    def produce(self, who: str, records: list[Record], codec: int) -> None:
        producer = self.now.get(who, Producer())
        sequence = self.next[who] if who != "plain" else -1
        reply = self.log.send(keyed(records, producer, sequence, codec), producer=producer)
        assert reply.error_code == codes.NONE
        self.next[who] += len(records)
        offsets = range(reply.base_offset, reply.base_offset + len(records))
        self.appended |= zip(offsets, records, strict=True)
        if producer.transactional_id:
            self.open.setdefault(who, []).extend(offsets)

    @rule(who=st.sampled_from(["copier", "mover"]), commit=st.booleans())
    def end(self, who: str, commit: bool) -> None:
        if who in self.open:
            self.now[who] = self.log.ended(self.now[who], commit=commit)
            self.next[who] = 0
            offsets = self.open.pop(who)
            if not commit:
                self.aborted.update(offsets)

    @rule(ms=st.sampled_from([1, 60, DELETE_RETENTION_MS, EXPIRE_MS]))
    def pass_time(self, ms: int) -> None:
        self.log.now_ms += ms

    @rule(steps=st.sampled_from([None, None, 0, 1, 2]))
    def compact(self, steps: int | None) -> None:
        done = self.log.compact(steps)
        if done is not None:
            keys = [key for offset, (key, _) in self.log.records().items() if offset < done.clean_until]
            assert len(keys) == len(set(keys))
            # A marker is left only where a batch of its producer is.
            producers = {
                row.header.producer_id for row in self.log.rows if row.header.control is Control.RECORDS
            }
            for row in self.log.rows:
                if row.header.control is not Control.RECORDS and row.header.next_offset <= done.index.until:
                    assert row.header.producer_id in producers

    @rule()
    def crash(self) -> None:
        self.log.crash()

    @rule()
    def crash_after_a_snapshot(self) -> None:
        events = self.log.log.snapshot()
        for effects in self.log.writes:
            effects.events.clear()
        self.log.writes[0].events += events
        self.log.crash()

    def committed(self) -> dict[int, Record]:
        """Records that a reader of committed ones would receive without compaction."""
        until = self.log.partition().last_stable_offset
        return {
            offset: record
            for offset, record in self.appended.items()
            if offset < until and offset not in self.aborted
        }

    @invariant()
    def records_that_are_left_are_as_they_were_appended(self) -> None:
        committed = self.committed()
        assert all(committed[offset] == record for offset, record in self.log.records().items())

    @invariant()
    def a_reader_of_all_records_has_the_same_state(self) -> None:
        assert state_of(self.log.records()) == state_of(self.committed())

    @invariant()
    def a_restart_reads_what_the_log_says(self) -> None:
        again = self.log.read()
        assert visible(again) == visible(self.log.log)
        for ours, others in zip(again.partitions(), self.log.log.partitions(), strict=True):
            assert ours.cleaned == others.cleaned
            assert ours.last_stable_offset == others.last_stable_offset
            headers: list[Header] = [row.header for row in self.log.rows]
            assert [ours.is_aborted(header) for header in headers] == list(map(others.is_aborted, headers))
            assert ours.end == others.end == headers[-1].next_offset if headers else True


TestCompaction = AnyPass.TestCase
TestCompaction.settings = settings(max_examples=200, stateful_step_count=40, derandomize=True)
