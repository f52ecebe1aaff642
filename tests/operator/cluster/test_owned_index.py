"""The index of owned objects: when it answers, what it has then, and that no order of events, reads and writes leaves older objects in it."""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from rota_operator.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    STATEFUL_SET,
    WORKLOADS,
    ResourceKind,
)
from rota_operator.cluster.owned_index import OWNED_KINDS, Owned, OwnedIndex
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.observed import Object

KEY, UID = Key("shop", "orders"), "u-1"
OTHER_KEY, OTHER_UID = Key("shop", "bills"), "u-2"
TRUST_S = 60.0
NOTHING = Owned((), None, None)


def thing(
    kind: ResourceKind, name: str, version: int, claim: str | None = UID, namespace: str = "shop"
) -> Object:
    labels = {} if claim is None else {CLAIM_LABEL: claim}
    metadata = {"namespace": namespace, "name": name, "resourceVersion": str(version), "labels": labels}
    return {
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata,
        "spec": {"version": version}, "data": {"version": str(version)}, "status": {"large": True},
    }  # fmt: skip


def versions_of(found: Owned | None) -> Mapping[str, int]:
    """The version of each object that the index has, by kind and name."""
    assert found is not None
    bodies = [*found.adopted, *(each for each in found[1:] if each is not None)]
    return {
        f"{each['kind']}/{each['metadata']['name']}": int(each["metadata"]["resourceVersion"])
        for each in bodies
    }


def trusted(index: OwnedIndex, found: Owned = NOTHING, now_s: float = 0.0) -> OwnedIndex:
    """Read the objects of the ConsumerGroup, and let its reconcile succeed."""
    index.begin(KEY, UID, now_s)
    index.fill(KEY, found)
    index.settle(KEY)
    return index


def versions(index: OwnedIndex, now_s: float = 0.0) -> Mapping[str, int]:
    """Return what a reconcile finds that succeeds."""
    found = index.open(KEY, UID, now_s)
    index.settle(KEY)
    return versions_of(found)


READ = Owned(
    (thing(DEPLOYMENT, "app", 5),),
    thing(CONFIG_MAP, "rota-orders", 6),
    thing(DISRUPTION_BUDGET, "rota-orders", 7),
)
ALL_READ = {"Deployment/app": 5, "ConfigMap/rota-orders": 6, "PodDisruptionBudget/rota-orders": 7}


def test_only_what_decisions_depend_on_is_kept() -> None:
    found = trusted(OwnedIndex(TRUST_S), READ).open(KEY, UID, 0.0)
    assert versions_of(found) == ALL_READ
    assert found is not None
    assert [{*each} - {"apiVersion", "kind", "metadata"} for each in found.adopted] == [set()]
    assert found.config_map is not None
    assert found.config_map["data"] == {"version": "6"}
    assert found.disruption_budget is not None
    assert found.disruption_budget["spec"] == {"version": 7}
    assert not {"status", "labels"} & {*found.config_map, *found.config_map["metadata"]}


def test_objects_have_to_be_read_before_a_reconcile_has_succeeded_on_them() -> None:
    index = OwnedIndex(TRUST_S)
    assert index.open(KEY, UID, 0.0) is None
    index.begin(KEY, UID, 0.0)
    assert index.open(KEY, UID, 0.0) is None
    index.fill(KEY, READ)
    assert index.open(KEY, UID, 0.0) is None
    index.settle(KEY)
    assert index.open(KEY, UID, 0.0) is not None


def test_a_reconcile_that_does_not_succeed_leaves_no_trust_behind() -> None:
    index = trusted(OwnedIndex(TRUST_S))
    assert index.open(KEY, UID, 0.0) is not None
    assert index.open(KEY, UID, 0.0) is None
    # A direct read of the next reconcile has begun, and it has failed too.
    index.begin(KEY, UID, 0.0)
    assert index.open(KEY, UID, 0.0) is None


def test_trust_ends_with_its_time_after_the_beginning_of_the_read_however_often_it_is_used() -> None:
    index = trusted(OwnedIndex(TRUST_S), now_s=100.0)
    for now_s in (100.0, 130.0, 100.0 + TRUST_S):
        assert versions(index, now_s) == {}
    assert index.open(KEY, UID, 100.0 + TRUST_S + 0.1) is None


def test_a_listing_ends_the_trust_of_all_that_was_read_before() -> None:
    index = trusted(OwnedIndex(TRUST_S))
    index.begin(OTHER_KEY, OTHER_UID, 0.0)
    index.listed()
    index.fill(OTHER_KEY, NOTHING)
    index.settle(OTHER_KEY)
    assert index.open(KEY, UID, 0.0) is None
    # Its read had begun before.
    assert index.open(OTHER_KEY, OTHER_UID, 0.0) is None
    assert versions(trusted(index)) == {}


