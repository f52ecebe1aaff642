"""Handlers turn events into keys: of the ConsumerGroup itself, of those that it stood in the way of, of the owner of an object."""

import asyncio
from typing import Any

from rota_operator.cluster.handlers import (
    BACKOFFS_S,
    DELETED,
    JITTER,
    Handlers,
    JitteredBackoffs,
    settings_of,
)
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.kinds import CONSUMER_GROUP, DEPLOYMENT, ResourceKind
from rota_operator.cluster.owned_index import Owned, OwnedIndex
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.actions import CLAIM_LABEL
from tests.operator.cluster.test_index import group

ONE, TWO = Key("shop", "one"), Key("shop", "two")


class Queue:
    """Keys that handlers added; with a bound, which is far away."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        # Whether the ConsumerGroup itself has changed, of the last key.
        self.is_own: bool | None = None
        self.has_room = True
        self.warnings: list[str] = []
        self.noted: list[tuple[ResourceKind, str]] = []
        self.owned = OwnedIndex(1.0)
        self.handlers = Handlers(ResourceIndex(), self.add, self._note, self.warnings.append, self.owned)

    def _note(self, kind: ResourceKind, version: str) -> None:
        self.noted.append((kind, version))

    def add(self, key: Key, *, is_own: bool) -> bool:
        self.keys.append(key)
        self.is_own = is_own
        return self.has_room

    def on_group(self, body: Any, type: str = "MODIFIED") -> list[Key]:  # noqa: ANN401  any object
        """The keys that an event of a ConsumerGroup adds."""
        self.keys.clear()
        asyncio.run(self.handlers.on_group(type, body))
        return list(self.keys)

    def on_owned(self, labels: dict[str, str] | None, type: str | None = "MODIFIED") -> list[Key]:
        """The keys that an event of an object with these labels adds."""
        self.keys.clear()
        metadata = {"namespace": "shop", "name": "app", "labels": labels, "resourceVersion": "7"}
        asyncio.run(self.handlers.on_owned(DEPLOYMENT, type, {"metadata": metadata}))
        return list(self.keys)


def test_a_group_is_added_when_it_changes_and_not_when_its_status_does() -> None:
    queue, body = Queue(), group("one")
    assert queue.on_group(body, "ADDED") == [ONE]
    assert queue.is_own
    assert queue.on_group({**body, "status": {"members": 1}}) == []
    assert queue.on_group(body, DELETED) == [ONE]


def test_a_group_that_gives_up_a_claim_adds_those_that_wait_for_it() -> None:
    queue = Queue()
    one, two = group("one", target="app"), group("two", target="app")
    queue.on_group(one)
    assert queue.on_group(two) == [TWO]
    other = group("one", target="other")
    other["metadata"]["generation"] = 2
    assert queue.on_group(other) == [ONE, TWO]
    queue.on_group(one)
    assert queue.on_group(one, DELETED) == [ONE, TWO]


def test_an_object_adds_the_group_whose_claim_it_carries() -> None:
    queue = Queue()
    queue.on_group(group("one", uid="u-1"))
    assert queue.on_owned({CLAIM_LABEL: "u-1"}) == [ONE]
    assert not queue.is_own
    assert queue.on_owned({CLAIM_LABEL: "u-9"}) == []
    assert queue.on_owned(None) == []


def test_an_object_goes_into_the_index_and_a_listing_ends_its_trust() -> None:
    queue, key = Queue(), Key("shop", "orders")

    def read() -> None:
        queue.owned.begin(key, "u-1", 0.0)
        queue.owned.fill(key, Owned((), None, None))
        queue.owned.settle(key)

    def adopted() -> int | None:
        found = queue.owned.open(key, "u-1", 0.0)
        queue.owned.settle(key)
        return None if found is None else len(found.adopted)

    read()
    assert adopted() == 0
    queue.on_owned({CLAIM_LABEL: "u-1"}, "ADDED")
    assert adopted() == 1
    queue.on_owned({CLAIM_LABEL: "u-1"}, DELETED)
    assert adopted() == 0
    queue.on_owned({CLAIM_LABEL: "u-9"}, None)
    assert adopted() is None
    read()
    assert adopted() == 0


def test_a_body_that_is_older_than_the_last_one_changes_nothing() -> None:
    queue = Queue()
    old, new = group("one", target="app"), group("one", target="other")
    new["metadata"] |= {"generation": 2, "resourceVersion": "10"}
    queue.on_group(new)
    assert queue.on_group({**old, "metadata": {**old["metadata"], "resourceVersion": "9"}}) == []
    assert queue.on_group(group("two", target="other")) == [TWO]
    assert queue.on_group(new, DELETED) == [ONE, TWO]


def test_the_version_of_each_object_that_a_watch_shows_is_noted() -> None:
    queue = Queue()
    queue.on_group(group("one"))
    queue.on_owned(None)
    assert queue.noted == [(CONSUMER_GROUP, "1"), (DEPLOYMENT, "7")]


def test_a_watch_that_is_silent_is_opened_again_before_the_90_s_in_which_a_change_is_to_be_seen() -> None:
    settings = settings_of(())
    assert settings.watching.inactivity_timeout < 80
    assert settings.networking.request_timeout == 20


def test_backoffs_of_requests_are_drawn_anew_and_five_minutes_long() -> None:
    backoffs = JitteredBackoffs()
    one, two = list(backoffs), list(backoffs)
    assert one != two
    assert len(backoffs) == len(one) == len(BACKOFFS_S)
    pairs = zip(one, BACKOFFS_S, strict=True)
    assert all(whole * (1 - JITTER) <= each <= whole for each, whole in pairs)
    assert 280 < sum(BACKOFFS_S) < 320


def test_a_full_queue_is_reported() -> None:
    queue = Queue()
    queue.has_room = False
    queue.on_group(group("one"))
    assert ["shop/one" in each for each in queue.warnings] == [True]


def test_kopf_writes_nothing_and_a_namespaced_operator_looks_at_nothing_else() -> None:
    assert not settings_of(()).posting.enabled
    assert settings_of(()).peering.standalone
    assert [settings_of(names).scanning.disabled for names in ((), ("shop",))] == [False, True]
