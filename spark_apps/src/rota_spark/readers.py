"""
Readers of the data source `rota`: of a group's partitions, and of whole topics.

Two processes have an instance of one. The source's runner, one for each run of a streaming query, is asked for the latest offset, and
plans the next batch of what the sidecar says: the member's partitions, their positions, the end of their logs. Executors read what is
in their input partition. Nothing but the plan travels from one to the other, and credentials do not travel at all.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from typing_extensions import override

from rota.addresses import address_of, is_rota
from rota_spark.core.options import InvalidOption, SourceOptions
from rota_spark.core.plan import EMPTY, Partition, Plan, Range, admit, pack, plan_of
from rota_spark.log_records import LogRecords
from rota_spark.sidecar_calls import SidecarAway, SidecarCalls

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("rota.spark")


class Ranges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class RangesReader:
    """Reads input partitions; the part of both readers that runs on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the records of each range in order."""
        options = self._options
        with records_at(options.bootstrap_servers, read_committed=options.read_committed) as records:
            for each in cast("Ranges", partition).ranges:
                yield from records.read(each)

    def packed(self, ranges: tuple[Range, ...]) -> list[InputPartition]:
        """Divide ranges among the tasks of a batch."""
        return [Ranges(each) for each in pack(ranges, self._options.tasks or len(ranges))]


class TopicReader(RangesReader, DataSourceReader):
    """A batch read of topics, up to their end when it is planned, without a group."""

    @override
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with records_at(options.bootstrap_servers, read_committed=options.read_committed) as records:
            found = tuple(each for each in records.ranges(options.topics) if each.records)
        # Spark would read one partition of its own if there were none.
        return self.packed(found) or [Ranges(())]


class GroupReader(RangesReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    A streaming read of the partitions that the driver's member owns when a batch is planned.

    It keeps no position: a plan begins where the sidecar says that the group is, which is behind the batches that the driver has
    committed. So a seek, a reset and a new assignment take effect in the next plan, and an abandoned batch is planned again.
    """

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._calls: SidecarCalls | None = None
        # With Trigger.AvailableNow: the offsets at which the query is complete, of each partition from when it was first owned.
        self._targets: dict[Partition, int] | None = None
        self._ends: dict[Partition, int] = {}
        self._is_away = False
        # Topics of owned partitions that have no ends.
        self._missing: set[str] = set()

    @override
    def initialOffset(self) -> dict[str, Any]:
        return EMPTY.offset()

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_records)

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        try:
            available = self._available()
        except SidecarAway as error:
            # A rebalance, a restart of the coordinator or of the sidecar: no batch until it is over.
            if not self._is_away:
                log.warning("no new batches until the sidecar answers again (%s)", error)
            self._is_away = True
            return start
        self._is_away = False
        ranges = admit(available, self._records_max(limit))
        return Plan(plan_of(start).number + 1, ranges).offset() if ranges else start

    def _available(self) -> list[Range]:
        calls = self._connected()
        owned, _ = calls.assignment()
        if not owned:
            return []
        positions, ends = calls.positions(owned), calls.ends(owned)
        self._ends = ends
        self._warn_of_missing({topic for topic, _ in positions.keys() - ends.keys()})
        if self._targets is not None:
            for partition, end in ends.items():
                self._targets.setdefault(partition, end)
            ends = {each: min(end, self._targets[each]) for each, end in ends.items()}
        return [
            Range(*each, position, ends[each])
            for each, position in positions.items()
            if position < ends.get(each, position)
        ]

    def _warn_of_missing(self, topics: set[str]) -> None:
        """Warn once about topics without ends: no batch has records of them."""
        if new := sorted(topics - self._missing):
            log.warning(
                "no new records of %s: the topic does not exist any more, or cannot be read; the query goes on with its other topics",
                ", ".join(new),
            )
        self._missing = topics

    def _records_max(self, limit: ReadLimit) -> int:
        most = self._options.max_records
        match limit:
            case ReadMaxRows(max_rows=rows):
                most = min(most, rows)
            case ReadAllAvailable():
                pass
            case _:
                raise InvalidOption(f"the read limit {limit} is not supported: use maxRecordsPerBatch")
        if self._options.limit_file:
            file = Path(self._options.limit_file)
            most = min(most, int(file.read_text())) if file.exists() else most
        return most

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {}

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return {f"{topic}-{partition}": end for (topic, partition), end in sorted(self._ends.items())} or None

    @override
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        return self.packed(plan_of(end).ranges)

    def _connected(self) -> SidecarCalls:
        if self._calls is None:
            self._calls = SidecarCalls(self._options.sidecar)
        return self._calls

    @override
    def stop(self) -> None:
        if self._calls is not None:
            self._calls.close()


def records_at(bootstrap_servers: str, *, read_committed: bool) -> LogRecords:
    """Connect with the credentials of this process's environment. Only executors and batch reads load a client of records."""
    address = address_of(bootstrap_servers)
    if not is_rota(address):
        from rota_spark.kafka_records import KafkaRecords

        return KafkaRecords(address, read_committed=read_committed)
    from rota_spark.rota_records import RotaRecords

    return RotaRecords(address, read_committed=read_committed)
