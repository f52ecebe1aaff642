"""A driver is drained by one order, whose result is known while it counts; then the group is reconciled again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from typing_extensions import override

from rota_operator.cluster.driver_drains import ANSWER_S, RESULT_S, DriverDrains
from rota_operator.cluster.queues import Key
from rota_operator.fleet.principal import SidecarRef
from rota_operator.reconcile.actions import DrainDriver
from rota_operator.reconcile.observed import DrainProgress
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.test_settings_orders import Sidecars

KEY, OTHER = Key("shop", "orders"), Key("shop", "payments")
DRAIN = DrainDriver("orders-0", "orders-0-driver", "u-0", 45_000)
UNDER_WAY = DrainProgress(is_over=False)


class Drivers(Sidecars):
    """Drivers that answer when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: list[tuple[SidecarRef, int, float]] = []
        self.answers: asyncio.Queue[str] = asyncio.Queue()

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        self.ordered.append((sidecar, order.drain.within_ms, within_s))
        return pb.OrderAnswer(error=await self.answers.get())


class World:
    """Drains, with a clock and a list of the groups that were told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.fleet = Drivers()
        self.over: asyncio.Queue[Key] = asyncio.Queue()
        self.drains = DriverDrains(self.fleet, lambda: self.now_s, self.over.put_nowait)

    async def answer(self, error: str = "") -> Key:
        self.fleet.answers.put_nowait(error)
        async with asyncio.timeout(10):
            return await self.over.get()


def play(story: Callable[[World], Awaitable[None]]) -> World:
    async def run() -> World:
        world = World()
        running = asyncio.create_task(world.drains.run())
        try:
            await story(world)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return world

    return asyncio.run(run())


@pytest.mark.parametrize("problem", ["", "3 records are still in flight"])
def test_a_drain_is_ordered_once_and_its_result_is_known(problem: str) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            world.drains.order(KEY, DRAIN)
        assert world.drains.progress(KEY) == {"u-0": UNDER_WAY}
        assert world.drains.progress(OTHER) == {}
        world.now_s = 44
        assert await world.answer(problem) == KEY
        world.drains.order(KEY, DRAIN)
        assert world.drains.progress(KEY) == {"u-0": DrainProgress(is_over=True, problem=problem)}

    assert play(story).fleet.ordered == [(SidecarRef("shop", "orders-0-driver"), 45_000, 45 + ANSWER_S)]


def test_a_driver_that_outlives_its_drain_is_drained_anew() -> None:
    async def story(world: World) -> None:
        world.drains.order(KEY, DRAIN)
        await world.answer()
        world.now_s = 44.9
        assert world.drains.progress(KEY) == {"u-0": DrainProgress(is_over=True)}
        world.now_s = 45
        assert world.drains.progress(KEY) == {}
        world.drains.order(KEY, DRAIN)
        await world.answer()

    assert len(play(story).fleet.ordered) == 2


def test_an_answer_at_the_end_of_the_drain_counts_for_a_reconcile() -> None:
    async def story(world: World) -> None:
        world.drains.order(KEY, DRAIN)
        # The order is on its way.
        while not world.fleet.ordered:
            await asyncio.sleep(0)
        world.now_s = 45
        await world.answer("3 records are still in flight")
        world.now_s = 45 + RESULT_S - 0.1
        assert world.drains.progress(KEY)["u-0"].is_over
        world.now_s = 45 + RESULT_S
        assert world.drains.progress(KEY) == {}

    play(story)


def test_drivers_drain_side_by_side() -> None:
    async def story(world: World) -> None:
        for number in range(3):
            world.drains.order(KEY, DrainDriver(f"orders-{number}", f"pod-{number}", f"u-{number}", 1_000))
        while len(world.fleet.ordered) < 3:
            await asyncio.sleep(0)
        assert world.drains.progress(KEY) == {f"u-{number}": UNDER_WAY for number in range(3)}

    play(story)
