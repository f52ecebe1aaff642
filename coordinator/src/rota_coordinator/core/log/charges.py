"""
Quota charges of topics and their partition logs to the creators of the topics.

Called by `topic_log` after loading the log, after each decision, and after rows were deleted from the store.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota_coordinator.core.log.batch import Row, stored_bytes
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.topics import Topic
from rota_coordinator.core.quotas import Quotas, Usage


@dataclass(slots=True)
class LogCharge:
    """The charge for one partition's log; the log may outlive its topic until its rows are deleted."""

    principal: str
    # Bytes of rows that are stored or being written.
    bytes: int
    partitions: int = 1


class LogCharges:
    """Invariant: the creator of a topic is charged for the topic, its partitions, and all their stored rows."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._topics: set[str] = set()
        self._logs: dict[int, LogCharge] = {}

    def clear(self) -> None:
        """Remove all charges; called when this process stops serving the log."""
        for name in self._topics:
            self._quotas.discharge(("topic", name))
        for log_id in self._logs:
            self._quotas.discharge(("log", log_id))
        self._topics.clear()
        self._logs.clear()

    def load(self, topics: Iterable[Topic], sizes: Mapping[int, int]) -> None:
        """Charge for all topics of a loaded log; `sizes` maps a log id to the bytes of its rows."""
        self.clear()
        for topic in topics:
            self.topic_created(topic, sizes)

    def decided(self, effects: Effects, topic_of: Callable[[str], Topic | None]) -> None:
        """Charge the creators of topics for the effects of a decision."""
        for event in effects.events:
            if event.HasField("topic_created"):
                topic = topic_of(event.topic_created.name)
                assert topic is not None, "a request creates a topic or deletes it"
                self.topic_created(topic, {})
            elif event.HasField("topic_deleted"):
                self.topic_deleted(event.topic_deleted.name)
        self.logs_dropped(effects.dropped)
        self.appended(effects.rows)

    def topic_created(self, topic: Topic, sizes: Mapping[int, int]) -> None:
        """Charge for a topic that was created or has grown."""
        self._topics.add(topic.name)
        self._quotas.charge(("topic", topic.name), topic.created_by, Usage(topics=1))
        for partition in topic.partitions:
            if partition.log_id not in self._logs:
                self._logs[partition.log_id] = LogCharge(topic.created_by, sizes.get(partition.log_id, 0))
                self._charge(partition.log_id)

    def topic_deleted(self, name: str) -> None:
        """Discharge a deleted topic; its rows stay charged until `dropped`."""
        self._topics.discard(name)
        self._quotas.discharge(("topic", name))

    def logs_dropped(self, log_ids: Iterable[int]) -> None:
        """Discharge the partitions of a deleted topic; their rows stay charged until `dropped`."""
        for log_id in log_ids:
            self._logs[log_id].partitions = 0
            self._charge(log_id)

    def appended(self, rows: Sequence[Row]) -> None:
        """Charge for rows that are being written."""
        changed = set()
        for row in rows:
            self._logs[row.log_id].bytes += stored_bytes(row)
            changed.add(row.log_id)
        for log_id in changed:
            self._charge(log_id)

    def dropped(self, log_id: int, freed_bytes: int) -> None:
        """Discharge bytes of rows that were deleted from the store."""
        charge = self._logs.get(log_id)
        if charge is None:
            return  # rows of a topic that was deleted before the log was loaded
        charge.bytes -= freed_bytes
        if charge.partitions or charge.bytes > 0:
            self._charge(log_id)
        else:
            del self._logs[log_id]
            self._quotas.discharge(("log", log_id))

    def _charge(self, log_id: int) -> None:
        charge = self._logs[log_id]
        usage = Usage(partitions=charge.partitions, log_bytes=charge.bytes)
        self._quotas.charge(("log", log_id), charge.principal, usage)
