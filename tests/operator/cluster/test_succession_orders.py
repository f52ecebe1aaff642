"""Dynamic members of Deployments join when they are needed, and memberships reach the pods that they were given up for, whichever operator leads."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from typing_extensions import override

from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet
from rota_operator.cluster.succession_orders import SuccessionOrders, SuccessionPorts
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.reconcile.instances import REPLACEMENT_MS
from rota_operator.reconcile.successions import MemberPool
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, serving

pytestmark = pytest.mark.unit
KEY, SILENCE_MS = Key("shop", "orders"), 45_000
RESOURCE = {"metadata": {"namespace": "shop", "name": "orders", "uid": "uid-group"}}


@dataclass
class World(Fleet):
    """Pods with their sidecars, which execute orders, and an API server that lists the pods."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    online: dict[str, Principal] = field(default_factory=dict)
    members: dict[str, pb.MemberReport] = field(default_factory=dict)
    requests: int = 0
    fails: bool = False
    # Called while the pods are listed.
    on_list: Callable[[], None] = lambda: None
    # Orders that were executed, by pod and kind.
    done: list[tuple[str, str]] = field(default_factory=list)
    # Answers "" to orders of these, as to one that does not arrive.
    deaf: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    now_s: float = 0.0

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return list(self.online.values())

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        if sidecar.pod in self.deaf:
            return pb.OrderAnswer(error="no answer")
        if sidecar.pod in self.refusals:
            return pb.OrderAnswer(order_id=1, error=self.refusals[sidecar.pod])
        member = self.members[sidecar.pod]
        match order.WhichOneof("order"):
            case "join":
                self.done.append((sidecar.pod, "joins"))
                member.CopyFrom(pb.MemberReport(member_id=f"id-{sidecar.pod}", ready=True))
            case "hand_over":
                self.done.append((sidecar.pod, f"hands over to {order.hand_over.successor or 'none'}"))
                member.awaits_successor, member.draining = False, True
                member.successor = order.hand_over.successor
            case "remove_instances":
                self.done.append((sidecar.pod, f"removes {' '.join(order.remove_instances.member_ids)}"))
            case "take_over":
                assert order.take_over.successor == sidecar.pod, "it was given up for this pod"
                member_id = order.take_over.membership.member_id
                self.done.append((sidecar.pod, f"takes {member_id} over"))
                member.CopyFrom(pb.MemberReport(member_id=member_id, ready=True))
        return pb.OrderAnswer(order_id=1)

    def start(self, *names: str) -> None:
        """Start pods that wait for an order."""
        for name in names:
            created = f"2026-01-01T00:00:{len(self.pods):02}Z"
            metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
            self.pods[name] = {"metadata": metadata, "status": {"phase": "Running"}}
            self.online[name] = Principal(SidecarRef("shop", name), "g", f"uid-{name}", "shop/orders")
            self.members[name] = pb.MemberReport(awaits_join=True, ready=True)

    def delete(self, name: str) -> None:
        """Delete a pod; its sidecar waits for a successor."""
        self.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
        self.members[name].awaits_successor = True

    def give_up(self, name: str) -> None:
        """End the drain of a pod."""
        before = self.members[name]
        membership = pb.Membership(member_id=before.member_id, generation_id=3)
        given_up = pb.GivenUpMembership(membership=membership, successor=before.successor)
        before.CopyFrom(pb.MemberReport(draining=True, given_up_membership=given_up))

    def end(self, name: str) -> None:
        del self.pods[name], self.online[name], self.members[name]

    def answer(self, sent: Sent) -> Answer:
        self.requests += 1
        self.on_list()
        assert sent.query["labelSelector"] == "rota.dev/consumer-group-uid=uid-group"
        return Answer(500) if self.fails else Answer(200, {"items": list(self.pods.values())})


@dataclass
class Operator:
    """One life of an operator."""

    world: World
    orders: SuccessionOrders
    warnings: list[str]

    async def look(self, times: int = 3) -> None:
        """Receive a report of each sidecar, look, and let the orders be answered."""
        for _ in range(times):
            for name, each in self.world.online.items():
                report = pb.MemberReport()
                report.CopyFrom(self.world.members[name])
                self.orders.reported(each, report)
            await asyncio.gather(*await self.orders.look())


async def settled(world: World, life: Callable[[], Operator], *pods: str) -> Operator:
    """An operator of a group that has these pods as members."""
    operator = life()
    world.start(*pods)
    operator.orders.offer(KEY, RESOURCE, MemberPool(len(pods), SILENCE_MS))
    await operator.look()
    world.done.clear()
    return operator


def played(story: Callable[[World, Callable[[], Operator]], Awaitable[None]]) -> None:
    """Run a story with an operator for each call."""
    world = World()

    async def body() -> None:
        async with serving(ApiServer(world.answer)) as api:

            def life() -> Operator:
                warnings: list[str] = []
                clocks = ProcessClocks(lambda: 0, lambda: world.now_s)
                ports = SuccessionPorts(world, clocks, warnings.append)
                return Operator(world, SuccessionOrders(api, ports), warnings)

            await story(world, life)

    asyncio.run(body())


