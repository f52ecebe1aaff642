"""An operator that is killed before or after any request or order of a hand-over gives no instance twice, and the next one goes on."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from typing_extensions import override

from rota_operator.cluster.instance_orders import InstanceOrders, InstancePorts
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.fleet.principal import SidecarRef
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.api_server import ApiServer, serving
from tests.operator.cluster.test_instance_orders import KEY, RESOURCE, World, pool

pytestmark = pytest.mark.unit
REPLICAS = 2
# An operator looks once a second; after that many looks, of which one may be the last of its life, each pod has its instance.
LOOKS_MAX = 4


class Killed(BaseException):
    """The process of the operator is gone: nothing that it would have done after this happens."""


@dataclass
class Dying(World):
    """A world whose operator is killed at the n-th half-step: a request or an order has two, before and after it is carried out."""

    left: int | None = None
    # Instances as sidecars have them, after each order.
    history: list[dict[str, str]] = field(default_factory=list)
    steps: int = 0

    def half_step(self) -> None:
        self.steps += 1
        if self.left is None or self.left < 0:
            return
        self.left -= 1
        if self.left < 0:
            raise Killed

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        self.half_step()
        answer = await super().order(sidecar, order, within_s)
        self.history.append(dict(self.instances))
        self.half_step()
        return answer


def lives(world: Dying, orders: Callable[[], InstanceOrders]) -> Iterator[InstanceOrders]:
    """Yield the operator of each life, which begins with an offer by its first reconcile."""
    while True:
        found = orders()
        found.offer(KEY, RESOURCE, pool(REPLICAS))
        yield found


async def look(world: Dying, operator: InstanceOrders) -> bool:
    """Let an operator look once; returns False if it was killed."""
    for name, sidecar in world.online.items():
        operator.reported(sidecar, pb.MemberReport(group_instance_id=world.instances.get(name, "")))
    orders: list[Coroutine[Any, Any, None]] = []
    try:
        orders += await operator.look()
        while orders:
            await orders.pop(0)
    except Killed:
        for order in orders:
            order.close()
        return False
    return True


async def settle(world: Dying, life: Iterator[InstanceOrders], operator: InstanceOrders) -> InstanceOrders:
    """Look until all is done; a killed operator is replaced by the next one."""
    for _ in range(LOOKS_MAX):
        if not await look(world, operator):
            operator = next(life)
    return operator


async def hand_over(world: Dying, life: Iterator[InstanceOrders]) -> None:
    """Two pods get their instances, a rollout replaces both, one after the other."""
    operator = next(life)
    world.start("a", "b")
    operator = await settle(world, life, operator)
    for old, new in (("a", "c"), ("b", "d")):
        world.start(new)
        operator = await settle(world, life, operator)
        world.delete(old)
        operator = await settle(world, life, operator)
        world.end(old)
        operator = await settle(world, life, operator)
        running = [pod for pod in world.pods if pod in world.instances]
        assert len(running) == REPLICAS, (world.left, world.instances)


def played(kill_at: int | None) -> Dying:
    """Run a hand-over whose operator is killed at a half-step, if any; return the world at its end."""
    world = Dying(left=kill_at)

    async def body() -> None:
        async with serving(ApiServer(world.answer)) as api:
            request = api._request

            async def counted(*arguments: object, **named: object) -> object:
                world.half_step()
                answer = await request(*arguments, **named)  # type: ignore[arg-type]
                world.half_step()
                return answer

            api._request = counted  # type: ignore[method-assign,assignment]
            clocks = ProcessClocks(lambda: 1_000, lambda: world.now_s)
            ports = InstancePorts(world, lambda _: None, clocks, lambda _: None)
            life = lives(world, lambda: InstanceOrders(api, ports))
            await hand_over(world, life)

    asyncio.run(body())
    return world


def test_a_kill_at_any_step_gives_no_instance_twice_and_leaves_no_pod_without_one() -> None:
    undisturbed = played(None)
    assert undisturbed.instances == {"c": "orders-0", "d": "orders-1"}
    assert undisturbed.steps > 12
    for kill_at in range(undisturbed.steps):
        world = played(kill_at)
        assert world.left is not None
        assert world.left < 0, "it was not killed"
        assert world.instances == undisturbed.instances, kill_at
        for each in world.history:
            assert len(set(each.values())) == len(each), (kill_at, each)
