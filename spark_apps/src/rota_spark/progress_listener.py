"""Passes the progress of a query, which Spark's listener bus calls for, on to the sidecar's metrics."""

from collections.abc import Callable
from concurrent.futures import Future

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from typing_extensions import override

from rota_proto.sidecar.v1 import sidecar_pb2 as pb


class ProgressListener(StreamingQueryListener):
    """A session's listener, which hears of all queries, and reports the micro-batches of one."""

    def __init__(self, report: Callable[[pb.AttachRequest.Report], None]) -> None:
        self._report = report
        # Of the query, once it has started: its first batch may be complete before. Empty: it did not start.
        self._run_id: Future[str] = Future()

    def started(self, run_id: str) -> None:
        """Report the batches of this run, also those before."""
        self._run_id.set_result(run_id)

    def ended(self) -> None:
        """Let no callback wait for a query that did not start."""
        if not self._run_id.done():
            self._run_id.set_result("")

    @override
    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    @override
    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if str(progress.runId) == self._run_id.result():
            self._report(
                report_of(progress.numInputRows, progress.processedRowsPerSecond, progress.batchDuration)
            )

    @override
    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    @override
    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def report_of(rows: int, rows_per_second: float, batch_duration_ms: int) -> pb.AttachRequest.Report:
    """Return the report of a micro-batch. Spark has NaN or infinity as the rate of a batch that took no time, which is no rate."""
    rate = rows_per_second if 0 <= rows_per_second < float("inf") else 0.0
    progress = pb.AttachRequest.Report.Progress(
        input_rows=rows, processed_rows_per_second=rate, batch_duration_ms=batch_duration_ms
    )
    return pb.AttachRequest.Report(progress=progress)
