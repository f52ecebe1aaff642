"""The recent reports of one sidecar, and what is derived from them: processing rate, problems."""

from collections import deque
from typing import NamedTuple

from rota_operator.overview.assignment import Partition
from rota_proto.fleet.v1 import fleet_pb2 as pb

# A sidecar reports each second; without a report for this long its state is unknown.
REPORT_VALID_MS = 5_000
# Window over which the processing rate is computed.
RATE_WINDOW_MS = 5_000
RATE_WINDOW_MIN_MS = 900
SAMPLES_MAX = 100
# Maximum number of partitions that one line names; the rest is counted.
PROBLEM_PARTITIONS_SHOWN = 20


class Sample(NamedTuple):
    """Number of records processed up to a time."""

    at_ms: int
    records_done: int


class SidecarReports:
    """
    Reports of one sidecar; they expire after REPORT_VALID_MS.

    Invariant: `partitions` are those of `last`, in its order.
    """

    def __init__(self) -> None:
        # Valid until it expires; see `known`.
        self.last: pb.SidecarReport | None = None
        self.partitions: tuple[Partition, ...] = ()
        self.at_ms = 0
        self._content: object = None
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)

    def update(self, report: pb.SidecarReport, now_ms: int) -> bool:
        """
        Add a report; a lower record count than before means that the sidecar has restarted.

        Returns whether it says anything new apart from numbers and times, as the first one after a silence does.
        """
        was = self._content if self.known(now_ms) is not None else None
        self.partitions = tuple(map(partition_of, report.partitions))
        self._content = content_of(report, self.partitions)
        done = report.member.records_done
        if self._samples and done < self._samples[-1].records_done:
            # The sidecar was restarted, and its counter starts anew.
            self._samples.clear()
        self._samples.append(Sample(now_ms, done))
        while self._samples[0].at_ms < now_ms - RATE_WINDOW_MS:
            self._samples.popleft()
        self.last, self.at_ms = report, now_ms
        return was != self._content

    def known(self, now_ms: int) -> pb.SidecarReport | None:
        """The last report; None once expired."""
        return self.last if now_ms - self.at_ms <= REPORT_VALID_MS else None

    def done_rate(self, now_ms: int) -> float | None:
        """Processed records per second over the last RATE_WINDOW_MS; None if unknown."""
        if self.known(now_ms) is None:
            return None
        first, last = self._samples[0], self._samples[-1]
        over_ms = last.at_ms - first.at_ms
        if over_ms < RATE_WINDOW_MIN_MS:
            return None
        return (last.records_done - first.records_done) * 1000 / over_ms


def partition_of(report: pb.PartitionReport) -> Partition:
    """Topic and number of a reported partition."""
    return Partition(report.topic, report.partition)


def content_of(report: pb.SidecarReport, partitions: tuple[Partition, ...]) -> object:
    """Return everything of a report but its numbers and times, for comparison."""
    member = report.member
    return (
        partitions,
        member.state,
        member.incarnation,
        member.generation_id,
        member.member_id,
        (member.suspended, member.draining, member.ready),
        (member.last_error, member.readiness_problem, tuple(member.problems)),
        [each.problem for each in report.partitions],
        (report.version, report.cluster_id),
    )


def problems_of(report: pb.SidecarReport) -> tuple[str, ...]:
    """Problems of the member and of its partitions, one line each; partitions with the same problem share a line."""
    named: dict[str, list[str]] = {}
    for each in report.partitions:
        if each.problem:
            named.setdefault(each.problem, []).append(partition_of(each).text)
    return (*report.member.problems, *(f"{_shown(names)}: {says}" for says, names in named.items()))


def _shown(names: list[str]) -> str:
    more = (
        f" and {len(names) - PROBLEM_PARTITIONS_SHOWN} more" if len(names) > PROBLEM_PARTITIONS_SHOWN else ""
    )
    return ", ".join(names[:PROBLEM_PARTITIONS_SHOWN]) + more
