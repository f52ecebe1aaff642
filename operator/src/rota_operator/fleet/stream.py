"""Streams of sidecars: the orders that each is to carry, how each is to end, and which is its sidecar's newest. For `server`."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc

from rota_operator.fleet.principal import Principal, SidecarRef
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Orders of one sidecar that wait to be sent.
ORDERS_MAX = 100
STOPPING = "the operator is stopping; reconnect"
REPLACED = "a newer stream of the same sidecar replaces this one"


class StreamEnd(NamedTuple):
    """The status with which the server ends a stream."""

    code: grpc.StatusCode
    message: str = ""


class Stream:
    """
    Orders of one stream; thread-confined to its event loop.

    Invariant: an order is in at most one stream's queue, and leaves it when it is handed to gRPC; after `end` nothing leaves it.
    """

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.ended: StreamEnd | None = None
        self._orders: deque[pb.SidecarOrder] = deque()
        self._changed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """True if no more orders can be added."""
        return len(self._orders) >= ORDERS_MAX

    @property
    def has_orders(self) -> bool:
        """True if an order waits to be sent."""
        return bool(self._orders)

    def add(self, order: pb.SidecarOrder) -> None:
        """Append an order; the caller checks `is_full`."""
        self._orders.append(order)
        self._changed.set()

    def remove(self, order_id: int) -> None:
        """Remove an order that was not sent yet."""
        self._orders = deque(each for each in self._orders if each.order_id != order_id)

    def end(self, code: grpc.StatusCode, message: str = "") -> None:
        """End the stream; the first call decides how."""
        if self.ended is None:
            self.ended = StreamEnd(code, message)
            self._changed.set()

    def take_unsent(self) -> list[pb.SidecarOrder]:
        """Remove all orders that were not sent yet, for the stream that replaces this one."""
        unsent = list(self._orders)
        self._orders.clear()
        return unsent

    async def next(self) -> pb.SidecarOrder | None:
        """Return the next order to send; None once the stream ends."""
        while self.ended is None:
            if self._orders:
                return self._orders.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None


class Streams:
    """
    The streams of all sidecars; thread-confined to one event loop.

    Invariant: a sidecar has at most one stream, the newest; all others are ended and hold no order.
    """

    def __init__(self, on_unsent: Callable[[SidecarRef, int], None]) -> None:
        """`on_unsent` is called with each order that is certain not to be sent: its stream ended, and none replaced it."""
        self._on_unsent = on_unsent
        self._streams: dict[SidecarRef, Stream] = {}
        self._is_closed = False

    @property
    def principals(self) -> Sequence[Principal]:
        """The sidecars that have a stream."""
        return [stream.principal for stream in self._streams.values()]

    def open(self, principal: Principal) -> Stream:
        """Add a stream; it replaces the sidecar's previous one and takes over the orders that were not sent yet."""
        stream = Stream(principal)
        if self._is_closed:
            stream.end(grpc.StatusCode.UNAVAILABLE, STOPPING)
            return stream
        previous = self._streams.get(principal.sidecar)
        self._streams[principal.sidecar] = stream
        if previous is not None:
            previous.end(grpc.StatusCode.ABORTED, REPLACED)
            if previous.principal.is_same(principal):
                for order in previous.take_unsent():
                    stream.add(order)
            self._drop_unsent(previous)
        return stream

    def close(self, stream: Stream) -> None:
        """Remove a stream that has ended."""
        if self._streams.get(stream.principal.sidecar) is stream:
            del self._streams[stream.principal.sidecar]
        self._drop_unsent(stream)

    def close_all(self) -> None:
        """End all streams, and every stream that is opened later."""
        self._is_closed = True
        for stream in self._streams.values():
            stream.end(grpc.StatusCode.UNAVAILABLE, STOPPING)

    def add_order(self, sidecar: SidecarRef, order: pb.SidecarOrder) -> bool:
        """Queue an order on the sidecar's stream; return False if there is none, or if its queue is full."""
        stream = self._streams.get(sidecar)
        if stream is None or stream.is_full:
            return False
        stream.add(order)
        return True

    def remove_order(self, sidecar: SidecarRef, order_id: int) -> None:
        """Remove an order that was not sent yet."""
        if (stream := self._streams.get(sidecar)) is not None:
            stream.remove(order_id)

    def _drop_unsent(self, stream: Stream) -> None:
        for order in stream.take_unsent():
            self._on_unsent(stream.principal.sidecar, order.order_id)
