"""Deliveries that record their events and answer as a test sets them to; and records to dispatch."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.columns import Columns, Headers, pack
from rota_sidecar.application.port import Application, AttachedAlready, Deliveries
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.ledger.batches import Batch, BatchSlice, Dispatch
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.engines.records import FetchRequest, OffsetAndTimestamp, RecordBatch, Records

ApplicationEvent = TypeVar("ApplicationEvent", on.Acknowledged, on.Credit, on.Judged, on.Reported)
P0 = Partition("orders", 0)
P1 = Partition("orders", 1)
TENURE = Tenure(1, "member-1", 4, 77)
BASE_MS = 1_700_000_000_000
NOW_MS = 5_000


class FakeRecords(Records):
    """Only looks up."""

    def __init__(self) -> None:
        self.known: dict[Partition, on.Bounds] = {}
        self.times: dict[Partition, OffsetAndTimestamp] = {}
        self.fails: Exception | None = None

    @override
    def fetch(self, wanted: FetchRequest) -> None:
        raise AssertionError("applications do not fetch")

    @override
    def stop(self, delivery_epoch: int) -> None:
        raise AssertionError("applications do not fetch")

    @override
    async def bounds(
        self, partitions: Collection[Partition], within_s: float
    ) -> Mapping[Partition, on.Bounds]:
        if self.fails is not None:
            raise self.fails
        return {each: self.known[each] for each in partitions if each in self.known}

    @override
    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, OffsetAndTimestamp]:
        return {each: self.times[each] for each in times if each in self.times}

    @override
    async def close(self) -> None:
        raise AssertionError("applications close nothing of the sidecar's")


class FakeDeliveries(Deliveries):
    """One application at a time, as the real ones; nothing happens by itself."""

    def __init__(self, config: DeliveryConfig | None = None) -> None:
        self.set_to = config or DeliveryConfig("shop.orders")
        self.application: Application | None = None
        self.attached: list[tuple[bool, bool, bool]] = []
        self.takes_commits = False
        self.detached: list[tuple[int, bool]] = []
        self.events: list[object] = []
        self.asked: list[on.ApplicationRequest | on.ResetOffsets] = []
        self.answers: list[do.Answer | BaseException] = []
        self.wanted: list[object] = []
        self.hangs = False
        self.stored: dict[Partition, on.Stored] = {}
        self.counts: dict[str, int] = {}
        self.samples: list[tuple[str, dict[str, str], float]] = []
        self.looked_up = FakeRecords()
        self.is_held: dict[Partition, Tenure] = {}
        self.is_paused: frozenset[Partition] = frozenset()
        self.stands_at: dict[Partition, int] = {}
        self.session = 0
        self._news = asyncio.Event()

    @property
    @override
    def config(self) -> DeliveryConfig:
        return self.set_to

    @property
    @override
    def records(self) -> Records:
        return self.looked_up

    @override
    def now_ms(self) -> int:
        return NOW_MS

    @override
    def attach(
        self,
        application: Application,
        *,
        commits_itself: bool,
        reads_itself: bool,
        takes_many: bool,
        takes_commits: bool = False,
    ) -> int:
        if self.application is not None:
            raise AttachedAlready(
                "an application is already attached, and a sidecar serves one: stop it first"
            )
        self.session += 1
        self.application = application
        self.attached.append((commits_itself, reads_itself, takes_many))
        self.takes_commits = takes_commits
        self._news.set()
        return self.session

    @override
    def detach(self, session: int, *, clean: bool) -> None:
        if self.application is not None and session == self.session:
            self.application = None
            self.detached.append((session, clean))
            self._news.set()

    @override
    def on_application_event(self, event: on.Acknowledged | on.Credit | on.Judged | on.Reported) -> None:
        self.events.append(event)
        self._news.set()

    @override
    async def ask(self, asked: on.ApplicationRequest | on.ResetOffsets) -> do.Answer:
        self.asked.append(asked)
        if self.hangs:
            await asyncio.Event().wait()
        answer = self.answers.pop(0) if self.answers else do.Answer(1)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @override
    async def subscribe(self, topics: Sequence[str], pattern: str) -> None:
        self.wanted.append((list(topics), pattern))

    @override
    async def assign(self, partitions: frozenset[Partition]) -> None:
        self.wanted.append(partitions)

    @override
    async def committed(
        self, partitions: Sequence[Partition], within_s: float
    ) -> Mapping[Partition, on.Stored]:
        return {each: self.stored[each] for each in partitions if each in self.stored}

    @override
    async def partitions_of(self, topic: str, within_s: float) -> int | None:
        return self.counts.get(topic)

    @override
    async def topics(self, within_s: float) -> Collection[str]:
        return self.counts

    @property
    @override
    def held(self) -> Mapping[Partition, Tenure]:
        return self.is_held

    @property
    @override
    def paused(self) -> frozenset[Partition]:
        return self.is_paused

    @property
    @override
    def positions(self) -> Mapping[Partition, int]:
        return self.stands_at

    # ---------------------------------------------------------------------------------- for tests

    @property
    def there(self) -> Application:
        """The attached application."""
        assert self.application is not None
        return self.application

    def all(self, kind: type[ApplicationEvent]) -> list[ApplicationEvent]:
        """Return the events of a kind."""
        return [each for each in self.events if isinstance(each, kind)]

    @property
    def credit(self) -> int:
        """Granted so far."""
        return sum(each.records for each in self.all(on.Credit))

    @property
    def judgements(self) -> list[on.Judgement]:
        """The verdicts of all events."""
        return [judgement for each in self.all(on.Judged) for judgement in each.judgements]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until that is so."""
        while not holds():
            self._news.clear()
            await self._news.wait()


def rebalance_event(
    event_id: int,
    kind: do.Kind,
    *partitions: Partition,
    tenure: Tenure | None = TENURE,
    deadline_ms: int | None = None,
) -> do.AssignmentEvent:
    return do.AssignmentEvent(event_id, kind, frozenset(partitions), tenure, deadline_ms)


def batch(
    first: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> Batch:
    """As an engine reads one."""
    count = len(values)
    payload = pack(Columns(values=values, keys=keys, headers=headers), count, BASE_MS)
    content = RecordBatch(
        base_offset=first,
        base_timestamp_ms=BASE_MS,
        max_timestamp_ms=BASE_MS,
        count=count,
        payload=payload,
        producer_id=-1,
    )
    return Batch(first, count, len(payload), content)


def damaged(first: int, count: int) -> Batch:
    """Return a batch that cannot be unpacked."""
    whole = batch(first, [b"x"] * count)
    content = RecordBatch()
    content.CopyFrom(whole.payload)  # type: ignore[arg-type]  # an engine's
    content.payload = b"\xff\xff"
    return replace(whole, payload=content)


def batch_slice(of: Batch, first: int | None = None, end: int | None = None) -> BatchSlice:
    return BatchSlice(of, of.first if first is None else first, of.end if end is None else end)


def handed(
    *slices: BatchSlice,
    partition: Partition = P0,
    delivery_epoch: int = 1,
    deliveries: int = 1,
    turn: int = 0,
) -> do.Deliver:
    return do.Deliver(delivery_epoch, partition, TENURE, Dispatch(deliveries, slices, turn))


def error(name: str) -> pb.ErrorCode.ValueType:
    return pb.ErrorCode.Value(name)
