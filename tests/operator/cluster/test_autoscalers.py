"""Autoscalers of many groups: which groups have one, when each is polled, and what it sees."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

from typing_extensions import override

from rota_operator.autoscaling.decision import Decision as ScaleDecision
from rota_operator.autoscaling.measure import Reports
from rota_operator.cluster.api import Api
from rota_operator.cluster.autoscalers import Autoscalers, Groups, read_group
from rota_operator.cluster.group_autoscaler import AutoscalerPorts, Reading
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reconciler import Outcome
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.decision import Decision, Refusal
from rota_operator.reconcile.observed import Observed
from rota_operator.spec.conditions import Reason
from rota_proto.fleet.v1.fleet_pb2 import OrderAnswer, SidecarReport
from tests.operator.cluster.scaled_world import spec_of
from tests.operator.reconcile.worlds import SETTINGS, resource, workload
from tests.operator.status.groups import group, member, partition

ORDERS, PAYMENTS = Key("shop", "orders"), Key("shop", "payments")
AUTOSCALED = Decision((), is_autoscaled=True)


class Watched(Groups):
    """Groups that are all alike."""

    def __init__(self) -> None:
        self.found: GroupView | None = group()
        self.on_kafka = False

    @override
    def view(self, key: Key) -> GroupView | None:
        return self.found

    @override
    def reports(self, key: Key) -> Reports:
        return {"orders-a": SidecarReport(sidecar="orders-a")}

    @override
    def is_on_kafka(self, key: Key) -> bool:
        return self.on_kafka


class NoPods:
    """The API server, which has no pods of any group."""

    async def list(self, *_: object) -> AsyncIterator[Any]:
        pods: tuple[Any, ...] = ()
        for each in pods:
            yield each


class World:
    """Autoscalers, and the groups that they have read."""

    def __init__(self) -> None:
        self.groups = Watched()
        self.reads: list[Key] = []
        self.decisions: list[ScaleDecision] = []
        self.exceptions: list[Exception] = []

        async def order(*_: object) -> OrderAnswer:
            raise AssertionError("nothing drains")

        self.autoscalers = Autoscalers(
            AutoscalerPorts(
                cast(Api, NoPods()), lambda: time.time_ns() // 1_000_000, self.read, order, lambda _: False,
                lambda _, decision: self.decisions.append(decision), lambda _: None, lambda _key, _fact: None,
                self.exceptions.append,
            )
        )  # fmt: skip

    def read(self, key: Key, spec: Any) -> Reading | None:  # noqa: ANN401
        self.reads.append(key)
        return read_group(self.groups, key, spec)


def outcome(interval_s: int = 1, decision: Decision = AUTOSCALED, failure: Refusal | None = None) -> Outcome:
    found = resource(autoscaling={"enabled": True, "pollingInterval": interval_s})
    target = {**workload(), "metadata": {"name": "orders", "resourceVersion": "7"}}
    observed = Observed(found, SETTINGS, (1, 35), target)
    return Outcome(observed if failure is None else replace(observed, target=None), decision, failure)


async def run_until_one_has_decided(world: World) -> None:
    running = asyncio.create_task(world.autoscalers.run())
    async with asyncio.timeout(60):
        while not world.decisions:
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_each_group_is_polled_at_its_interval_and_measured_as_its_status_shows_it() -> None:
    world = World()

    async def story() -> None:
        world.autoscalers.decided(ORDERS, outcome())
        world.autoscalers.decided(PAYMENTS, outcome(3_600))
        await run_until_one_has_decided(world)

    asyncio.run(story())
    assert set(world.reads) == {ORDERS}
    state = world.autoscalers.state(ORDERS)
    assert state is not None
    assert state.scaling.decisions[0].inputs.partitions == 4
    assert world.exceptions == []


def test_a_group_has_an_autoscaler_as_long_as_its_reconciles_say_so() -> None:
    world = World()

    async def story() -> None:
        decided = world.autoscalers.decided
        decided(ORDERS, outcome())
        assert world.autoscalers.state(ORDERS) is not None
        decided(ORDERS, outcome(decision=Decision(()), failure=Refusal(Reason.UNAVAILABLE, "no answer")))
        assert world.autoscalers.state(ORDERS) is not None, "a reconcile that failed says nothing"
        decided(ORDERS, outcome(decision=Decision(())))
        assert world.autoscalers.state(ORDERS) is None
        world.autoscalers.forget(ORDERS)

    asyncio.run(story())


def test_one_group_that_fails_does_not_stop_the_others() -> None:
    world = World()
    read = world.read

    def failing(key: Key, spec: Any) -> Reading | None:  # noqa: ANN401
        if key == ORDERS:
            raise ValueError("a bug")
        return read(key, spec)

    async def story() -> None:
        world.autoscalers._ports = world.autoscalers._ports._replace(read=failing)
        for key in (ORDERS, PAYMENTS):
            world.autoscalers.decided(key, outcome())
        await run_until_one_has_decided(world)

    asyncio.run(story())
    assert set(world.reads) == {PAYMENTS}
    assert [str(each) for each in world.exceptions] == ["a bug"]


def test_a_group_on_kafka_is_what_its_sidecars_report() -> None:
    groups, spec = Watched(), spec_of()
    other = partition(0, topic="left", owner=None)
    groups.found = group(state="Unknown", members=(member("orders-a"),), partitions=(partition(0), other))
    unknown = read_group(groups, ORDERS, spec)
    assert unknown is not None
    assert unknown.view.state == "Unknown"
    assert [each.topic for each in unknown.view.partitions] == ["orders"], "of subscribed topics"
    groups.on_kafka = True
    found = read_group(groups, ORDERS, spec)
    assert found is not None
    assert (found.view.state, [*found.reports]) == ("Stable", ["orders-a"])
    groups.found = None
    assert read_group(groups, ORDERS, spec) is None
