"""An order leaves by its sidecar's newest stream, once, or its sender hears that it was not sent."""

import asyncio
from dataclasses import replace

import grpc
import pytest

from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.stream import ORDERS_MAX, Stream, Streams
from rota_proto.fleet.v1 import fleet_pb2 as pb

POD = SidecarRef("shop", "orders-0")
PRINCIPAL = Principal(POD, "orders", uid="1", group="shop/orders")


def order(number: int) -> pb.SidecarOrder:
    return pb.SidecarOrder(order_id=number)


class Registry:
    """Streams, and the orders of which it was said that they were not sent."""

    def __init__(self) -> None:
        self.unsent: list[int] = []
        self.streams = Streams(lambda sidecar, number: self.unsent.append(number))


def sent(stream: Stream) -> list[int]:
    """Return the ids of the orders that leave by a stream, in order; then the stream ends."""

    async def take() -> list[int]:
        found = []
        while stream.ended is None and stream.has_orders:
            if (next_order := await stream.next()) is not None:
                found.append(next_order.order_id)
        return found

    return asyncio.run(take())


def test_orders_leave_in_the_order_in_which_they_were_added() -> None:
    registry = Registry()
    stream = registry.streams.open(PRINCIPAL)
    assert all(registry.streams.add_order(POD, order(number)) for number in (3, 1, 2))
    assert sent(stream) == [3, 1, 2]


def test_a_queue_is_bounded() -> None:
    registry = Registry()
    registry.streams.open(PRINCIPAL)
    assert all(registry.streams.add_order(POD, order(number)) for number in range(ORDERS_MAX))
    assert not registry.streams.add_order(POD, order(ORDERS_MAX))


def test_an_order_that_its_sender_gave_up_is_not_sent() -> None:
    registry = Registry()
    stream = registry.streams.open(PRINCIPAL)
    for number in (1, 2):
        registry.streams.add_order(POD, order(number))
    registry.streams.remove_order(POD, 1)
    assert sent(stream) == [2]


def test_the_newest_stream_takes_over_what_was_not_sent() -> None:
    registry = Registry()
    previous = registry.streams.open(PRINCIPAL)
    registry.streams.add_order(POD, order(1))
    newest = registry.streams.open(PRINCIPAL)
    assert previous.ended is not None
    assert previous.ended.code is grpc.StatusCode.ABORTED
    assert not previous.has_orders
    registry.streams.close(previous)
    registry.streams.add_order(POD, order(2))
    assert sent(newest) == [1, 2]
    assert registry.unsent == []


@pytest.mark.parametrize(
    "successor",
    [
        replace(PRINCIPAL, uid="2"),
        replace(PRINCIPAL, group_id="others"),
        replace(PRINCIPAL, group="shop/others"),
    ],
    ids=["another pod", "another group id", "another ConsumerGroup"],
)
def test_a_successor_does_not_take_over_the_orders_of_its_predecessor(successor: Principal) -> None:
    registry = Registry()
    registry.streams.open(PRINCIPAL)
    registry.streams.add_order(POD, order(1))
    newest = registry.streams.open(successor)
    assert not newest.has_orders
    assert registry.unsent == [1]


def test_a_stream_that_closes_says_what_it_did_not_send() -> None:
    registry = Registry()
    stream = registry.streams.open(PRINCIPAL)
    for number in (1, 2):
        registry.streams.add_order(POD, order(number))
    assert asyncio.run(stream.next()) == order(1)
    registry.streams.close(stream)
    assert registry.unsent == [2]
    assert not registry.streams.add_order(POD, order(3))
    assert registry.streams.principals == []


def test_a_stream_that_was_replaced_does_not_remove_the_newest() -> None:
    registry = Registry()
    previous = registry.streams.open(PRINCIPAL)
    registry.streams.open(PRINCIPAL)
    registry.streams.close(previous)
    assert registry.streams.principals == [PRINCIPAL]


def test_after_closing_all_every_stream_is_ended() -> None:
    registry = Registry()
    streams = [registry.streams.open(PRINCIPAL)]
    registry.streams.close_all()
    streams.append(registry.streams.open(PRINCIPAL))
    for stream in streams:
        assert stream.ended is not None
        assert stream.ended.code is grpc.StatusCode.UNAVAILABLE
        assert asyncio.run(stream.next()) is None


def test_the_first_end_of_a_stream_decides() -> None:
    stream = Stream(PRINCIPAL)
    stream.end(grpc.StatusCode.PERMISSION_DENIED, "first")
    stream.end(grpc.StatusCode.OK, "second")
    assert stream.ended == (grpc.StatusCode.PERMISSION_DENIED, "first")
