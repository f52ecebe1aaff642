"""Verdicts wait a little for others; whatever else is said comes behind them."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import rota
from rota.consumer import messages
from rota.consumer.core import FinishedRange
from rota.consumer.verdict_batcher import VerdictBatcher
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

P0, P1 = rota.TopicPartition("orders", 0), rota.TopicPartition("orders", 1)
LONG_S = 60.0


class Sidecar:
    """Requests that the sidecar receives."""

    def __init__(self, linger_s: float) -> None:
        self.linger_s = linger_s
        self.received: list[str] = []
        self.received_something = asyncio.Event()

    async def send(self, request: pb.DeliverRequest) -> None:
        if request.HasField("judgements"):
            judged = [(each.offset, each.last_offset) for each in request.judgements.judgements]
            self.received.append(f"done {judged}")
        else:
            self.received.append(str(request.WhichOneof("request")))
        self.received_something.set()


def said(linger_s: float, story: Callable[[VerdictBatcher, Sidecar], Awaitable[None]]) -> list[str]:
    """Run the story; return the requests that the sidecar received."""

    async def batch_calls() -> list[str]:
        sidecar = Sidecar(linger_s)
        await story(VerdictBatcher(sidecar), sidecar)  # type: ignore[arg-type]
        return sidecar.received

    return asyncio.run(batch_calls())


def done(
    first: int, last: int, partition: rota.TopicPartition = P0, delivery_epoch: int = 1
) -> list[FinishedRange]:
    return [FinishedRange(partition, delivery_epoch, first, last)]


def test_verdicts_that_follow_on_each_other_are_one() -> None:
    async def story(outgoing: VerdictBatcher, _: Sidecar) -> None:
        await outgoing.finish(done(0, 4))
        await outgoing.finish(done(7, 7, P1))
        await outgoing.finish(done(5, 5))
        await outgoing.finish(done(6, 8, delivery_epoch=2))
        await outgoing.flush()

    assert said(LONG_S, story) == ["done [(0, 5), (7, 7), (6, 8)]"]


def test_they_are_said_when_their_time_is_up() -> None:
    async def story(outgoing: VerdictBatcher, sidecar: Sidecar) -> None:
        await outgoing.finish(done(0, 0))
        assert sidecar.received == []
        async with asyncio.timeout(5):
            await sidecar.received_something.wait()

    assert said(0.001, story) == ["done [(0, 0)]"]


def test_what_else_is_said_comes_behind_them() -> None:
    async def story(outgoing: VerdictBatcher, _: Sidecar) -> None:
        await outgoing.finish(done(0, 0))
        await outgoing.send(messages.acknowledgement(7))
        await outgoing.send(messages.credit(10))

    assert said(LONG_S, story) == ["done [(0, 0)]", "acknowledge", "credit"]


def test_a_sidecar_that_wants_them_at_once_hears_them_at_once() -> None:
    async def story(outgoing: VerdictBatcher, _: Sidecar) -> None:
        await outgoing.finish(done(0, 0))

    assert said(0, story) == ["done [(0, 0)]"]


@pytest.mark.parametrize("linger_s", [0.0, LONG_S])
def test_nothing_is_said_of_nothing(linger_s: float) -> None:
    async def story(outgoing: VerdictBatcher, _: Sidecar) -> None:
        await outgoing.finish([])
        await outgoing.flush()

    assert said(linger_s, story) == []


def test_verdicts_for_a_sidecar_that_is_gone_are_not_sent_to_the_next() -> None:
    async def story(outgoing: VerdictBatcher, _: Sidecar) -> None:
        await outgoing.finish(done(0, 0))
        outgoing.forget()
        await outgoing.flush()

    assert said(LONG_S, story) == []
