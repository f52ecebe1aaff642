"""The log's core with a list for a file, and passes of compaction over that list, in steps of which some may be missing."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log import cleaning
from rota_coordinator.core.log.batch import Control, Row
from rota_coordinator.core.log.cleaning import Change, CleaningPass, KeyIndex, PassBounds
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.sparse import records_of
from rota_proto.log.columns import Columns, pack
from rota_proto.log.compression import compress
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import NO_IDENTITY, START_MS, TOPIC, Engine, Producer

Record = tuple[bytes | None, bytes | None]
STEP_ROWS = 3
CONFIG = LogConfig(min_compaction_lag_ms=0)


def keyed(
    records: Sequence[Record], producer: Producer = NO_IDENTITY, sequence: int = -1, codec: int = 0
) -> pb.RecordBatch:
    """A batch of keys and values, a millisecond apart."""
    keys, values = zip(*records, strict=True)
    times = [START_MS + number for number in range(len(records))]
    payload = pack(Columns(list(values), list(keys), times), len(records), START_MS)
    used, payload = compress(codec, payload)
    return pb.RecordBatch(
        count=len(records),
        codec=used,
        payload=payload,
        base_timestamp_ms=START_MS,
        max_timestamp_ms=times[-1],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=bool(producer.transactional_id),
    )


class Compacting(Engine):
    """One compacted topic of one partition."""

    def __init__(self, config: LogConfig = CONFIG, *, delete_retention_ms: int = 0) -> None:
        super().__init__(config)
        request = pb.CreateTopicsRequest()
        request.topics.add(
            name=TOPIC,
            partitions=1,
            cleanup_policy=pb.CLEANUP_POLICY_COMPACT,
            delete_retention_ms=delete_retention_ms,
        )
        self.decide(lambda effects: self.log.create_topics(request, self.topic_id, effects))

    def put(self, *records: Record) -> int:
        """Append a batch of no producer; return its base offset."""
        reply = self.send(keyed(records))
        assert not reply.error_code, reply.error_message
        return reply.base_offset

    def read_rows(self, offset: int, until: int) -> Iterator[Row]:
        """The rows that the store's `read` returns."""
        for row in self.rows:
            if row.header.next_offset > offset and row.header.base_offset < until:
                yield row

    def compact(self, steps: int | None = None) -> CleaningPass | None:
        """Run a pass; with `steps` it ends after so many, as if the process had crashed. None: nothing could be indexed."""
        partition = self.partition()
        limits = cleaning.bounds(partition, self.config, WallMs(self.now_ms))
        index = self.index(limits)
        if index.until <= limits.dirty_start:
            return None
        work = CleaningPass(index, limits.tombstones_until)
        rows = list(self.read_rows(partition.start, index.until))
        for number, first in enumerate(range(0, len(rows), STEP_ROWS)):
            if number == steps:
                return None
            some = rows[first : first + STEP_ROWS]
            changes = work.decide([cleaning.describe(row, partition, limits) for row in some])
            self.rewrite(changes)
            self.log.rewritten(partition.log_id, [change.header for change in changes])
        cleaned = cleaning.after_pass(
            partition.cleaned, work, WallMs(self.now_ms), partition.retention.delete_retention_ms
        )
        self.decide(lambda effects: self.log.cleaned(partition, cleaned, effects))
        return work

    def index(self, limits: PassBounds) -> KeyIndex:
        """The index of the dirty section."""
        index = KeyIndex(limits.dirty_start, self.config.compaction_keys_max)
        dirty = takewhile(
            lambda row: cleaning.is_cleanable(row, limits), self.read_rows(limits.dirty_start, limits.end)
        )
        index.add([cleaning.describe(row, self.partition(), limits) for row in dirty])
        return index

    def rewrite(self, changes: Iterable[Change]) -> None:
        """Change the file."""
        by_offset = {change.header.base_offset: change.row for change in changes}
        for effects in self.writes:
            effects.rows[:] = [
                new for row in effects.rows if (new := by_offset.get(row.header.base_offset, row)) is not None
            ]

    def records(self) -> dict[int, Record]:
        """Records by offset that a reader of committed records receives."""
        partition = self.partition()
        found: dict[int, Record] = {}
        for row in self.rows:
            if row.header.control is not Control.RECORDS or partition.is_aborted(row.header):
                continue
            if row.header.base_offset < partition.last_stable_offset:
                records = records_of(row)
                pairs = zip(records.keys(), records.values(), strict=True)
                found |= zip(records.offsets, pairs, strict=True)
        return found


def state_of(records: dict[int, Record]) -> dict[bytes | None, bytes]:
    """The state that a reader makes of records in the order of their offsets."""
    state: dict[bytes | None, bytes] = {}
    for key, value in records.values():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state
