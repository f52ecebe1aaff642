"""The operator's two rounds with real sidecars: a pod that starts in between joins, and an operator may end at any step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rota_operator.cluster.group_watch import strategies_in
from rota_operator.reconcile.observed import GroupStrategies
from rota_operator.reconcile.strategy import offer
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.settings_pb2 import AssignmentSettings, GroupSettings
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.support.coordinator import Coordinator
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.process
EAGER, COOPERATIVE = ("range",), ("cooperative-sticky",)


class Pod:
    """A sidecar with a Fleet server of its own, which gives it the orders of one operator after the other."""

    def __init__(self, fleet: Headquarters) -> None:
        self.fleet = fleet
        self._orders = 0

    async def configure(self, topic: str, names: tuple[str, ...]) -> None:
        self._orders += 1
        assignment = AssignmentSettings(strategy=",".join(names))
        settings = GroupSettings(topics=[topic], assignment=assignment)
        answer = await self.fleet.order(self._orders, configure=pb.Configure(settings=settings))
        assert answer.error == ""

    async def uses(self, name: str) -> None:
        def is_member() -> bool:
            member = self.fleet.last.member
            return (member.state, member.strategy) == (pb.MEMBER_STATE_STABLE, name)

        await self.fleet.wait_until(lambda: bool(self.fleet.reports) and is_member())


@asynccontextmanager
async def started(
    folder: Path, coordinator: Coordinator, topic: str, name: str, names: tuple[str, ...]
) -> AsyncIterator[Pod]:
    """Start a pod that reads these strategies when it starts."""
    settings = folder / f"{name}.json"
    settings.write_text(f'{{"topics": ["{topic}"], "assignment": {{"strategy": "{",".join(names)}"}}}}')
    async with serving() as fleet:
        flags = (f"--settings={settings}", f"--fleet={fleet.address}")
        sidecar = Deliverer(folder, f"rota://{coordinator.address}", topic, flags, name=name)
        await asyncio.to_thread(sidecar.start)
        try:
            yield Pod(fleet)
            sidecar.process.check_running()
        finally:
            await asyncio.to_thread(sidecar.close)


def decided(wanted: tuple[str, ...], written: tuple[str, ...], *pods: Pod) -> tuple[str, ...]:
    """Return what any operator decides that sees these pods."""
    sidecars = {str(number): strategies_in(pod.fleet.last) for number, pod in enumerate(pods)}
    return offer(wanted, written, GroupStrategies("", sidecars), has_pods=True).names


def change(
    folder: Path, coordinator: Coordinator, topic: str, former: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    """Change the strategy of a group in which pods start at any time, with an operator that is killed twice."""

    async def run() -> None:
        async with AsyncExitStack() as stack:

            async def start(name: str, names: tuple[str, ...]) -> Pod:
                return await stack.enter_async_context(started(folder, coordinator, topic, name, names))

            a, b = await start("a", former), await start("b", former)
            for pod in (a, b):
                await pod.uses(former[0])
            both = decided(wanted, former, a, b)
            assert both == (*wanted, *former)
            await a.configure(topic, both)
            # The operator is killed here: b has no order yet, and a pod starts with what the ConfigMap has.
            c = await start("c", both)
            await c.uses(former[0])
            assert decided(wanted, both, a, b, c) == both
            await b.configure(topic, both)
            for pod in (a, b, c):
                await pod.uses(wanted[0])
            assert decided(wanted, both, a, b, c) == wanted
            # Killed again, after the order to one of them; the next operator sends it to all.
            await c.configure(topic, wanted)
            for pod in (a, b, c):
                await pod.configure(topic, wanted)
            d = await start("d", wanted)
            for pod in (a, b, c, d):
                await pod.uses(wanted[0])
                assert tuple(pod.fleet.last.member.offered_strategies) == wanted

    asyncio.run(run())


def test_a_pod_that_starts_during_a_change_to_cooperative_joins(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    change(tmp_path, coordinator, topic, EAGER, COOPERATIVE)


def test_a_pod_that_starts_during_a_change_to_eager_joins(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    change(tmp_path, coordinator, topic, COOPERATIVE, EAGER)