def test_as_many_pods_join_as_are_wanted_and_nothing_is_read_at_rest() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        assert [each.member_id for each in world.members.values()] == ["id-a", "id-b"]
        world.requests = 0
        await operator.look()
        assert world.requests == 0
        world.start("c")
        await operator.look()
        assert world.done == [], "it is one too many"
        operator.orders.offer(KEY, RESOURCE, MemberPool(3, SILENCE_MS))
        await operator.look()
        assert world.done == [("c", "joins")]

    played(story)


def test_a_membership_passes_to_the_pod_that_replaces_its_own() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        await operator.look()
        assert world.done == [], "its successor does not wait yet"
        world.start("c", "d")
        await operator.look()
        assert world.done == [("a", "hands over to c")]
        world.give_up("a")
        await operator.look()
        assert world.done[1:] == [("c", "takes id-a over")], "once"
        world.end("a")
        await operator.look()
        assert world.members["d"].awaits_join, "nobody joins: as many are members as are wanted"

    played(story)


def test_a_membership_that_is_given_up_while_the_pods_are_listed_passes_to_its_successor() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        world.start("c")
        await operator.look()

        def give_up() -> None:
            world.on_list = lambda: None
            world.give_up("a")
            operator.orders.reported(world.online["a"], world.members["a"])

        world.on_list = give_up
        await operator.look()
        assert world.done == [("a", "hands over to c"), ("c", "takes id-a over")]

    played(story)


def test_a_membership_passes_on_from_its_successor_while_the_first_pod_still_reports() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        world.start("c")
        await operator.look()
        world.give_up("a")
        await operator.look()
        world.delete("c")
        world.start("d")
        await operator.look()
        world.give_up("c")
        await operator.look()
        assert world.done[2:] == [("c", "hands over to d"), ("d", "takes id-a over")]
        world.end("c")
        await operator.look()
        assert world.done[4:] == [], "what the first pod still reports is over"
        # The next leader knows nothing of c.
        operator = life()
        operator.orders.offer(KEY, RESOURCE, MemberPool(2, SILENCE_MS))
        await operator.look()
        assert world.done[4:] == []

    played(story)


def test_a_membership_arrives_although_its_pod_has_ended_and_although_an_order_is_lost() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        world.start("c")
        await operator.look()
        world.give_up("a")
        world.deaf.add("c")
        await operator.look()
        world.end("a")
        await operator.look()
        world.deaf.clear()
        await operator.look()
        assert world.done == [("a", "hands over to c"), ("c", "takes id-a over")]

    played(story)


@pytest.mark.parametrize("killed_before", ["the hand-over", "the end of the drain", "the take-over"])
def test_the_next_leader_goes_on_with_the_same_pods(killed_before: str) -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")

        def next_leader(step: str) -> Operator:
            if step != killed_before:
                return operator
            found = life()
            found.orders.offer(KEY, RESOURCE, MemberPool(2, SILENCE_MS))
            return found

        world.delete("a")
        world.start("c", "d")
        operator = next_leader("the hand-over")
        await operator.look()
        operator = next_leader("the end of the drain")
        await operator.look()
        world.give_up("a")
        operator = next_leader("the take-over")
        await operator.look()
        assert world.done == [("a", "hands over to c"), ("c", "takes id-a over")]
        assert world.members["d"].awaits_join

    played(story)


def test_a_pod_without_a_replacement_leaves_the_group() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        await operator.look()
        world.now_s += REPLACEMENT_MS / 1000
        await operator.look()
        assert world.done == [("a", "hands over to none")]

    played(story)


def test_a_membership_whose_successor_has_ended_is_removed_once() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        world.start("c")
        await operator.look()
        world.give_up("a")
        world.end("c")
        await operator.look()
        assert world.done == [("a", "hands over to c"), ("b", "removes id-a")]

    played(story)


def test_what_was_given_up_is_forgotten_when_the_coordinator_has_forgotten_it() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.delete("a")
        world.start("c")
        await operator.look()
        world.give_up("a")
        world.deaf.add("c")
        await operator.look()
        world.end("a")
        world.now_s += SILENCE_MS / 1000 + 1
        world.deaf.clear()
        await operator.look()
        assert world.done[1:] == [("c", "joins")]

    played(story)


def test_a_group_that_goes_while_it_is_looked_at_gets_no_orders() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a")
        world.start("b")
        operator.orders.offer(KEY, RESOURCE, MemberPool(2, SILENCE_MS))
        world.on_list = lambda: operator.orders.forget(KEY)
        await operator.look()
        assert (world.done, operator.warnings) == ([], [])

    played(story)


def test_a_problem_is_logged_once_and_an_order_is_sent_again() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a")
        world.start("b")
        operator.orders.offer(KEY, RESOURCE, MemberPool(2, SILENCE_MS))
        world.fails = True
        await operator.look()
        assert len(operator.warnings) == 1
        assert "members of shop/orders cannot be ordered to join" in operator.warnings[0]
        world.fails, world.refusals["b"] = False, "not now"
        await operator.look(1)
        assert operator.warnings[1:] == ["b of shop/orders refuses an order: not now"]
        world.refusals.clear()
        await operator.look()
        assert world.done == [("b", "joins")]

    played(story)
