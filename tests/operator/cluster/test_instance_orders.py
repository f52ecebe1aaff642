"""Instances reach their pods after they are written down, whichever operator leads, and whatever the API server answers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from typing_extensions import override

from rota_operator.cluster.instance_orders import KUBELET_DELAY_MS, InstanceOrders, InstancePorts
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.overview.description import DescribedMember, Description
from rota_operator.reconcile.instances import Holder, InstancePool
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, serving

pytestmark = pytest.mark.unit
KEY, TIMEOUT_MS = Key("shop", "orders"), 45_000
WALL_MS = 1_000
# More than two minutes: an application may take its time.
TERMINATION_MS = 315_000
RESOURCE = {"metadata": {"namespace": "shop", "name": "orders", "uid": "uid-group"}}


def pool(size: int) -> InstancePool:
    return InstancePool("orders", size, TIMEOUT_MS, TERMINATION_MS)


def set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class World(Fleet):
    """Pods with their sidecars, and an API server with one ConfigMap; sidecars execute their orders."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    online: dict[str, Principal] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    drained: list[str] = field(default_factory=list)
    # Wall clock time at which the last of these drains expires.
    expires_ms: int = 0
    data: dict[str, str] | None = None
    version: int = 1
    requests: list[str] = field(default_factory=list)
    fails: Callable[[Sent], Answer | None] = lambda sent: None
    # Pods whose instance another process has taken, and the instance.
    fenced: dict[str, str] = field(default_factory=dict)
    # Pods that drain and have given their instance up, and the instance.
    given_up: dict[str, str] = field(default_factory=dict)
    # Pods that serve their applications until they are ordered to hand over, and those that were: whether a successor waits.
    awaiting: set[str] = field(default_factory=set)
    handed_over: dict[str, bool] = field(default_factory=dict)
    # Pods that are not ready yet.
    unready: set[str] = field(default_factory=set)
    # Static members that others were ordered to remove, and what they answer.
    removed: list[str] = field(default_factory=list)
    refuses_removals: str = ""
    # They answer once it is set.
    held: asyncio.Event = field(default_factory=set_event)
    # Answers "" to orders of these, as to one that does not arrive.
    deaf: set[str] = field(default_factory=set)
    now_s: float = 0.0
    # Of the group by its coordinator; None: it is not described.
    description: Description | None = None

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return list(self.online.values())

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        if sidecar.pod in self.deaf:
            return pb.OrderAnswer(error="no answer")
        if order.WhichOneof("order") == "remove_instances":
            names = [*order.remove_instances.names]
            assert not set(names) & set(self.instances.values()), "removed while a pod has it"
            assert all(name in self.holders for name in names), "free for a new pod while it is removed"
            self.removed += names
            await self.held.wait()
            return pb.OrderAnswer(order_id=1, error=self.refuses_removals)
        if order.WhichOneof("order") == "hand_over":
            self.awaiting.remove(sidecar.pod)
            self.handed_over[sidecar.pod] = not order.hand_over.no_successor
        elif order.WhichOneof("order") == "drain":
            assert order.drain.within_ms, "the pod's clock may be off"
            self.drained.append(sidecar.pod)
            self.awaiting.discard(sidecar.pod)
            self.expires_ms = order.drain.expires_ms
        else:
            assert self.data is not None
            assert self.data[order.instance.name].startswith(f"{sidecar.pod} "), (
                "ordered before it is written"
            )
            self.instances[sidecar.pod] = order.instance.name
        return pb.OrderAnswer(order_id=1)

    def start(self, *names: str, online: bool = True) -> None:
        for name in names:
            created = f"2026-01-01T00:00:{len(self.pods):02}Z"
            metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
            self.pods[name] = {"metadata": metadata, "status": {"phase": "Running"}}
            if online:
                self.online[name] = Principal(SidecarRef("shop", name), "g", f"uid-{name}", "shop/orders")

    def delete(self, name: str) -> None:
        self.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"

    def give_up(self, name: str) -> None:
        """Delete the pod; it drains, its application says goodbye, and its sidecar ends its membership."""
        self.delete(name)
        self.given_up[name] = self.instances.pop(name)

    def end_slowly(self, name: str) -> None:
        """Delete the pod; its sidecar waits for a successor."""
        self.delete(name)
        self.awaiting.add(name)

    def end(self, name: str) -> None:
        self.given_up.pop(name, None)
        self.pods.pop(name, None)
        self.online.pop(name, None)
        self.instances.pop(name, None)

    def answer(self, sent: Sent) -> Answer:
        self.requests.append(f"{sent.method} {sent.path.rpartition('/')[2]}")
        if (failure := self.fails(sent)) is not None:
            return failure
        if sent.path.endswith("/pods"):
            assert sent.query["labelSelector"] == "rota.dev/consumer-group-uid=uid-group"
            return Answer(200, {"items": list(self.pods.values())})
        if sent.method == "GET":
            return Answer(404) if self.data is None else self.config_map()
        if sent.method == "POST":
            if self.data is not None:
                return Answer(409, {"reason": "AlreadyExists"})
            assert sent.body["metadata"]["ownerReferences"][0]["uid"] == "uid-group"
            self.data = sent.body["data"]
            return self.config_map()
        assert self.data is not None
        if sent.body["metadata"]["resourceVersion"] != str(self.version):
            return Answer(409, {"reason": "Conflict"})
        self.version += 1
        merged = {**self.data, **sent.body["data"]}
        self.data = {name: text for name, text in merged.items() if text is not None}
        return self.config_map()

    def config_map(self) -> Answer:
        metadata = {"name": "rota-orders-instances", "resourceVersion": str(self.version)}
        return Answer(200, {"metadata": metadata, "data": dict(self.data or {})})

    @property
    def holders(self) -> Mapping[str, str]:
        return {name: text.partition(" ")[0] for name, text in (self.data or {}).items()}


