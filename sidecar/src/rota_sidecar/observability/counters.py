"""
Counters of a sidecar: plain numbers, for metrics and for Fleet.

Updated by `delivery.driver` as an observer; read for each scrape of the metrics and for each report to Fleet.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member import actions as member_do
from rota_sidecar.core.member.messages import Request, Response
from rota_sidecar.core.member.reactions import Error
from rota_sidecar.delivery.observer import Observer
from rota_sidecar.engines.port import Coordination, Refused, Unreachable
from rota_sidecar.membership.driver import MemberEvent, StateChanged
from rota_sidecar.observability.in_flight import InFlightTimer
from rota_sidecar.observability.log_observer import problem_text

OK = "ok"
RETRY = Verdict.RETRY.value
FENCED = pb.ErrorCode.Name(pb.FENCED_INSTANCE_ID)
UNREACHABLE, REFUSED = "unreachable", "refused"
REBALANCES = ("joined", "assigned", "revoked", "lost")
PROCESSING_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
)
BATCH_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
REVOKE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Histogram:
    """Histogram of durations in seconds. `bounds` are the upper bounds of the buckets, ascending."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total_s += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative count of each bucket, as Prometheus has it, and the sum of all durations in seconds."""
        found: list[tuple[str, float]] = []
        below = 0
        bounds = (*(str(float(bound)) for bound in self._bounds), "+Inf")
        for bound, count in zip(bounds, self._counts, strict=True):
            below += count
            found.append((bound, below))
        return found, self._total_s


class QueryCounters:
    """Micro-batches that a streaming query has reported."""

    def __init__(self) -> None:
        self.rows = 0
        # Of the last batch; None: no batch was reported.
        self.rows_per_second: float | None = None
        self.batch_seconds = Histogram(BATCH_SECONDS)

    def add(self, progress: on.QueryProgress) -> None:
        """Count one micro-batch."""
        self.rows += progress.rows
        self.rows_per_second = progress.rows_per_second
        self.batch_seconds.add(progress.batch_seconds)