def test_a_group_that_was_created_again_or_is_gone_has_to_be_read() -> None:
    index = trusted(OwnedIndex(TRUST_S), READ)
    assert index.open(KEY, "u-9", 0.0) is None
    index.begin(KEY, "u-9", 0.0)
    index.fill(KEY, READ)
    index.settle(KEY)
    # All of it carries the label of the former one.
    assert versions_of(index.open(KEY, "u-9", 0.0)) == {}
    assert index.open(KEY, UID, 0.0) is None
    index.forget(KEY)
    index.settle(KEY)
    index.fill(KEY, READ)
    assert index.open(KEY, "u-9", 0.0) is None


Step = Callable[[OwnedIndex], None]


def take(*args: Any, **more: Any) -> Step:  # noqa: ANN401  those of `thing`
    return lambda index: index.take(args[0], thing(*args, **more))


def remove(*args: Any) -> Step:  # noqa: ANN401  those of `thing`
    return lambda index: index.remove(args[0], thing(*args))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([take(DEPLOYMENT, "app", 9)], {"Deployment/app": 9}),
        ([take(DEPLOYMENT, "app", 10), take(DEPLOYMENT, "app", 9)], {"Deployment/app": 10}),
        ([take(DEPLOYMENT, "app", 4)], {}),
        ([take(STATEFUL_SET, "app", 9)], {"StatefulSet/app": 9}),
        ([remove(DEPLOYMENT, "app", 9)], {"Deployment/app": None}),
        # Deleted and created again; the watches of two objects are in no order.
        ([remove(DEPLOYMENT, "app", 9), take(DEPLOYMENT, "app", 10)], {"Deployment/app": 10}),
        ([take(DEPLOYMENT, "app", 10), remove(DEPLOYMENT, "app", 9)], {"Deployment/app": 10}),
        ([remove(DEPLOYMENT, "app", 9), take(DEPLOYMENT, "app", 8)], {"Deployment/app": None}),
        # It carries the label of another claim, or none any more.
        ([take(DEPLOYMENT, "app", 9, OTHER_UID)], {"Deployment/app": None}),
        ([take(DEPLOYMENT, "app", 9, None)], {"Deployment/app": None}),
        ([take(CONFIG_MAP, "rota-orders", 9, OTHER_UID)], {"ConfigMap/rota-orders": None}),
        ([take(DEPLOYMENT, "app", 9, OTHER_UID), take(DEPLOYMENT, "app", 10)], {"Deployment/app": 10}),
        ([take(DEPLOYMENT, "app", 4, OTHER_UID)], {}),
        ([remove(DISRUPTION_BUDGET, "rota-orders", 9)], {"PodDisruptionBudget/rota-orders": None}),
        # Objects with the label that are none of those.
        ([take(CONFIG_MAP, "rota-orders-instances", 9)], {}),
        ([take(CONFIG_MAP, "rota-orders", 9, namespace="other")], {}),
        ([remove(CONFIG_MAP, "rota-orders-instances", 9)], {}),
    ],
)  # fmt: skip
def test_the_newest_version_of_each_object_stays(
    steps: list[Step], expected: Mapping[str, int | None]
) -> None:
    index = trusted(OwnedIndex(TRUST_S), READ)
    index.begin(OTHER_KEY, OTHER_UID, 0.0)
    for step in steps:
        step(index)
    wanted = {**ALL_READ, **expected}
    assert versions(index) == {name: each for name, each in wanted.items() if each is not None}


@pytest.mark.parametrize(
    ("meanwhile", "read", "expected"),
    [
        # The answer was given before the event.
        (take(CONFIG_MAP, "rota-orders", 9), thing(CONFIG_MAP, "rota-orders", 8), 9),
        (remove(CONFIG_MAP, "rota-orders", 9), thing(CONFIG_MAP, "rota-orders", 8), None),
        (take(CONFIG_MAP, "rota-orders", 9), None, 9),
        # The watch is late.
        (take(CONFIG_MAP, "rota-orders", 9), thing(CONFIG_MAP, "rota-orders", 10), 10),
        (remove(CONFIG_MAP, "rota-orders", 9), thing(CONFIG_MAP, "rota-orders", 10), 10),
        (lambda index: None, thing(CONFIG_MAP, "rota-orders", 10), 10),
        (lambda index: None, None, None),
        # Of another owner: the watch does not show its changes.
        (lambda index: None, thing(CONFIG_MAP, "rota-orders", 10, None), None),
    ],
)
def test_a_direct_read_is_compared_with_what_the_watch_has_shown_since_it_began(
    meanwhile: Step, read: Object | None, expected: int | None
) -> None:
    index = trusted(OwnedIndex(TRUST_S), READ)
    index.begin(KEY, UID, 0.0)
    meanwhile(index)
    index.fill(KEY, Owned((), read, None))
    index.settle(KEY)
    assert versions(index) == ({} if expected is None else {"ConfigMap/rota-orders": expected})


