"""
The driver helper: `process` runs a streaming query whose offsets are the group's.

    query = rota_spark.process(spark, write, Settings(bootstrap_servers=…, group_id=…, topics=…))

It attaches to the sidecar, makes a checkpoint for this run, and starts the query. For each micro-batch it reads the plan from the
checkpoint, keeps the ranges that begin at the group's position, lets the sink write their records, and commits their ends. The
checkpoint is disposable: the next run begins where the group is.
"""

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from typing_extensions import override

from rota import GroupMetadata
from rota.clocks import system_clocks
from rota_spark.columns import arrow_problem, installed_arrow
from rota_spark.core.limit import BatchLimit
from rota_spark.core.options import BOOTSTRAP_SERVERS, LIMIT_FILE, MAX_RECORDS, SIDECAR, TASKS, InvalidOption
from rota_spark.core.plan import Partition, Range, ends, plan_in_log
from rota_spark.first_records import first_records_at
from rota_spark.lag_reports import LagReports
from rota_spark.membership import Batch, Member, Membership, MembershipFailed
from rota_spark.own_sidecar import OwnSidecar
from rota_spark.progress_listener import ProgressListener
from rota_spark.settings import Settings
from rota_spark.sidecar_calls import SidecarAway, SidecarCalls
from rota_spark.source import RotaDataSource

log = logging.getLogger("rota.spark")
# Writes the results of a batch; it must not return before they are durable.
Write = Callable[[DataFrame], object]
# Members of this driver by servers and group: a second query would be a second member that works for the same results.
_running: set[tuple[str, str]] = set()
_lock = threading.Lock()


class Sink(Protocol):
    """Writes the results of batches, and may keep their offsets with them."""

    def assigned(self, partitions: Collection[Partition], group: GroupMetadata, member: Member) -> None:
        """Prepare for partitions that the member received, before they are acknowledged."""
        ...

    def write(self, records: DataFrame, batch: Batch, member: Member) -> bool:
        """Write the results of a batch durably; return False if nothing of them is kept, so that nothing is to be committed."""
        ...


class Function(Sink):
    """The sink of a function: results first, offsets afterwards, so that a crash between the two repeats the batch."""

    def __init__(self, write: Write) -> None:
        self._write = write

    @override
    def assigned(self, partitions: Collection[Partition], group: GroupMetadata, member: Member) -> None:
        pass

    @override
    def write(self, records: DataFrame, batch: Batch, member: Member) -> bool:
        self._write(records)
        return True


def process(
    spark: SparkSession,
    sink: Sink | Write,
    settings: Settings,
    *,
    trigger: Mapping[str, object] | None = None,
) -> "Query":
    """
    Start a streaming query of a group's member.

    `sink` is a function of a DataFrame, called once for each micro-batch (at least once), or a `SqlSink` (exactly once). `trigger`
    is Spark's: `{"processingTime": "1 second"}` or `{"availableNow": True}`; without it batches follow each other. Raises
    MembershipFailed if the group cannot be joined, and InvalidOption.

    >>> with rota_spark.process(spark, write, settings) as query:                        # doctest: +SKIP
    ...     query.await_termination()
    """
    query = Query(spark, sink if not callable(sink) else Function(sink), settings)
    try:
        query.start(trigger or {})
    except BaseException:
        query.stop()
        raise
    return query


