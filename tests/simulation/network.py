"""
Messages between members and coordinators: late, lost, copied, overtaken, cut off; each direction on its own.

A connection keeps its messages in order, but for those that a seed lets be overtaken (a client with several streams);
a copy of a request may come again, long after and on another connection, and its answer goes nowhere.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request as GroupRequest
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.plan import LATE_S, Plan

CALM_DELAY_S = 0.01
REORDERED_S = 0.5
DELAYED_S = 4.0
Notice = pb.RebalanceNotice | pb.GoAway
Noticed = Callable[[Notice], None]
Request = GroupRequest | pb.FindCoordinatorRequest


class Server(Protocol):
    """Destination of requests; `process` is None while no process listens."""

    process: Process | None

    def receive(self, exchange: "Exchange") -> None:
        """A request arrives."""
        ...


class Connection:
    """Between a member's process and a coordinator, whichever process that is."""

    def __init__(self, client: Process, server: Server, noticed: Noticed) -> None:
        self.client = client
        self.server = server
        self.noticed = noticed
        # A new process knows nothing of it.
        self.served_by = server.process
        self.open = True
        # By direction: when the last message arrives, and which one was the last that did.
        self.arrives_s = [0.0, 0.0]
        self.sent = [0, 0]
        self.arrived = [0, 0]
        # In the order of asking: that of a set of futures is the memory's.
        self.waiting: dict[asyncio.Future[Message], None] = {}


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and its answer."""

    connection: Connection
    request: Request
    answer: "asyncio.Future[Message]"
    is_copy: bool = False


@dataclass(slots=True)
class Network:
    """Network that carries messages, delays and loses them."""

    loop: VirtualLoop
    plan: Plan
    chance: random.Random
    fired: "Counter[str]"
    # A message has arrived.
    step: Callable[[str, Message], None]
    calm: bool = False
    # (client, server, direction) between which nothing arrives.
    cuts: set[tuple[Process, Server, int]] = field(default_factory=set)
    _faults: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan, total = self.plan, 0.0
        for rate, fault in (
            (plan.reset_rate, "connection reset"),
            (plan.loss_rate, "message lost"),
            (plan.delay_rate, "message delayed"),
            (plan.reorder_rate, "message reordered"),
            (plan.copy_rate, "request copied"),
        ):
            total += rate
            self._faults.append((total, fault))

    def ask(self, connection: Connection, request: Request, within_s: float) -> "asyncio.Future[Message]":
        """Send a request; its answer, TimeoutError or ConnectionError comes later. Called by the client's process."""
        answer: asyncio.Future[Message] = self.loop.create_future()
        if not connection.open:
            answer.set_exception(ConnectionError("the connection is closed"))
            return answer
        timer = self.loop.call_later(within_s, expire, answer)
        connection.waiting[answer] = None
        answer.add_done_callback(lambda _: timer.cancel())
        answer.add_done_callback(lambda done: connection.waiting.pop(done, None))
        exchange = Exchange(connection, request, answer)
        self._carry(connection, 0, partial(self._arrive, exchange), partial(self._arrive_again, exchange))
        return answer

    def answer(self, exchange: Exchange, reply: Message | None) -> None:
        """Send an answer back. None: the call is ended, without one. Called by the server's process."""
        if not exchange.is_copy:
            self._carry(exchange.connection, 1, partial(self._answered, exchange, reply))

    def push(self, connection: Connection, notice: Notice) -> None:
        """Send an unsolicited message. Called by the server's process."""
        self._carry(connection, 1, partial(self._pushed, connection, notice))

    def reset(self, connection: Connection) -> None:
        """Break a connection: all requests pending on it fail."""
        if connection.open:
            connection.open = False
            for answer in list(connection.waiting):
                self.loop.call_soon(fail, answer, context=connection.client.context)

    def _carry(
        self,
        connection: Connection,
        direction: int,
        arrive: Callable[[int], None],
        arrive_again: Callable[[], None] | None = None,
    ) -> None:
        """Let a message travel, or not."""
        delay_s = self.chance.expovariate(1 / (CALM_DELAY_S if self.calm else self.plan.delay_s))
        fault = "" if self.calm else self._draw_fault()
        match fault:
            case "connection reset":
                self.reset(connection)
            case "message lost":
                self.fired["reply lost" if direction else "request lost"] += 1
                return
            case "message delayed":
                delay_s += self.chance.uniform(0, DELAYED_S)
            case "request copied" if arrive_again is not None:
                self.loop.outside(self.chance.uniform(0, LATE_S), arrive_again)
        if (connection.client, connection.server, direction) in self.cuts:
            self.fired["message cut off"] += 1
            return
        if fault == "message reordered":
            # Not held against those behind it: they overtake.
            arrives_s = self.loop.now_s + delay_s + self.chance.uniform(0, REORDERED_S)
        else:
            arrives_s = max(self.loop.now_s + delay_s, connection.arrives_s[direction] + 1e-6)
            connection.arrives_s[direction] = arrives_s
        connection.sent[direction] += 1
        self.loop.outside(arrives_s - self.loop.now_s, arrive, connection.sent[direction])

    def _draw_fault(self) -> str:
        drawn = self.chance.random()
        for bound, fault in self._faults:
            if drawn < bound:
                if fault not in ("request copied", "message lost", "message reordered"):
                    self.fired[fault] += 1
                return fault
        return ""

    def _arrive(self, exchange: Exchange, number: int) -> None:
        connection = exchange.connection
        self._count(connection, 0, number)
        # Of a connection that broke, what was under way may still be read.
        if not connection.open and self.chance.random() < 0.5:
            return
        process = connection.server.process
        if process is None or process is not connection.served_by:
            self.reset(connection)
        else:
            self._hand_over(process, connection.server, exchange)

    def _arrive_again(self, exchange: Exchange) -> None:
        process = exchange.connection.server.process
        if process is not None and not self.calm:
            self.fired["request copied"] += 1
            copy = Exchange(exchange.connection, exchange.request, exchange.answer, is_copy=True)
            self._hand_over(process, exchange.connection.server, copy)

    def _hand_over(self, process: Process, server: Server, exchange: Exchange) -> None:
        self.step("request", exchange.request)
        self.loop.call_soon(server.receive, exchange, context=process.context)

    def _answered(self, exchange: Exchange, reply: Message | None, number: int) -> None:
        connection = exchange.connection
        self._count(connection, 1, number)
        if connection.open:
            self.loop.call_soon(complete, exchange.answer, reply, context=connection.client.context)
            if reply is not None:
                self.step("reply", reply)

    def _pushed(self, connection: Connection, notice: Notice, number: int) -> None:
        self._count(connection, 1, number)
        if connection.open:
            self.loop.call_soon(connection.noticed, notice, context=connection.client.context)
            self.step("notice", notice)

    def _count(self, connection: Connection, direction: int, number: int) -> None:
        if number < connection.arrived[direction]:
            self.fired["message overtaken"] += 1
        connection.arrived[direction] = max(connection.arrived[direction], number)


def complete(answer: "asyncio.Future[Message]", reply: Message | None) -> None:
    """Deliver the response unless the caller has given up."""
    if answer.done():
        return
    if reply is None:
        answer.set_exception(ConnectionError("a newer call took its place"))
    else:
        answer.set_result(reply)


def expire(answer: "asyncio.Future[Message]") -> None:
    """Fail a request at its deadline."""
    if not answer.done():
        answer.set_exception(TimeoutError())


def fail(answer: "asyncio.Future[Message]") -> None:
    """Fail a request whose response is lost."""
    if not answer.done():
        answer.set_exception(ConnectionError("the connection was reset"))