# ---------------------------------------------------------------------- against a model


class Report(NamedTuple):
    """A version of an object as the index gets it: it is the ConsumerGroup's, or is not."""

    version: int
    is_own: bool
    # A watch or a write has said it since the last direct read began.
    is_event: bool


class Model:
    """
    A cluster whose watches lag, lose their history and list anew, and one ConsumerGroup that is reconciled in it.

    Objects of each kind: one that is the ConsumerGroup's by its name, and some that may be; one of another group, so that a listing
    is never empty.
    """

    NAMES = ("rota-orders", "app", "other")

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._index = OwnedIndex(TRUST_S)
        self._version = 100
        self._now_s = 0.0
        # By kind and name: claim and version of what exists.
        self._objects: dict[tuple[ResourceKind, str], tuple[str | None, int]] = {}
        # By kind: events that were not handled yet, with their types.
        self._watches: dict[ResourceKind, deque[tuple[str | None, Object]]] = defaultdict(deque)
        self._reports: dict[tuple[ResourceKind, str], list[Report]] = defaultdict(list)
        self.answers = 0
        for kind in OWNED_KINDS:
            self._objects[kind, "of-another"] = (OTHER_UID, self._next())

    def run(self, steps: int) -> None:
        """Reconcile again and again, with steps of the cluster and of its watches in between."""
        for _ in range(steps):
            self._disturb()
            self._reconcile()
        for kind in OWNED_KINDS:
            while self._watches[kind]:
                self._deliver(kind)
        self._reconcile(is_final=True)
        self._reconcile(is_final=True)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _disturb(self) -> None:
        """Let things happen, none often."""
        for _ in range(self._draw.choice((0, 0, 1, 3, 6))):
            kind = self._draw.choice(OWNED_KINDS)
            match self._draw.randrange(10):
                case 0 | 1 | 2:
                    self._change(kind, self._draw.choice(self.NAMES))
                case 3:
                    self._relist(kind)
                case 4:
                    self._now_s += self._draw.choice((1.0, TRUST_S / 2))
                case _:
                    self._deliver(kind)

    def _change(self, kind: ResourceKind, name: str) -> None:
        """Another client creates, changes, labels or deletes an object."""
        claim = self._draw.choice((UID, UID, UID, OTHER_UID, None))
        is_deleted = self._draw.random() < 0.4
        self._set(kind, name, None if is_deleted else (claim, self._next()))

    def _set(self, kind: ResourceKind, name: str, new: tuple[str | None, int] | None) -> None:
        """Change an object, and let the watch know it as the API server does: by the label that it selects."""
        was = self._objects.pop((kind, name), None)
        if new is not None:
            self._objects[kind, name] = new
        is_shown, was_shown = new is not None and new[0] is not None, was is not None and was[0] is not None
        if was_shown and not is_shown:
            assert was is not None
            version = self._next() if new is None else new[1]
            self._watches[kind].append(("DELETED", thing(kind, name, version, was[0])))
        elif is_shown:
            assert new is not None
            self._watches[kind].append(
                ("MODIFIED" if was_shown else "ADDED", thing(kind, name, new[1], new[0]))
            )

    def _relist(self, kind: ResourceKind) -> None:
        """The watch's history is gone: what was not shown yet is lost, and what exists is listed."""
        self._watches[kind].clear()
        for (of, name), (claim, version) in self._objects.items():
            if of == kind and claim is not None:
                self._watches[kind].append((None, thing(kind, name, version, claim)))

    def _deliver(self, kind: ResourceKind) -> None:
        """Handle one event: those of one object in their order, those of different objects in any."""
        waiting = self._watches[kind]
        if not waiting:
            return
        name = self._draw.choice(list(waiting))[1]["metadata"]["name"]
        event = next(each for each in waiting if each[1]["metadata"]["name"] == name)
        waiting.remove(event)
        type_, body = event
        if type_ is None:
            self._index.listed()
        if type_ == "DELETED":
            self._index.remove(kind, body)
            self._note(kind, name, body, is_own=False)
        else:
            self._index.take(kind, body)
            self._note(kind, name, body, is_own=claim_of(body) == UID)

    def _note(
        self, kind: ResourceKind, name: str, body: Object, *, is_own: bool, is_event: bool = True
    ) -> None:
        if kind in WORKLOADS or name == "rota-orders":
            version = int(body["metadata"]["resourceVersion"])
            self._reports[kind, name].append(Report(version, is_own, is_event))

    def _reconcile(self, *, is_final: bool = False) -> None:
        found = self._index.open(KEY, UID, self._now_s)
        if found is not None:
            self.answers += 1
            self._check(found)
        else:
            self._index.begin(KEY, UID, self._now_s)
            for kind_and_name, reports in self._reports.items():
                self._reports[kind_and_name] = [each._replace(is_event=False) for each in reports]
            read = self._read(is_final=is_final)
            self._index.fill(KEY, read)
            for _ in range(0 if is_final else self._draw.choice((0, 0, 1, 2))):
                self._write(read)
        if not is_final:
            if self._draw.random() < 0.1:
                return
            self._disturb()
        self._index.settle(KEY)

    def _read(self, *, is_final: bool) -> Owned:
        """Read one kind after the other, while other things happen."""
        found: dict[ResourceKind, list[Object]] = {}
        for kind in self._draw.sample(OWNED_KINDS, len(OWNED_KINDS)):
            if not is_final:
                self._disturb()
            found[kind] = [
                thing(kind, name, version, claim)
                for (of, name), (claim, version) in self._objects.items()
                if of == kind and (claim == UID if kind in WORKLOADS else name == "rota-orders")
            ]
            for name in self.NAMES:
                body = next((each for each in found[kind] if each["metadata"]["name"] == name), None)
                if body is None:
                    absent = thing(kind, name, self._version)
                    self._note(kind, name, absent, is_own=False, is_event=False)
                else:
                    self._note(kind, name, body, is_own=claim_of(body) == UID, is_event=False)
        adopted = tuple(each for kind in WORKLOADS for each in found[kind])
        return Owned(adopted, *(next(iter(found[kind]), None) for kind in (CONFIG_MAP, DISRUPTION_BUDGET)))

    def _write(self, read: Owned) -> None:
        """The operator applies an object, releases a workload or deletes an object; the answer arrives a little later."""
        kind = self._draw.choice(OWNED_KINDS)
        name = self._draw.choice(("app", "other")) if kind in WORKLOADS else "rota-orders"
        is_adopted = name in (each["metadata"]["name"] for each in read.adopted if each["kind"] == kind.kind)
        if kind == DISRUPTION_BUDGET and self._draw.random() < 0.5:
            self._set(kind, name, None)
            self._disturb()
            self._index.forget(KEY)
            return
        claim = None if is_adopted and self._draw.random() < 0.5 else UID
        version = self._next()
        self._set(kind, name, (claim, version))
        self._disturb()
        answer = thing(kind, name, version, claim)
        self._index.take(kind, answer)
        self._note(kind, name, answer, is_own=claim == UID)

    def _check(self, found: Owned) -> None:
        """Compare what the index has with what it has got, and with what exists once it has got all."""
        has = versions_of(found)
        for (kind, name), reports in self._reports.items():
            version = has.get(f"{kind.kind}/{name}")
            own, gone, not_found = (
                max(
                    (
                        each.version
                        for each in reports
                        if (each.is_own, each.is_event or each.is_own) == which
                    ),
                    default=0,
                )
                for which in ((True, True), (False, True), (False, False))
            )
            if version is None:
                assert own <= max(gone, not_found), reports
            else:
                # An event from before the read that did not find it may have brought it back.
                assert version > gone, reports
                assert version >= own or own <= not_found, reports
        if not any(self._watches.values()):
            assert has == {
                f"{kind.kind}/{name}": version
                for (kind, name), (claim, version) in self._objects.items()
                if claim == UID and (kind in WORKLOADS or name == "rota-orders")
            }


def claim_of(body: Object) -> str | None:
    claim: str | None = body["metadata"]["labels"].get(CLAIM_LABEL)
    return claim


@pytest.mark.parametrize("story", range(40))
def test_in_any_order_of_events_listings_reads_and_writes_it_has_nothing_older_than_was_reported(
    story: int, seed: int
) -> None:
    model = Model(random.Random(f"{seed} {story}"))
    model.run(steps=100)
    assert model.answers > 0