@dataclass
class Operator:
    """One life of an operator."""

    world: World
    orders: InstanceOrders
    warnings: list[str]

    async def look(self, times: int = 3) -> None:
        """Receive a report of each sidecar, look, and let the orders be answered."""
        for _ in range(times):
            for name, each in self.world.online.items():
                report = pb.MemberReport(
                    group_instance_id=self.world.instances.get(name, ""),
                    fenced_instance_id=self.world.fenced.get(name, ""),
                    given_up_instance_id=self.world.given_up.get(name, ""),
                    draining=name in self.world.given_up,
                    awaits_successor=name in self.world.awaiting,
                    ready=name not in self.world.unready,
                )
                self.orders.reported(each, report)
            await asyncio.gather(*await self.orders.look())


async def settled(world: World, life: Callable[[], Operator], *pods: str) -> Operator:
    """An operator whose pool has an instance for each of these pods, which have got them."""
    operator = life()
    world.start(*pods)
    operator.orders.offer(KEY, RESOURCE, pool(len(pods)))
    await operator.look()
    return operator


def played(story: Callable[[World, Callable[[], Operator]], Awaitable[None]]) -> None:
    """Run a story with an operator for each call."""
    world = World()

    async def body() -> None:
        async with serving(ApiServer(world.answer)) as api:

            def life() -> Operator:
                warnings: list[str] = []
                clocks = ProcessClocks(lambda: WALL_MS, lambda: world.now_s)
                ports = InstancePorts(world, lambda _: world.description, clocks, warnings.append)
                return Operator(world, InstanceOrders(api, ports), warnings)

            await story(world, life)

    asyncio.run(body())


def test_pods_get_instances_that_are_written_down_and_nothing_is_read_at_rest() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        assert world.instances == {"a": "orders-0", "b": "orders-1"}
        assert world.holders == {"orders-0": "a", "orders-1": "b"}
        world.requests.clear()
        await operator.look()
        assert world.requests == []

    played(story)


