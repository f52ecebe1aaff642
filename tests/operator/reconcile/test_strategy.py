"""A change of the assignment strategy keeps all members at one strategy at any time, and ends at the new one."""

import json
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest

from rota_operator.reconcile.actions import Configure
from rota_operator.reconcile.observed import GroupStrategies, SidecarStrategies
from rota_operator.reconcile.strategy import offer, written_in
from rota_operator.spec.conditions import Reason
from tests.operator.reconcile.worlds import World, kinds, resource

OLD, NEW, ACME = "sticky", "range", "acme"


def strategies_of(world: World) -> tuple[str, str]:
    """Return the strategies in the ConfigMap, and in the order to sidecars."""
    (order,) = [each for each in world.plan().actions if isinstance(each, Configure)]
    return ",".join(written_in(world.config_map)), json.loads(order.settings)["assignment"]["strategy"]


def changing(**sidecars: SidecarStrategies) -> World:
    """A world whose strategy was OLD and is to be NEW."""
    world = World(resource(assignment={"strategy": OLD}))
    world.reconcile()
    world.strategies = GroupStrategies(OLD, sidecars)
    world.edit(assignment={"strategy": NEW})
    world.reconcile()
    return world


def test_both_are_offered_until_the_group_uses_the_new_one() -> None:
    world = changing()
    assert strategies_of(world) == (f"{NEW},{OLD}", f"{NEW},{OLD}")
    assert kinds(world.plan()) == ["Configure"], "at rest, until something changes"
    world.strategies = GroupStrategies(NEW, {"a": SidecarStrategies(NEW, (NEW, OLD))})
    assert kinds(world.reconcile()) == ["ApplyConfigMap", "Configure"]
    assert strategies_of(world) == (NEW, NEW)
    assert world.plan().remarks == ()


def test_a_pod_that_does_not_offer_the_new_one_is_named_and_keeps_the_former_one() -> None:
    world = changing(a=SidecarStrategies(OLD, (NEW, OLD)), b=SidecarStrategies(OLD, (OLD,)))
    (remark,) = world.plan().remarks
    assert remark.reason == Reason.STRATEGY_CHANGING
    assert remark.message.endswith("waiting for b to offer it")
    # A pod without an instance is in no generation: the group has chosen without it.
    world.strategies = GroupStrategies(NEW, {"surplus": SidecarStrategies("", (OLD,))})
    world.reconcile()
    assert strategies_of(world) == (f"{NEW},{OLD}", f"{NEW},{OLD}")


@pytest.mark.parametrize(
    ("group", "waits_for"),
    [
        (GroupStrategies(), "the group to have members"),
        (GroupStrategies(OLD), f"a rebalance of the group, which uses {OLD}"),
        (GroupStrategies("", {"a": SidecarStrategies(OLD, (NEW, OLD))}), "a rebalance"),
        (GroupStrategies(NEW, {"old-version": SidecarStrategies()}), ""),
    ],
)
def test_the_second_round_waits_for_what_the_message_says(group: GroupStrategies, waits_for: str) -> None:
    found = offer((NEW,), (NEW, OLD), group, has_pods=True)
    assert found.waits_for.startswith(waits_for) if waits_for else found == ((NEW,), "")


def test_without_pods_there_is_one_round() -> None:
    assert offer((NEW,), (OLD,), GroupStrategies(), has_pods=False).names == (NEW,)


def test_a_change_during_a_change_keeps_what_sidecars_may_have_no_other_than() -> None:
    third, written = ("uniform",), (NEW, OLD)
    surplus = {"surplus": SidecarStrategies("", (OLD,))}
    for group, names in (
        (GroupStrategies(OLD), ("uniform", OLD)),
        (GroupStrategies(NEW), ("uniform", NEW)),
        (GroupStrategies(NEW, surplus), ("uniform", NEW, OLD)),
        (GroupStrategies(), ("uniform", NEW, OLD)),
    ):
        assert offer(third, written, group, has_pods=True).names == names
    assert offer((OLD,), (NEW, OLD), GroupStrategies(OLD), has_pods=True).names == (OLD,), "taken back"


