"""
Reports the timestamp of the first uncommitted record of each partition to the sidecar, for `rota_lag_seconds`.

Spark reads the records on executors, and the sidecar reads none, so that neither of the driver and the sidecar knows how old the
group's backlog is. A thread looks each position's record up, when a batch begins or ends and every INTERVAL_S: beside the batch,
which does not wait for it. It also looks up the record behind the batch in flight, which is the first uncommitted one after its
commit. A report has `timestamp_only`: it moves no position.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

import grpc

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_spark.core.first_times import FirstTime, FirstTimes
from rota_spark.core.plan import Partition
from rota_spark.first_records import FirstRecords
from rota_spark.log_records import ReadFailed
from rota_spark.sidecar_calls import SidecarAway, SidecarCalls, partition_message

log = logging.getLogger("rota.spark")
# Records that arrive behind all batches are looked up within this time.
INTERVAL_S = 5.0
CLOSE_S = 5.0


class Reporting(Protocol):
    """The membership whose partitions are reported."""

    @property
    def tenures(self) -> Mapping[Partition, int]:
        """Number of the tenure of each partition."""
        ...

    def report(self, report: pb.AttachRequest.Report) -> None:
        """Send a report to the sidecar."""
        ...


class LagReports:
    """Invariant: a timestamp is reported once for each tenure and position."""

    def __init__(
        self, membership: Reporting, calls: SidecarCalls, connect: Callable[[], FirstRecords]
    ) -> None:
        self._membership = membership
        self._calls = calls
        self._connect = connect
        self._times = FirstTimes()
        self._ends_in_flight: Mapping[Partition, int] = {}
        self._reported: dict[Partition, tuple[int, FirstTime]] = {}
        self._wake = threading.Event()
        self._closing = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="rota-lag", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self, ends_in_flight: Mapping[Partition, int]) -> None:
        """Look soon: a batch up to these offsets has begun, or none is in flight any more."""
        self._ends_in_flight = ends_in_flight
        self._wake.set()

    def close(self) -> None:
        """Stop the thread, after the look that it has begun, at most CLOSE_S."""
        self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            records = self._connect()
        except ReadFailed as error:
            self._warn(str(error))
            return
        with records:
            while not self._closing:
                try:
                    self._warn(self._look_at(records))
                except grpc.RpcError as error:
                    self._warn(str(error))
                except SidecarAway:
                    # The query says so itself, and goes on when it is back.
                    pass
                self._wake.wait(INTERVAL_S)
                self._wake.clear()

    def _look_at(self, records: FirstRecords) -> str:
        """Look up what is not known, and report the present positions; return a problem, or an empty string."""
        tenures, problem = self._membership.tenures, ""
        if not tenures:
            return problem
        positions, ends = self._calls.positions(tenures), self._calls.ends(tenures)
        next_positions = {each: at for each, at in self._ends_in_flight.items() if each in positions}
        self._times.keep(positions, next_positions)
        for offsets in (positions, next_positions):
            if unknown := self._times.unknown(offsets, ends):
                found = records.look_up(unknown)
                self._times.add(unknown, found.times_ms)
                problem = problem or found.problem
            if offsets is positions:
                self._report(tenures, self._times.at(positions))
        return problem

    def _report(self, tenures: Mapping[Partition, int], found: Mapping[Partition, FirstTime]) -> None:
        wanted = {each: (tenures[each], time) for each, time in found.items()}
        new = {each: said for each, said in wanted.items() if self._reported.get(each) != said}
        self._reported = wanted
        if new:
            self._membership.report(
                pb.AttachRequest.Report(
                    positions=[
                        pb.AttachRequest.Report.Position(
                            partition=partition_message(each),
                            tenure_number=tenure,
                            position=time.offset,
                            timestamp_ms=time.timestamp_ms,
                            timestamp_only=True,
                        )
                        for each, (tenure, time) in sorted(new.items())
                    ]
                )
            )

    def _warn(self, problem: str) -> None:
        """Warn once about each problem."""
        if problem and problem != self._problem and not self._closing:
            log.warning(
                "the age of the first uncommitted record (rota_lag_seconds) is not known: %s; the query goes on. The driver "
                "looks that record up with the credentials of its own environment",
                problem,
            )
        self._problem = problem
