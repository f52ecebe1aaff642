"""Settings reach each sidecar once, and what a sidecar refuses is known until it accepts, leaves, or the settings change."""

import asyncio
from collections.abc import Sequence

from typing_extensions import override

from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet, SettingsOrders
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_proto.fleet.v1 import fleet_pb2 as pb

KEY, HASH = Key("shop", "orders"), "h-1"
RANGE, ACME = '{"topics": ["orders"]}', '{"topics": ["orders"], "suspend": true}'
ERROR = "assignment.strategy: unknown strategy acme"


def pod(name: str, uid: str = "u-1") -> Principal:
    return Principal(SidecarRef("shop", name), "shop.orders", uid, "shop/orders")


class Sidecars(Fleet):
    """Sidecars that answer an order with an error by the name of their pod; None: no answer."""

    def __init__(self, *pods: Principal) -> None:
        self.pods = list(pods)
        self.errors: dict[str, str | None] = {}
        self.sent: list[str] = []

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return self.pods

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        self.sent.append(sidecar.pod)
        error = self.errors.get(sidecar.pod, "")
        return pb.OrderAnswer() if error is None else pb.OrderAnswer(order_id=1, error=error)


def orders_of(fleet: Sidecars) -> SettingsOrders:
    orders = SettingsOrders(fleet, lambda message: None)
    for each in fleet.pods:
        orders.reported(each, HASH)
    return orders


def test_settings_are_sent_until_they_are_answered_and_then_no_more() -> None:
    fleet = Sidecars(pod("a"), pod("b"))
    fleet.errors["b"] = None
    orders = orders_of(fleet)
    orders.configure(KEY, RANGE, HASH)
    asyncio.run(orders.send())
    asyncio.run(orders.send())
    assert sorted(fleet.sent) == ["a", "b", "b"]
    assert orders.refusals(KEY) == {}


def test_a_sidecar_gets_them_again_on_a_new_stream() -> None:
    """Its container may have restarted within a round, with a file of settings from before."""
    fleet = Sidecars(pod("a"), pod("b"))
    orders = orders_of(fleet)
    orders.configure(KEY, RANGE, HASH)
    asyncio.run(orders.send())
    orders.opened(pod("b"))
    asyncio.run(orders.send())
    assert sorted(fleet.sent) == ["a", "b", "b"]


def test_a_refusal_is_known_until_the_settings_change_and_is_not_provoked_again() -> None:
    fleet = Sidecars(pod("a"), pod("b"))
    fleet.errors["b"] = ERROR
    orders = orders_of(fleet)
    orders.configure(KEY, ACME, HASH)
    for _ in range(2):
        asyncio.run(orders.send())
    assert sorted(fleet.sent) == ["a", "b"]
    assert orders.refusals(KEY) == {"b": ERROR}
    assert orders.refusals(Key("shop", "other")) == {}
    orders.configure(KEY, RANGE, HASH)
    assert orders.refusals(KEY) == {}


def test_a_refusal_goes_with_its_pod() -> None:
    fleet = Sidecars(pod("a"))
    fleet.errors["a"] = ERROR
    orders = orders_of(fleet)
    orders.configure(KEY, ACME, HASH)
    asyncio.run(orders.send())
    fleet.pods = [pod("a", "u-2")]
    fleet.errors.clear()
    orders.reported(fleet.pods[0], HASH)
    asyncio.run(orders.send())
    assert orders.refusals(KEY) == {}
