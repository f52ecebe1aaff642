"""A delivery by HTTP between fake deliveries and a real endpoint."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rota_sidecar.application.http_delivery import HttpDelivery, HttpSettings
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.engines.batch_slicing import BatchSlicer
from tests.sidecar.application.endpoint import Endpoint, listening
from tests.sidecar.application.fakes import FakeDeliveries, batch, batch_slice, handed

STORY_S = 10
CONCURRENCY = 3


@dataclass
class Scene:
    """An endpoint, the delivery to it, and the deliveries behind that."""

    endpoint: Endpoint
    deliveries: FakeDeliveries
    running: "asyncio.Task[None]"
    logged: list[tuple[str, str]] = field(default_factory=list)

    def hand(self, *delivers: do.Deliver) -> None:
        self.deliveries.there.deliver(delivers)

    async def verdict(self, number: int = 1) -> on.Judgement:
        """The last of so many."""
        await self.deliveries.until(lambda: len(self.deliveries.judgements) >= number)
        return self.deliveries.judgements[number - 1]

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


def delivery(
    deliveries: FakeDeliveries, url: str, logged: list[tuple[str, str]], timeout_s: float = 5
) -> HttpDelivery:
    settings = HttpSettings(url, timeout_s, redial_s=0.01)
    return HttpDelivery(
        deliveries, BatchSlicer(), settings, lambda event, message: logged.append((event, message))
    )


@asynccontextmanager
async def scene(timeout_s: float = 5) -> AsyncIterator[Scene]:
    """A delivery that is attached."""
    deliveries = FakeDeliveries(DeliveryConfig("g", concurrency=CONCURRENCY))
    async with listening() as endpoint:
        logged: list[tuple[str, str]] = []
        running = asyncio.create_task(delivery(deliveries, endpoint.url, logged, timeout_s).run())
        await deliveries.until(lambda: deliveries.events)
        playing = Scene(endpoint, deliveries, running, logged)
        yield playing
        await playing.stop()


def play(story: Callable[[Scene], Coroutine[Any, Any, None]], timeout_s: float = 5) -> None:
    async def run() -> None:
        async with asyncio.timeout(STORY_S), scene(timeout_s) as playing:
            await story(playing)

    asyncio.run(run())


def one(value: bytes | None = b"v", offset: int = 7) -> do.Deliver:
    return handed(batch_slice(batch(offset, [value])), delivery_epoch=5)
