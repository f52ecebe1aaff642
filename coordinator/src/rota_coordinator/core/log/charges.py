"""
Quota charges of topics and their partition logs to the creators of the topics.

Called by `topic_log` when the log was read, after each decision, and when rows were deleted from the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota_coordinator.core.log.batch import Row, stored_bytes
from rota_coordinator.core.log.topics import Topic
from rota_coordinator.core.quotas import Quotas, Usage


@dataclass(slots=True)
class LogCharge:
    """The log of one partition, whose topic may be gone."""

    principal: str
    # In the file or on their way there.
    bytes: int
    partitions: int = 1


class LogCharges:
    """Invariant: the creator of a topic is charged for it, for its partitions, and for all of their rows in the file."""

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
        """Charge for all topics of a log that was read; `sizes` are the bytes of each partition's rows."""
        self.clear()
        for topic in topics:
            self.topic_created(topic, sizes)

    def topic_created(self, topic: Topic, sizes: Mapping[int, int]) -> None:
        """A topic was created, or has more partitions."""
        self._topics.add(topic.name)
        self._quotas.charge(("topic", topic.name), topic.created_by, Usage(topics=1))
        for partition in topic.partitions:
            if partition.log_id not in self._logs:
                self._logs[partition.log_id] = LogCharge(topic.created_by, sizes.get(partition.log_id, 0))
                self._charge(partition.log_id)

    def topic_deleted(self, name: str) -> None:
        """A topic was deleted; its rows are still in the file."""
        self._topics.discard(name)
        self._quotas.discharge(("topic", name))

    def logs_dropped(self, log_ids: Iterable[int]) -> None:
        """The topic of these logs was deleted."""
        for log_id in log_ids:
            self._logs[log_id].partitions = 0
            self._charge(log_id)

    def appended(self, rows: Sequence[Row]) -> None:
        """Rows are on their way to the file."""
        changed = set()
        for row in rows:
            self._logs[row.log_id].bytes += stored_bytes(row)
            changed.add(row.log_id)
        for log_id in changed:
            self._charge(log_id)

    def dropped(self, log_id: int, freed_bytes: int) -> None:
        """Rows are not in the file any more."""
        charge = self._logs.get(log_id)
        if charge is None:
            return  # left over from a topic that was deleted before the log was read
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