def test_the_next_leader_takes_no_instance_away_and_gives_none_twice() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        first, second = life(), life()
        world.start("a", "b")
        for each in (first, second):
            each.orders.offer(KEY, RESOURCE, pool(3))
        await first.look()
        # The second one leads; the first one does not know yet, and both see a new pod.
        await second.look()
        world.start("c")
        await second.look(1)
        world.end("b")
        world.start("d")
        await first.look()
        await second.look()
        assert world.holders == {"orders-0": "a", "orders-1": "d", "orders-2": "c"}
        assert world.instances == {"a": "orders-0", "d": "orders-1", "c": "orders-2"}

    played(story)


def test_a_rollout_passes_instances_on_and_its_surplus_pod_waits() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.start("c")
        await operator.look()
        assert "c" not in world.instances
        world.delete("a")
        await operator.look()
        assert world.drained == [], "its place is taken by the surplus pod"
        world.end("a")
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}

    played(story)


def test_a_pod_that_is_scaled_away_is_drained_once() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b", "c")
        operator.orders.offer(KEY, RESOURCE, pool(2))
        world.delete("a")
        world.deaf.add("a")
        await operator.look(1)
        world.deaf.clear()
        await operator.look()
        assert world.drained == ["a"]
        assert world.expires_ms == WALL_MS + KUBELET_DELAY_MS + TERMINATION_MS, (
            "not before the pod has ended: it would keep its place"
        )
        world.end("a")
        await operator.look()
        assert world.holders == {"orders-1": "b", "orders-2": "c"}

    played(story)


def test_a_pod_that_ends_before_its_order_to_leave_the_group_is_removed_by_another() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b", "c")
        operator.orders.offer(KEY, RESOURCE, pool(2))
        world.delete("a")
        world.end("a")
        world.refuses_removals = "the coordinator cannot be reached"
        await operator.look()
        assert world.drained == []
        assert world.removed == ["orders-0"] * 3
        assert world.holders == {"orders-0": "a", "orders-1": "b", "orders-2": "c"}, (
            "the next leader removes it"
        )
        assert len(operator.warnings) == 1
        assert "b cannot remove orders-0 from the group of shop/orders" in operator.warnings[0]

        world.refuses_removals = ""
        operator = life()
        operator.orders.offer(KEY, RESOURCE, pool(2))
        await operator.look()
        assert world.removed == ["orders-0"] * 4
        assert world.holders == {"orders-1": "b", "orders-2": "c"}
        world.requests.clear()
        await operator.look()
        assert world.requests == []

    played(story)


def test_an_instance_that_cannot_be_removed_is_free_when_its_session_has_timed_out() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        operator.orders.offer(KEY, RESOURCE, pool(1))
        world.end("a")
        world.refuses_removals = "unknown order: update the sidecar"
        await operator.look()
        world.now_s = TIMEOUT_MS / 1000 + 1
        await operator.look()
        assert world.holders == {"orders-1": "b"}

    played(story)


def test_a_pod_that_comes_before_the_removal_succeeds_the_abandoned_instance() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        operator.orders.offer(KEY, RESOURCE, pool(1))
        world.end("a")
        world.refuses_removals = "the coordinator cannot be reached"
        await operator.look(1)
        operator.orders.offer(KEY, RESOURCE, pool(2))
        world.start("c")
        removals = len(world.removed)
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}
        assert len(world.removed) == removals

    played(story)


def test_no_instance_is_given_out_while_a_removal_is_under_way() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        operator.orders.offer(KEY, RESOURCE, pool(1))
        world.end("a")
        [removal] = await operator.orders.look()
        task = asyncio.ensure_future(removal)
        world.held = asyncio.Event()
        await asyncio.sleep(0)
        operator.orders.offer(KEY, RESOURCE, pool(2))
        world.start("c")
        assert not await operator.orders.look()
        assert "c" not in world.instances
        world.held.set()
        await task
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}

    played(story)