class Query:
    """A running query. Invariant: when Spark's query has ended it leaves the group; after `stop` its checkpoint is removed."""

    def __init__(self, spark: SparkSession, sink: Sink, settings: Settings) -> None:
        self._spark = spark
        self._sink = sink
        self._settings = settings
        self._clock_s = system_clocks().monotonic_s
        self._limit = BatchLimit(settings.max_records_per_batch, settings.max_batch_seconds)
        self._own: OwnSidecar | None = None
        self._calls: SidecarCalls | None = None
        self._membership: Membership | None = None
        self._lag: LagReports | None = None
        self._progress: ProgressListener | None = None
        self._key = ("", "")
        self._streaming: StreamingQuery | None = None
        self._folder: Path | None = None
        self._failure: MembershipFailed | None = None
        # The error of the batch that ended the query.
        self._batch_error: Exception | None = None
        self._leaving = threading.Lock()
        self._has_left = False
        self._watching = threading.Thread(target=self._watch, name="rota-query-end", daemon=True)

    @property
    def streaming(self) -> StreamingQuery:
        """Spark's query."""
        if self._streaming is None:
            raise MembershipFailed("the query is not started")
        return self._streaming

    def start(self, trigger: Mapping[str, object]) -> None:
        """Join the group, and start the query."""
        if problem := arrow_problem(installed_arrow()):
            raise MembershipFailed(problem)
        settings = self._settings
        self._calls = SidecarCalls(self._join())
        self._membership = Membership(self._calls, settings.client_id, self._on_failed, self._sink.assigned)
        self._membership.start(settings.start_within_seconds)
        self._lag = LagReports(
            self._membership,
            self._calls,
            partial(first_records_at, settings.bootstrap_servers, read_committed=True),
        )
        self._lag.start()
        self._folder = Path(tempfile.mkdtemp(prefix="rota-spark-", dir=settings.checkpoint_folder or None))
        self._spark.dataSource.register(RotaDataSource)
        reader = self._spark.readStream.format("rota").options(**self._options())
        writer = reader.load().writeStream.foreachBatch(self._process)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        self._progress = ProgressListener(self._membership.report)
        self._spark.streams.addListener(self._progress)
        self._streaming = _triggered(writer, trigger).start()
        self._progress.started(str(self._streaming.runId))
        self._watching.start()
        # Before this the membership that failed had no query to stop.
        if self._failure is not None:
            raise self._failure

    def _join(self) -> str:
        """Return the address of the sidecar, which is started if none runs."""
        settings = self._settings
        address = settings.running_sidecar(os.environ)
        key = (address, "") if address else (settings.bootstrap_servers, settings.group_id)
        with _lock:
            if key in _running:
                raise MembershipFailed(
                    f"a query of this driver is a member of the group already ({' '.join(filter(None, key))}): one query has all "
                    "of a member's partitions; stop it first, or start another driver for a second member"
                )
            _running.add(key)
            self._key = key
        if address:
            return address
        self._own = OwnSidecar(settings)
        self._own.start()
        return self._own.address

    def _options(self) -> dict[str, str]:
        settings = self._settings
        assert self._calls is not None
        return {
            BOOTSTRAP_SERVERS: settings.bootstrap_servers,
            SIDECAR: self._own.address if self._own is not None else self._key[0],
            MAX_RECORDS: str(settings.max_records_per_batch),
            TASKS: str(settings.input_partitions or self._spark.sparkContext.defaultParallelism),
            LIMIT_FILE: str(self._limit_file),
        }

    @property
    def _checkpoint(self) -> Path:
        assert self._folder is not None
        return self._folder / "checkpoint"

    @property
    def _limit_file(self) -> Path:
        assert self._folder is not None
        return self._folder / "limit"

    def _process(self, records: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; Spark calls it in a thread of its own."""
        plan = plan_in_log((self._checkpoint / "offsets" / str(batch_id)).read_text())
        assert self._membership is not None
        assert self._lag is not None
        began_s = self._clock_s()
        try:
            batch = self._membership.begin(plan)
            self._lag.look(ends(batch.ranges))
            committed = self._write(records, batch) if batch.ranges else {}
        except SidecarAway as error:
            log.warning("batch %s is abandoned: the sidecar does not answer (%s)", batch_id, error)
            return
        except Exception as error:
            self._batch_error = error
            raise
        finally:
            self._membership.end()
            self._lag.look({})
        if batch.dropped:
            log.info(
                "batch %s leaves out %s ranges that are not this member's to process now",
                batch_id,
                len(batch.dropped),
            )
        self._adapt(batch, committed, self._clock_s() - began_s)

    def _write(self, records: DataFrame, batch: Batch) -> Mapping[Partition, int]:
        assert self._membership is not None
        kept = _without(records, batch.dropped) if batch.dropped else records
        is_kept = self._sink.write(kept, batch, self._membership.member)
        return self._membership.commit(batch) if is_kept else {}

    def _adapt(self, batch: Batch, committed: Mapping[Partition, int], seconds: float) -> None:
        """Set the size of the next batches, which the source's runner reads from a file."""
        before = self._limit.records
        if committed.keys() == ends(batch.ranges).keys():
            self._limit.committed(batch.records, seconds)
        else:
            self._limit.expelled(batch.records)
        if self._limit.records != before:
            log.info("batches have at most %s records from now on", self._limit.records)
            written = self._limit_file.with_suffix(".new")
            written.write_text(str(self._limit.records))
            written.replace(self._limit_file)

    def _on_failed(self, failure: MembershipFailed) -> None:
        """End Spark's query when the membership has ended: without it nothing can be committed."""
        log.error("%s", failure)
        self._failure = failure
        if self._streaming is not None:
            self._streaming.stop()

    def _watch(self) -> None:
        """Leave the group when Spark's query has ended: a member without a query would keep its partitions from others."""
        try:
            self.streaming.awaitTermination()
        except Exception as error:  # noqa: BLE001 - the thread's edge: `await_termination` raises it again
            log.error(  # noqa: TRY400 - the error has the traces of two languages already
                "the query failed, and leaves the group; nothing of the batch in flight is committed: %s",
                self._batch_error or error,
            )
        self._leave()

    def _leave(self) -> None:
        """Leave the group; further calls have no effect."""
        with self._leaving:
            if self._has_left:
                return
            self._has_left = True
            if self._membership is not None:
                self._membership.close()
            if self._own is not None:
                self._own.close()
            if self._lag is not None:
                self._lag.close()
            if self._progress is not None:
                self._progress.ended()
                self._spark.streams.removeListener(self._progress)
            with _lock:
                _running.discard(self._key)

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the query has ended and left the group; return False after the timeout. Raises its error, or MembershipFailed."""
        try:
            if timeout_seconds is None:
                self.streaming.awaitTermination()
            elif not self.streaming.awaitTermination(timeout_seconds):  # type: ignore[arg-type]
                return False
        except StreamingQueryException:
            self._watching.join()
            raise
        self._watching.join()
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Stop the query, leave the group, and remove the checkpoint. The batch in flight is abandoned."""
        if self._streaming is not None:
            self._streaming.stop()
        self._leave()
        if self._watching.ident is not None:
            self._watching.join()
        if self._calls is not None:
            self._calls.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _triggered(writer: DataStreamWriter, trigger: Mapping[str, object]) -> DataStreamWriter:
    match trigger:
        case {"processingTime": str(interval)} if len(trigger) == 1:
            return writer.trigger(processingTime=interval)
        case {"availableNow": True} if len(trigger) == 1:
            return writer.trigger(availableNow=True)
        case {} if not trigger:
            return writer
    raise InvalidOption(
        f'trigger is {trigger}: use {{"processingTime": "1 second"}} or {{"availableNow": True}}, or omit it'
    )


def _without(records: DataFrame, dropped: Sequence[Range]) -> DataFrame:
    """Leave out the records of ranges."""
    conditions: list[Column] = [
        (sql.col("topic") == each.topic) & (sql.col("partition") == each.partition) for each in dropped
    ]
    return records.filter(~reduce(lambda one, other: one | other, conditions))
