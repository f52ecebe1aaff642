"""
Prometheus metrics of the coordinator.

In: events of the shell, as its `Observer`. Out: the page that the HTTP server returns at /metrics. Requests increment
plain integers, which takes less than a microsecond and cannot fail; metrics over all groups are computed per scrape.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, get_args

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from typing_extensions import override

from rota_coordinator.core.group.answers import Request
from rota_coordinator.core.group.effects import Cause, Round, RoundOpened
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.state import State
from rota_coordinator.runtime.observer import LOG_REQUESTS, Error, Observer
from rota_coordinator.runtime.replicated_state import SlotState
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KINDS: tuple[type[Message], ...] = (*get_args(Request), pb.FindCoordinatorRequest, *LOG_REQUESTS)
# Upper bounds of the buckets, in seconds. Joins and syncs wait for as long as a rebalance takes.
REQUEST_SECONDS = (
    0.0005,
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
    300,
)
APPEND_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REBALANCE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Served(Protocol):
    """The attributes of a slot that the metrics read."""

    @property
    def state(self) -> SlotState: ...

    @property
    def groups(self) -> Groups: ...


class Histogram:
    """A histogram of durations in seconds. Invariant: one count per bound, and one for values beyond the last."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration, in seconds."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total_s += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative count for each bound, and the sum in seconds."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip(
            (*(str(float(bound)) for bound in self._bounds), "+Inf"), self._counts, strict=True
        ):
            below += count
            found.append((bound, below))
        return found, self._total_s


class ConnectionCounts(Protocol):
    """Numbers of connections of the gRPC port by state."""

    # Open connections with an admitted call, and without one.
    @property
    def admitted(self) -> int: ...
    @property
    def strangers(self) -> int: ...

    # Connections closed because of a limit, since the process started.
    @property
    def closed(self) -> int: ...


class Metrics(Observer, Collector):
    """The metrics of one coordinator."""

    def __init__(
        self, slots: Callable[[], Iterable[Served]], connections: Callable[[], ConnectionCounts]
    ) -> None:
        self._slots = slots
        self._connections = connections
        self._requests: Counter[tuple[type[Message], Error]] = Counter({(kind, pb.NONE): 0 for kind in KINDS})
        self._request_seconds = {kind: Histogram(REQUEST_SECONDS) for kind in KINDS}
        self._append_seconds = Histogram(APPEND_SECONDS)
        self._rebalances = dict.fromkeys(Cause, 0)
        self._rebalance_seconds = Histogram(REBALANCE_SECONDS)
        self._lag_seconds = Histogram(LAG_SECONDS)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    @override
    def answered(self, request: Message, error: Error, seconds: float) -> None:
        kind = type(request)
        self._requests[kind, error] += 1
        self._request_seconds[kind].add(seconds)

    @override
    def appended(self, seconds: float) -> None:
        self._append_seconds.add(seconds)

    @override
    def round_changed(self, change: Round) -> None:
        if isinstance(change, RoundOpened):
            self._rebalances[change.cause] += 1
        else:
            self._rebalance_seconds.add(change.unsettled_ms / 1000)

    @override
    def lagged(self, seconds: float) -> None:
        self._lag_seconds.add(seconds)

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    @override
    def collect(self) -> Iterator[Metric]:
        yield from self._of_groups()
        yield from self._of_rebalances()
        yield from self._of_requests()
        yield from self._of_connections()
        yield histogram(
            "append_seconds", "Time the store took to make an append durable.", self._append_seconds
        )
        yield histogram(
            "loop_lag_seconds", "Lateness of the event loop at a periodic timer.", self._lag_seconds
        )

    def _of_groups(self) -> Iterator[Metric]:
        slots = list(self._slots())
        # Groups of slots that another process serves by now are not counted.
        served = [slot for slot in slots if slot.state is SlotState.READY]
        all_groups = [group for slot in served for group in slot.groups.groups.values()]
        states = Counter(group.state for group in all_groups)
        members = sum(len(group.members.by_id) for group in all_groups)
        groups = GaugeMetricFamily(
            named("groups"), "Groups in this process, by Kafka's state.", labels=["state"]
        )
        for state in State:
            groups.add_metric([state.value], states[state])
        yield groups
        yield GaugeMetricFamily(named("members"), "Members of all groups in this process.", members)
        states_of_slots = Counter(slot.state for slot in slots)
        by_state = GaugeMetricFamily(
            named("slots"),
            "Slots, by their state in this process: Down, CatchUp or Ready.",
            labels=["state"],
        )
        for slot_state in SlotState:
            by_state.add_metric([slot_state.value], states_of_slots[slot_state])
        yield by_state

    def _of_rebalances(self) -> Iterator[Metric]:
        opened = CounterMetricFamily(
            named("rebalances"), "Rebalances that were started, by reason.", labels=["reason"]
        )
        for cause, count in self._rebalances.items():
            opened.add_metric([cause.value], count)
        yield opened
        yield histogram(
            "rebalance_seconds",
            "Time that groups were without an assignment, from the start of a rebalance to the leader's assignment.",
            self._rebalance_seconds,
        )

    def _of_connections(self) -> Iterator[Metric]:
        counts = self._connections()
        opened = GaugeMetricFamily(
            named("connections"),
            "Open connections, by state: admitted (a call on it was admitted) or stranger.",
            labels=["state"],
        )
        opened.add_metric(["admitted"], counts.admitted)
        opened.add_metric(["stranger"], counts.strangers)
        yield opened
        yield CounterMetricFamily(
            named("connections_closed"), "Connections that were closed because of a limit.", counts.closed
        )

    def _of_requests(self) -> Iterator[Metric]:
        answered = CounterMetricFamily(
            named("requests"),
            "Requests, by the error in the response or in the first of its parts, or by the gRPC status of a refusal.",
            labels=["api", "error"],
        )
        for (kind, error), count in self._requests.items():
            answered.add_metric([api_of(kind), error_name(error)], count)
        yield answered
        seconds = HistogramMetricFamily(
            named("request_seconds"),
            "Time from a request to its response; joins and syncs wait for the rebalance.",
            labels=["api"],
        )
        for kind, spread in self._request_seconds.items():
            seconds.add_metric([api_of(kind)], *spread.buckets())
        yield seconds


def named(name: str) -> str:
    """Return the full name of a metric."""
    return f"rota_coordinator_{name}"


def histogram(name: str, meaning: str, spread: Histogram) -> HistogramMetricFamily:
    """Return a histogram without labels."""
    buckets, total_s = spread.buckets()
    return HistogramMetricFamily(named(name), meaning, buckets, total_s)


def api_of(kind: type[Message]) -> str:
    """Return the API name of a request type, for the label `api`."""
    return kind.__name__.removesuffix("Request")


def error_name(error: Error) -> str:
    """Return Kafka's name of an error code, or the name of a gRPC status."""
    return error if isinstance(error, str) else pb.ErrorCode.Name(pb.ErrorCode.ValueType(error))
