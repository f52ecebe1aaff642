"""The rule over the offsets of transactions, held against what is written: the commit that was written last counts."""

from collections import Counter
from dataclasses import dataclass, field

from rota_coordinator.core.group.offsets import Offsets
from rota_proto.coordinator.v1.records_pb2 import OffsetCommitted, ProducerEnded, Record
from tests.simulation.invariants import Violation

# No member reads it, so that the rules of members and those of transactions do not mix.
TOPIC_OF_PRODUCERS = "transactional"
PARTITIONS_OF_PRODUCERS = 2


@dataclass(slots=True)
class Write:
    """A commit in the log; `producer_id` is that of a transaction which has not ended yet."""

    offset: int
    producer_id: int | None


@dataclass(slots=True)
class TransactionalHistory:
    """The commits of one group to the topic of producers, by partition, in the order of the log."""

    writes: dict[int, list[Write]] = field(default_factory=dict)
    met: "Counter[str]" = field(default_factory=Counter)

    def wrote(self, record: Record) -> bool:
        """A record became durable; whether it is about the topic of producers."""
        match record.WhichOneof("record"):
            case "offset_pending" if record.offset_pending.offset.topic == TOPIC_OF_PRODUCERS:
                self._wrote_commit(record.offset_pending.offset, record.offset_pending.producer_id)
            case "offset_committed" if record.offset_committed.topic == TOPIC_OF_PRODUCERS:
                self._wrote_commit(record.offset_committed, None)
            case "producer_ended":
                self._ended(record.producer_ended)
            case "offset_removed" if record.offset_removed.topic == TOPIC_OF_PRODUCERS:
                self.writes.pop(record.offset_removed.partition, None)
            case "group_removed":
                self.writes.clear()
                return False  # the rules of members need it too
            case _:
                return False
        return True

    def _wrote_commit(self, offset: OffsetCommitted, producer_id: int | None) -> None:
        self.writes.setdefault(offset.partition, []).append(Write(offset.offset, producer_id))

    def _ended(self, ended: ProducerEnded) -> None:
        for partition, writes in self.writes.items():
            held = [write for write in writes if write.producer_id == ended.producer_id]
            others = [write for write in writes if write.producer_id not in (None, ended.producer_id)]
            self.met["a transaction ends while another one holds an offset of its partition"] += bool(
                held and others
            )
            if ended.committed:
                for write in held:
                    write.producer_id = None
            else:
                self.writes[partition] = [write for write in writes if write not in held]

    def check(self, read: Offsets) -> None:
        """Check that each partition's committed offset is the last written commit that counts."""
        expected = {
            partition: counting[-1].offset
            for partition, writes in self.writes.items()
            if (counting := [write for write in writes if write.producer_id is None])
        }
        found = {
            where.partition: stored.offset.offset
            for where, stored in read.committed.items()
            if where.topic == TOPIC_OF_PRODUCERS
        }
        if found != expected:
            raise Violation("S18", f"{found} is committed; by the order of commits it is {expected}")
