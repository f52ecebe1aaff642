"""Settings reach each sidecar once, and what a sidecar refuses is known until it accepts, leaves, or the settings change."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from typing_extensions import override

from rota_operator.cluster import settings_orders
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet, SettingsOrders
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_proto.fleet.v1 import fleet_pb2 as pb

KEY, HASH = Key("shop", "orders"), "h-1"
RANGE, ACME = '{"topics": ["orders"]}', '{"topics": ["orders"], "suspend": true}'
ERROR = "assignment.strategy: unknown strategy acme"


def pod(name: str, uid: str = "u-1") -> Principal:
    return Principal(SidecarRef("shop", name), "shop.orders", uid, "shop/orders")


def report(settings_hash: str = HASH, *, suspended: bool = False) -> pb.SidecarReport:
    return pb.SidecarReport(settings_hash=settings_hash, member=pb.MemberReport(suspended=suspended))


class Sidecars(Fleet):
    """Sidecars that answer an order with an error by the name of their pod; None: no answer."""

    def __init__(self, *pods: Principal) -> None:
        self.pods = list(pods)
        self.errors: dict[str, str | None] = {}
        self.sent: list[str] = []
        # Whether each of them says that members are ordered to join.
        self.orders_join: list[bool] = []
        # Of SUSPEND and RESUME, by the pod.
        self.suspensions: list[tuple[str, str]] = []
        self.resetting: set[Key] = set()
        # Called while settings are under way.
        self.before_answer: Callable[[], None] = lambda: None

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return self.pods

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        if order.WhichOneof("order") in ("suspend", "resume"):
            self.suspensions.append((sidecar.pod, str(order.WhichOneof("order"))))
            return pb.OrderAnswer(order_id=1)
        self.sent.append(sidecar.pod)
        self.orders_join.append(order.configure.orders_join)
        self.before_answer()
        error = self.errors.get(sidecar.pod, "")
        return pb.OrderAnswer() if error is None else pb.OrderAnswer(order_id=1, error=error)


def orders_of(fleet: Sidecars) -> SettingsOrders:
    orders = SettingsOrders(fleet, lambda message: None, lambda key: key in fleet.resetting)
    for each in fleet.pods:
        orders.reported(each, report())
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


def test_they_say_whether_members_are_ordered_to_join() -> None:
    fleet = Sidecars(pod("a"))
    orders = orders_of(fleet)
    orders.configure(KEY, RANGE, HASH)
    asyncio.run(orders.send())
    orders.configure(KEY, ACME, HASH, orders_join=True)
    asyncio.run(orders.send())
    assert fleet.orders_join == [False, True]


def test_a_sidecar_that_connects_gets_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_orders, "ROUND_S", 3_600)

    async def run() -> None:
        fleet, sent = Sidecars(pod("a")), asyncio.Semaphore(0)
        fleet.before_answer = sent.release
        orders = orders_of(fleet)
        orders.configure(KEY, RANGE, HASH)
        running = asyncio.ensure_future(orders.run())
        await sent.acquire()
        orders.opened(pod("a"))
        orders.reported(pod("a"), report())
        await sent.acquire()
        running.cancel()

    asyncio.run(run())


def test_a_sidecar_gets_them_again_on_a_new_stream() -> None:
    """Its container may have restarted within a round, with a file of settings from before."""
    fleet = Sidecars(pod("a"), pod("b"))
    orders = orders_of(fleet)
    orders.configure(KEY, RANGE, HASH)
    asyncio.run(orders.send())
    orders.opened(pod("b"))
    asyncio.run(orders.send())
    assert sorted(fleet.sent) == ["a", "b", "b"]


def test_an_answer_of_the_process_before_does_not_count_for_the_one_that_has_opened_a_stream_since() -> None:
    fleet = Sidecars(pod("a"))
    orders = orders_of(fleet)
    orders.configure(KEY, RANGE, HASH)
    fleet.before_answer = lambda: orders.opened(pod("a"))
    asyncio.run(orders.send())
    fleet.before_answer = lambda: None
    asyncio.run(orders.send())
    asyncio.run(orders.send())
    assert fleet.sent == ["a", "a"]


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
    orders.reported(fleet.pods[0], report())
    asyncio.run(orders.send())
    assert orders.refusals(KEY) == {}


def test_a_pod_of_an_older_rollout_that_starts_from_a_suspended_file_is_resumed() -> None:
    """The file was written while offsets were reset, and the rollout that would replace the pod may not end."""
    fleet = Sidecars(pod("a"), pod("b"))
    orders = orders_of(fleet)
    orders.configure(KEY, RANGE, HASH)
    orders.reported(fleet.pods[1], report("h-0", suspended=True))
    # The reset resumes the members itself.
    fleet.resetting = {KEY}
    asyncio.run(orders.send())
    assert fleet.suspensions == []
    fleet.resetting = set()
    for _ in range(2):
        asyncio.run(orders.send())
    assert fleet.suspensions == [("b", "resume")] * 2, "until a report says so"
    orders.reported(fleet.pods[1], report("h-0"))
    asyncio.run(orders.send())
    assert fleet.suspensions == [("b", "resume")] * 2
    assert fleet.sent == ["a"]


def test_a_sidecar_that_refuses_the_settings_is_suspended_as_they_say() -> None:
    """Settings may name a strategy that the sidecar lacks, while the group changes to it."""
    fleet = Sidecars(pod("a"), pod("b"))
    fleet.errors["b"] = ERROR
    orders = orders_of(fleet)
    orders.configure(KEY, ACME, HASH)
    asyncio.run(orders.send())
    assert fleet.suspensions == [("b", "suspend")]


def test_a_sidecar_that_takes_the_settings_gets_no_order_beside_them() -> None:
    fleet = Sidecars(pod("a"))
    orders = orders_of(fleet)
    orders.reported(fleet.pods[0], report(suspended=True))
    orders.configure(KEY, RANGE, HASH)
    asyncio.run(orders.send())
    assert (fleet.sent, fleet.suspensions) == (["a"], [])
