"""Members of a group on Kafka get an order for a heartbeat once for each moment in which another one joins or has left."""

import asyncio

from rota_operator.cluster.heartbeat_orders import HeartbeatOrders
from rota_operator.fleet.principal import Principal
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.test_settings_orders import KEY, Sidecars, pod

A, B, C = pod("a"), pod("b"), pod("c")
DOWN, JOINING, STABLE = pb.MEMBER_STATE_DOWN, pb.MEMBER_STATE_JOINING, pb.MEMBER_STATE_STABLE
REVOKING = pb.MEMBER_STATE_REVOKING


class Group:
    """Three sidecars of one group, two of them in a generation."""

    def __init__(self, *, on_kafka: bool = True) -> None:
        self.fleet = Sidecars(A, B, C)
        self.orders = HeartbeatOrders(self.fleet, lambda key: on_kafka and key == KEY)
        for each in (A, B):
            self.report(each, JOINING)
            self.report(each, STABLE)
        self.send()

    def report(self, principal: Principal, state: pb.MemberState.ValueType) -> None:
        self.orders.reported(principal, pb.MemberReport(state=state))

    def send(self) -> list[str]:
        """Return the names of the sidecars that got an order now."""
        self.fleet.sent.clear()
        asyncio.run(self.orders.send())
        return sorted(self.fleet.sent)


def test_a_join_hastens_all_members_of_a_generation() -> None:
    group = Group()
    group.report(C, JOINING)
    assert group.send() == ["a", "b"]
    group.report(C, JOINING)
    assert group.send() == []
    group.report(C, STABLE)
    assert group.send() == []


def test_a_departure_hastens_the_others() -> None:
    group = Group()
    group.report(B, REVOKING)
    assert group.send() == []
    group.report(B, DOWN)
    assert group.send() == ["a"]
    group.report(B, DOWN)
    assert group.send() == []


def test_a_member_that_joins_again_gets_no_order() -> None:
    group = Group()
    group.report(C, JOINING)
    group.report(A, JOINING)
    assert group.send() == ["b"]


def test_members_at_rotas_coordinator_get_no_order() -> None:
    group = Group(on_kafka=False)
    group.report(C, JOINING)
    assert group.send() == []


def test_a_sidecar_that_is_gone_is_forgotten_and_gets_no_order() -> None:
    group = Group()
    group.fleet.pods = [A, C]
    group.report(C, JOINING)
    assert group.send() == ["a"]


def test_orders_are_sent_as_soon_as_they_are_due() -> None:
    group = Group()

    async def story() -> None:
        running = asyncio.ensure_future(group.orders.run())
        group.report(C, JOINING)
        while len(group.fleet.sent) < 2:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(asyncio.wait_for(story(), 20))
    assert sorted(group.fleet.sent) == ["a", "b"]