class Counters(Observer):
    """Counters of one sidecar."""

    observed_events = frozenset(
        {on.Judged, on.Reported, on.Committed, on.Assigned, on.Revoked, on.Lost, on.Attached, on.Detached}
    )
    observed_actions = frozenset(
        {do.Deliver, do.Settled, do.Refuse, do.Problem, do.AwaitSuccessor, do.StopDispatch}
    )
    observes_in_flight = True

    def __init__(self) -> None:
        self.state = "Down"
        # An alert sees the first increase of a series only if the series began before.
        self.heartbeats: Counter[str] = Counter({OK: 0, FENCED: 0})
        self.commits: Counter[str] = Counter({OK: 0})
        self.rebalances: Counter[str] = Counter(dict.fromkeys(REBALANCES, 0))
        self.records: Counter[tuple[str, str]] = Counter()
        self.revoke_seconds = Histogram(REVOKE_SECONDS)
        self.last_revoke_s = 0.0
        self.processing_seconds = Histogram(PROCESSING_SECONDS)
        self.in_flight = InFlightTimer(self.processing_seconds.add)
        self.query = QueryCounters()
        self.last_problem = ""
        # Called after a change of the owned partitions, of the member's state, of the application or of the wait for a successor.
        self.on_change: Callable[[], None] = ignore_change
        self._revoking_since_ms: int | None = None

    @override
    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        match event:
            case StateChanged():
                self.state = event.state
                self.on_change()
            case member_do.Joined():
                self.rebalances["joined"] += 1
            case member_do.Revoke():
                self._revoking_since_ms = now_ms
            case member_do.Assign(partitions=partitions) if partitions:
                self.rebalances["assigned"] += 1
            case member_do.Revoked():
                self._count_loss("revoked", now_ms)
            case member_do.Lost():
                self._count_loss("lost", now_ms)
                self.last_problem = event.reason
            case member_do.Problem():
                self.last_problem = event.message
            case _:
                pass

    @override
    def on_event(self, event: on.Event, now_ms: int) -> None:
        match event:
            case on.Judged():
                self.in_flight.completed(event.judgements, now_ms)
            case on.Reported(progress=on.QueryProgress() as progress):
                self.query.add(progress)
            case on.Committed():
                self.commits[commit_outcome(event)] += 1
            case on.Assigned():
                self._begin_records({partition.topic for partition in event.partitions})
                self.on_change()
            case on.Revoked() | on.Lost():
                self.on_change()
                for partition in event.partitions:
                    self.in_flight.forget(partition)
            case on.Attached() | on.Detached():
                self.in_flight.clear()
                self.on_change()
            case _:
                pass

    @override
    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        for action in actions:
            match action:
                case do.Deliver():
                    self.in_flight.dispatched(action, now_ms)
                case do.Settled():
                    self.records[action.partition.topic, action.verdict] += action.records
                case do.Refuse():
                    self.records[action.partition.topic, REFUSED] += 1
                case do.Problem():
                    self.last_problem = problem_text(action)
                case do.AwaitSuccessor() | do.StopDispatch():
                    self.on_change()
                case _:
                    pass
        self.in_flight.set_records(in_flight, now_ms)

    def fenced_before(self) -> None:
        """Count the fencing that ended the former process of this sidecar: it ended at once, so no scrape has seen its count."""
        self.heartbeats[FENCED] += 1

    @property
    def records_done(self) -> int:
        """Number of records with a final verdict."""
        return sum(count for (_, verdict), count in self.records.items() if verdict not in (RETRY, REFUSED))

    @property
    def dead_letters(self) -> int:
        """Number of records that became dead letters."""
        return sum(
            count for (_, verdict), count in self.records.items() if verdict == Verdict.DEAD_LETTER.value
        )

    def _begin_records(self, topics: Iterable[str]) -> None:
        """Begin the series of the verdicts on a topic's records at 0, so that the first dead letter is an increase."""
        for topic in topics:
            for verdict in Verdict:
                self.records.setdefault((topic, verdict.value), 0)

    def _count_loss(self, kind: str, now_ms: int) -> None:
        self.rebalances[kind] += 1
        if self._revoking_since_ms is not None:
            self.last_revoke_s = (now_ms - self._revoking_since_ms) / 1000
            self.revoke_seconds.add(self.last_revoke_s)
            self._revoking_since_ms = None


class CountedCoordination(Coordination):
    """Coordination that counts heartbeats by outcome and passes every call on."""

    def __init__(self, coordination: Coordination, counters: Counters) -> None:
        self._coordination = coordination
        self._count = counters.heartbeats

    @override
    async def find(self, within_s: float) -> Error:
        return await self._coordination.find(within_s)

    @override
    async def ask(self, request: Request, within_s: float) -> Response:
        if not isinstance(request, pb.HeartbeatRequest):
            return await self._coordination.ask(request, within_s)
        try:
            response = await self._coordination.ask(request, within_s)
        except Unreachable:
            self._count[UNREACHABLE] += 1
            raise
        except Refused:
            self._count[REFUSED] += 1
            raise
        assert isinstance(response, pb.HeartbeatResponse)
        self._count[error_name(response.error_code)] += 1
        return response

    @override
    async def incarnation(self, within_s: float) -> int | None:
        return await self._coordination.incarnation(within_s)

    @override
    async def close(self) -> None:
        await self._coordination.close()


def ignore_change() -> None:
    """Do nothing."""


def commit_outcome(committed: on.Committed) -> str:
    """Return `ok` or the name of the first error."""
    return error_name(next((error for error in committed.errors.values() if error != pb.NONE), pb.NONE))


def error_name(error: Error) -> str:
    """Return Kafka's name of an error; the number of an unknown one."""
    if error == pb.NONE:
        return OK
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)