def test_a_pod_of_a_lost_node_has_its_instance_until_its_session_has_ended() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        del world.online["a"]
        world.delete("a")
        world.start("c")
        world.now_s = TIMEOUT_MS / 1000
        await operator.look()
        assert "c" not in world.instances
        world.now_s += 1
        await operator.look()
        assert world.instances["c"] == "orders-0"

    played(story)


def test_a_pod_that_drains_without_fleet_has_its_instance_while_it_is_a_member() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        await settled(world, life, "a", "b")
        members = [
            DescribedMember(f"m-{name}", "rota", instance_id=name) for name in ("orders-0", "orders-1")
        ]
        world.description = Description("g", "Stable", 7, "range", members)
        # The next leader has never seen the sidecar, which sends heartbeats to the coordinator and commits.
        operator = life()
        operator.orders.offer(KEY, RESOURCE, pool(2))
        del world.online["a"]
        world.delete("a")
        world.start("c")
        world.now_s = TIMEOUT_MS / 1000 + 1
        await operator.look()
        assert "c" not in world.instances
        world.description = Description("g", "Stable", 8, "range", members[1:])
        await operator.look()
        assert world.instances["c"] == "orders-0"

    played(story)


@pytest.mark.parametrize(
    ("status", "reason"), [(409, "Conflict"), (429, "TooManyRequests"), (500, ""), (403, "Forbidden")]
)
@pytest.mark.parametrize("number", range(1, 5))
def test_whatever_request_fails_all_pods_have_their_instances_afterwards(
    status: int, reason: str, number: int
) -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = life()
        world.start("a", "b")
        operator.orders.offer(KEY, RESOURCE, pool(2))
        left = iter([*[False] * (number - 1), True])
        world.fails = lambda sent: (
            Answer(status, {"reason": reason, "message": "no"}) if next(left, False) else None
        )
        await operator.look(1)
        world.start("c")
        operator.orders.offer(KEY, RESOURCE, pool(3))
        await operator.look(4)
        assert world.instances == {"a": "orders-0", "b": "orders-1", "c": "orders-2"}
        assert len(operator.warnings) <= 1

    played(story)


def test_a_written_instance_reaches_its_pod_although_the_operator_was_killed_before_its_order() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        first = life()
        world.start("a", "b")
        first.orders.offer(KEY, RESOURCE, pool(2))
        for each in world.online.values():
            first.orders.reported(each, pb.MemberReport())
        for order in await first.orders.look():
            order.close()
        assert world.holders == {"orders-0": "a", "orders-1": "b"}
        assert world.instances == {}
        second = life()
        second.orders.offer(KEY, RESOURCE, pool(2))
        await second.look()
        assert world.instances == {"a": "orders-0", "b": "orders-1"}

    played(story)


def test_a_group_that_is_dynamic_again_gets_no_instances() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = life()
        operator.orders.offer(KEY, RESOURCE, pool(1))
        operator.orders.offer(KEY, RESOURCE, None)
        world.start("a")
        await operator.look()
        assert world.requests == []

    played(story)


def test_a_fenced_pod_keeps_its_instance_without_an_order_and_its_successor_gets_it() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        await settled(world, life, "a", "b")
        world.instances.pop("a")
        world.fenced["a"] = "orders-0"
        for operator in (life(), life()):
            operator.orders.offer(KEY, RESOURCE, pool(2))
            await operator.look()
            assert world.instances == {"b": "orders-1"}
            assert operator.orders.is_holder(KEY, "orders-0", Holder("a", "uid-a"))
            assert not operator.orders.is_holder(KEY, "orders-1", Holder("a", "uid-a"))
        world.end("a")
        world.start("c")
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}

    played(story)


def test_an_order_for_a_pod_that_is_gone_is_not_repeated_and_its_instance_passes_on() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = life()
        world.start("a")
        operator.orders.offer(KEY, RESOURCE, pool(1))
        world.deaf.add("a")
        await operator.look(1)
        assert world.holders == {"orders-0": "a"}
        world.end("a")
        await operator.look()
        world.start("b")
        await operator.look()
        assert world.instances == {"b": "orders-0"}
        assert operator.warnings == []

    played(story)
