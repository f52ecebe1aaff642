"""An instance that another process has taken is not given back until that process has left, and the group's status names both."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from rota_operator.cluster.fenced_instances import FencedInstances, FencedPorts
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.overview.description import DescribedMember, Description
from rota_operator.reconcile.instances import Holder
from rota_proto.fleet.v1 import fleet_pb2 as pb

pytestmark = pytest.mark.unit
KEY = Key("shop", "orders")
POD = Principal(SidecarRef("shop", "orders-a"), "g", "uid-a", "shop/orders")
FENCED, FREE = pb.MemberReport(fenced_instance_id="orders-0"), pb.MemberReport()
OUTSIDER = DescribedMember("m-1", "batch", frozenset(), "orders-0", "/10.0.0.9")


def described(*members: DescribedMember) -> Description:
    return Description("g", "Stable", 7, "range", members)


@dataclass
class World(Fleet):
    """One group with one fenced pod."""

    description: Description | None = None
    holder: Holder = field(default_factory=lambda: Holder("orders-a", "uid-a"))
    online: list[Principal] = field(default_factory=lambda: [POD])
    orders: list[pb.Instance] = field(default_factory=list)
    answer: pb.OrderAnswer = field(default_factory=lambda: pb.OrderAnswer(order_id=1))
    changes: list[Key] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return self.online

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        self.orders.append(order.instance)
        return self.answer

    def fenced(self) -> FencedInstances:
        ports = FencedPorts(
            lambda _: self.description,
            lambda _key, _name, holder: holder == self.holder,
            self.changes.append,
            self.warnings.append,
        )
        return FencedInstances(self, ports)


def test_while_the_other_process_is_a_member_both_are_named_and_nothing_is_ordered() -> None:
    world = World(described(OUTSIDER))
    fenced = world.fenced()
    for _ in range(2):
        fenced.reported(POD, FENCED)
    asyncio.run(fenced.look())
    assert world.orders == []
    assert world.changes == [KEY]
    (message,) = fenced.messages(KEY).values()
    assert message == (
        "client batch at /10.0.0.9 has taken the instance orders-0 of pod orders-a; end that process: the pod gets orders-0 "
        "again when it has left the group"
    )
    assert world.warnings == [f"shop/orders: {message}"]
    assert fenced.messages(Key("shop", "payments")) == {}


def test_it_is_given_again_once_no_member_has_it() -> None:
    world = World(described(OUTSIDER))
    fenced = world.fenced()
    fenced.reported(POD, FENCED)
    world.description = described(DescribedMember("m-2", "orders-b", frozenset(), "orders-1"))
    world.answer = pb.OrderAnswer(order_id=1, error="no")
    asyncio.run(fenced.look())
    assert world.orders == [pb.Instance(name="orders-0", after_fencing=True)]
    assert world.warnings[1:] == ["orders-a of shop/orders refuses orders-0: no"]
    fenced.reported(POD, FREE)
    assert fenced.messages(KEY) == {}
    assert world.changes == [KEY, KEY]
    asyncio.run(fenced.look())
    assert len(world.orders) == 1


def test_while_the_group_is_not_described_only_another_pod_gets_it() -> None:
    world = World()
    fenced = world.fenced()
    fenced.reported(POD, FENCED)
    asyncio.run(fenced.look())
    assert world.orders == []
    assert fenced.messages(KEY)["orders-a"].endswith(
        "end that process, then delete the pod: its successor gets orders-0"
    )


def test_a_pod_that_its_successor_has_fenced_is_no_problem_and_gets_nothing() -> None:
    world = World(described(), Holder("orders-b", "uid-b"))
    fenced = world.fenced()
    fenced.reported(POD, FENCED)
    asyncio.run(fenced.look())
    assert world.orders == []
    assert fenced.messages(KEY) == {}


def test_a_pod_that_is_gone_is_forgotten() -> None:
    world = World(described(OUTSIDER))
    fenced = world.fenced()
    fenced.reported(POD, FENCED)
    world.online.clear()
    asyncio.run(fenced.look())
    assert fenced.messages(KEY) == {}
    assert world.changes == [KEY, KEY]
