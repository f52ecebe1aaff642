"""
A coordinator's service in virtual time, without a server: the shipping slots, on a store in memory that is as slow as
a test wants, and a clock that can jump under the loop's feet.
"""

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.answers import Request
from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.instants import MonotonicMs, WallClock
from rota_coordinator.core.quotas import Quotas
from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.runtime.environments import SlotEnvironment
from rota_coordinator.runtime.observer import Observers
from rota_coordinator.runtime.overload import Stalls
from rota_coordinator.runtime.router import Service
from rota_coordinator.store.port import Claim, Store
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.conformance.driver import FutureCall

CONFIG = GroupConfig(session_timeout_ms_min=500, initial_rebalance_delay_ms=0, rebalance_coalesce_ms=0)
LATENCY_S = 0.001


class Jump(selectors.SelectSelector):
    """A wait that returns at once: the clock is set to the end of the wait."""

    now_s = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for something that will never come"
        self.now_s += max(timeout, 0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is a number."""

    def __init__(self) -> None:
        self._clock = Jump()
        super().__init__(self._clock)

    @override
    def time(self) -> float:
        return self._clock.now_s

    def stall(self, seconds: float) -> None:
        """Time goes by and the loop does not turn, as when its process is stopped."""
        self._clock.now_s += seconds


def stall(seconds: float) -> None:
    """Let the running loop stand still."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stall(seconds)


def play(body: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a test in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body())


async def turn() -> None:
    """Let the loop come round to the timers that are due."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@dataclass(slots=True)
class Memory(Store):
    """A store that writes one append after the other."""

    latency_s: float = LATENCY_S
    slots: int = SLOTS
    written: dict[int, list[Record]] = field(default_factory=dict)
    appends: int = 0
    compactions: int = 0
    _last: "asyncio.Task[None] | None" = None

    @override
    async def claim(self, slot: int) -> Claim:
        return Claim(epoch=1, handover=b"")

    @override
    async def load(self, slot: int) -> Sequence[Record]:
        await asyncio.sleep(self.latency_s)
        return list(self.written.get(slot, []))

    @override
    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        self._last = asyncio.ensure_future(self._write(slot, records, self._last))
        return self._last

    @override
    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        self.compactions += 1
        self._last = asyncio.ensure_future(self._replace(slot, snapshot, self._last))
        return self._last

    @override
    async def close(self) -> None:
        """Nothing is held."""

    async def _write(self, slot: int, records: Sequence[Record], before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        await asyncio.sleep(self.latency_s)
        self.written.setdefault(slot, []).extend(records)
        self.appends += 1

    async def _replace(
        self, slot: int, records: Sequence[Record], before: "asyncio.Task[None] | None"
    ) -> None:
        if before is not None:
            await before
        self.written[slot] = list(records)


@dataclass(slots=True)
class Virtual:
    """The service, and what it said besides its answers. A driver for the vocabulary of the cases."""

    config: GroupConfig = CONFIG
    observers: Observers = field(default_factory=Observers)
    store: Memory = field(default_factory=Memory)
    quotas: Quotas = field(default_factory=Quotas)
    # Who sends all requests.
    principal: str = ""
    name: str = "service"
    notices: list[pb.RebalanceNotice] = field(default_factory=list)
    notify: Callable[[pb.RebalanceNotice], None] = lambda notice: None
    member_removed: Callable[[str, str], None] = lambda group_id, member_id: None
    slot_changed: Callable[[int], None] = lambda number: None
    reports: list[str] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    # Set forward or back while the loop's clock goes on.
    wall: WallClock = field(default_factory=WallClock)
    # Seconds in which the machine was suspended: the loop's clock stood still.
    suspended_s: float = 0.0
    stalls: Stalls = field(init=False)
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        new_uuid = itertools.count()
        loop = asyncio.get_running_loop()
        self.stalls = Stalls(lambda: loop.time() + self.suspended_s, self.observers)
        environment = SlotEnvironment(
            self.store,
            self.config,
            now_ms=self._now_ms,
            wall=self.wall,
            new_uuid=lambda: f"#{next(new_uuid)}",
            notify=self._notify,
            group_changed=lambda group_id: None,
            report=self.reports.append,
            report_exception=self.faults.append,
            observers=self.observers,
            stalls=self.stalls,
            member_removed=self.member_removed,
            slot_changed=self.slot_changed,
            quotas=self.quotas,
        )
        self.service = Service(environment, "virtual:7070")

    async def start(self) -> "Virtual":
        """Serve all slots, and look at the clock."""
        self.stalls.start()
        await self.service.ownership.run_once()
        return self

    def send(self, request: Message) -> FutureCall:
        return FutureCall(asyncio.ensure_future(self._answered(request)))

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _now_ms(self) -> MonotonicMs:
        return MonotonicMs(int(asyncio.get_running_loop().time() * 1000))

    def _notify(self, notice: pb.RebalanceNotice) -> None:
        self.notices.append(notice)
        self.notify(notice)

    async def _answered(self, request: Message) -> Message:
        reply = await self.service.submit(cast("Request", request), "/127.0.0.1", self.principal)
        assert reply is not None, "a newer call took its place"
        return reply