@pytest.mark.parametrize(
    "data", [None, {}, {"settings.json": "no json"}, {"settings.json": "[]"}, {"settings.json": "{}"}]
)
def test_a_config_map_that_says_nothing_begins_no_change(data: dict[str, str] | None) -> None:
    assert written_in({"data": data}) == ()
    assert offer((NEW,), (), GroupStrategies(), has_pods=True) == ((NEW,), "")


@dataclass
class Pods:
    """Pods with their sidecars; those in `members` are in the group, which chooses as Kafka's coordinator does."""

    # Draws one of several pods.
    pick: Callable[[Collection[str]], str]
    wanted: str = OLD
    # The ConfigMap, which pods read when they start.
    config: tuple[str, ...] = (OLD,)
    offers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    started: int = 0

    def start(self) -> None:
        """A pod joins with what it knows of the ConfigMap; every second one lacks ACME, and without anything else it cannot start."""
        self.started += 1
        pod = f"pod-{self.started}"
        if known := tuple(name for name in self.config if self.knows(pod, name)):
            self.offers[pod] = known

    def knows(self, pod: str, name: str) -> bool:
        return name != ACME or int(pod.rpartition("-")[2]) % 2 == 0

    def join(self) -> None:
        if outside := set(self.offers) - self.members:
            pod = self.pick(outside)
            common = [
                each for each in self.offers[pod] if all(each in self.offers[one] for one in self.members)
            ]
            if common:
                self.members.add(pod)
                return
            # A pod with ACME alone and one that lacks it cannot be in one group: the later one ends, and starts again.
            pair = next(
                {pod, one}
                for one in sorted(self.members)
                if not set(self.offers[one]).intersection(self.offers[pod])
            )
            assert any(self.offers[each] == (ACME,) for each in pair), (pod, self.offers)
            assert any(not self.knows(each, ACME) for each in pair), (pod, self.offers)
            del self.offers[pod]

    def configure(self) -> None:
        """A sidecar executes its order, or refuses it whole."""
        if self.offers:
            self.send(self.pick(self.offers))

    def send(self, pod: str) -> None:
        if all(self.knows(pod, name) for name in self.config):
            self.offers[pod] = self.config

    def end(self) -> None:
        if self.offers:
            gone = self.pick(self.offers)
            del self.offers[gone]
            self.members.discard(gone)

    def change(self) -> None:
        others = {OLD, NEW, ACME} - {self.wanted}
        self.wanted = self.pick(others)

    def reconcile(self) -> None:
        """Any operator: it knows nothing but what it sees now."""
        self.config = offer((self.wanted,), self.config, self.strategies, has_pods=bool(self.offers)).names

    @property
    def chosen(self) -> str:
        in_group = [self.offers[pod] for pod in sorted(self.members)]
        return next((name for name in (in_group or [()])[0] if all(name in each for each in in_group)), "")

    @property
    def strategies(self) -> GroupStrategies:
        sidecars = {
            pod: SidecarStrategies(self.chosen if pod in self.members else "", offered)
            for pod, offered in self.offers.items()
        }
        return GroupStrategies(self.chosen, sidecars)


STEPS = (Pods.start, Pods.join, Pods.configure, Pods.configure, Pods.reconcile, Pods.end, Pods.change)
# Ends are rare, so that groups grow.
WEIGHTS = (2, 3, 3, 3, 3, 1, 1)
HISTORIES, LENGTH = 2_000, 40


def test_in_any_order_of_starts_joins_orders_and_reconciles_no_member_is_refused(seed: int) -> None:
    for number in range(HISTORIES):
        draw = random.Random(f"{seed}-{number}")
        pods = Pods(lambda some, draw=draw: draw.choice(sorted(some)))  # type: ignore[misc]
        for step in [*draw.choices(STEPS, WEIGHTS, k=LENGTH), Pods.start, Pods.start]:
            step(pods)
            # A coordinator refuses members that share no strategy any more when they join again.
            assert pods.chosen or not pods.members, (number, pods.offers)
        # A pod that lacks ACME stops the change until another strategy is wanted.
        pods.wanted = draw.choice((OLD, NEW)) if pods.wanted == ACME else pods.wanted
        for _ in range(3):
            pods.reconcile()
            for pod in [*pods.offers]:
                pods.send(pod)
            while set(pods.offers) - pods.members:
                pods.join()
        assert (pods.config, pods.chosen) == ((pods.wanted,), pods.wanted), number
