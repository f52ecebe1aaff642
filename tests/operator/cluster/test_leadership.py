"""The Lease is acquired, renewed and released at the API server, and its loss ends the process."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota_operator import leadership as core
from rota_operator.cluster.errors import Conflict, Forbidden, NotFound, Unavailable
from rota_operator.cluster.kinds import LEASE, ResourceKind
from rota_operator.cluster.leadership import (
    Clocks,
    LeaderElection,
    LeadershipLost,
    LeaseName,
    body_of,
    lease_of,
)
from rota_operator.reconcile.observed import Object

WITHIN_S = 60
NAME = LeaseName("rota", "rota-operator")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class LeaseStore:
    """Stands for the API server: one Lease, optimistic concurrency, and failures."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.version = 0
        self.requests = 0
        self.error: Exception | None = None
        self.hangs = False
        self.changed = asyncio.Condition()

    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        await self._begin(kind, namespace, name)
        return deepcopy(self.body)

    async def create(self, kind: ResourceKind, namespace: str, body: Object) -> Object:
        await self._begin(kind, namespace, body["metadata"]["name"])
        if self.body is not None:
            raise Conflict("already exists")
        return await self._store(body)

    async def replace(self, kind: ResourceKind, namespace: str, name: str, body: Object) -> Object:
        await self._begin(kind, namespace, name)
        if self.body is None:
            raise NotFound("not found")
        if body["metadata"]["resourceVersion"] != self.body["metadata"]["resourceVersion"]:
            raise Conflict("changed")
        return await self._store(body)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(holds)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.body is not None
        found: dict[str, Any] = self.body["spec"]
        return found

    async def _begin(self, kind: ResourceKind, namespace: str, name: str) -> None:
        assert (kind, LeaseName(namespace, name)) == (LEASE, NAME)
        self.requests += 1
        async with self.changed:
            self.changed.notify_all()
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def _store(self, body: Object) -> Object:
        self.version += 1
        stored = deepcopy(dict(body))
        stored["metadata"] = {**body["metadata"], "resourceVersion": str(self.version)}
        self.body = stored
        async with self.changed:
            self.changed.notify_all()
        return deepcopy(stored)


class Process:
    """One process of the operator."""

    def __init__(self, store: LeaseStore, identity: str) -> None:
        self.warnings: list[str] = []
        self.stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        clocks = Clocks(loop.time, lambda: f"{EPOCH + timedelta(seconds=loop.time()):%Y-%m-%dT%H:%M:%S.%fZ}")
        self.election = LeaderElection(store, NAME, identity, clocks, self.warnings.append)
        self.running = asyncio.ensure_future(self.election.run(self.stop))

    async def lead(self) -> None:
        await self.election.wait_until_leading()

    async def end(self) -> None:
        self.stop.set()
        await self.running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of 0.75 s instead of 15 s; the proportions are the same."""
    for name in ("RENEW_S", "DEADLINE_S", "POLL_S", "RETRY_S", "REQUEST_S"):
        monkeypatch.setattr(core, name, getattr(core, name) / 20)


Story = Callable[[LeaseStore], Awaitable[None]]


def run(story: Story) -> None:
    async def main() -> None:
        async with asyncio.timeout(WITHIN_S):
            await story(LeaseStore())

    asyncio.run(main())


def test_the_first_process_creates_the_lease_and_renews_it() -> None:
    async def story(store: LeaseStore) -> None:
        process = Process(store, "rota-0")
        await process.lead()
        assert process.election.is_leading
        assert store.spec["holderIdentity"] == "rota-0"
        assert store.spec["leaseDurationSeconds"] == 15
        first = store.spec["renewTime"]
        await store.wait_until(lambda: store.version >= 3)
        assert store.spec["acquireTime"] == first
        assert store.spec["renewTime"] > first
        await process.end()

    run(story)


def test_a_clean_stop_releases_the_lease_and_the_other_process_takes_over() -> None:
    async def story(store: LeaseStore) -> None:
        first = Process(store, "rota-0")
        await first.lead()
        second = Process(store, "rota-1")
        await store.wait_until(lambda: store.requests >= 4)
        assert not second.election.is_leading
        await first.end()
        assert not first.election.is_leading
        await second.lead()
        assert store.spec["holderIdentity"] == "rota-1"
        assert store.spec["leaseTransitions"] == 1
        await second.end()
        assert "holderIdentity" not in store.spec

    run(story)


@pytest.mark.parametrize("failure", ["away", "hangs"])
def test_a_lease_that_cannot_be_renewed_is_lost(failure: str) -> None:
    async def story(store: LeaseStore) -> None:
        process = Process(store, "rota-0")
        await process.lead()
        store.error = Unavailable("the API server cannot be reached") if failure == "away" else None
        store.hangs = failure == "hangs"
        with pytest.raises(LeadershipLost, match="was not renewed in time"):
            await process.running
        assert not process.election.is_leading
        assert len(process.warnings) == 1, "one line for one problem, however often it is tried"

    run(story)


def test_a_lease_that_another_process_holds_is_lost() -> None:
    async def story(store: LeaseStore) -> None:
        process = Process(store, "rota-0")
        await process.lead()
        assert store.body is not None
        store.body["spec"]["holderIdentity"] = "rota-1"
        store.body["metadata"]["resourceVersion"] = "taken"
        with pytest.raises(LeadershipLost, match="rota-1 holds the lease"):
            await process.running

    run(story)


def test_a_deleted_lease_is_created_again() -> None:
    async def story(store: LeaseStore) -> None:
        process = Process(store, "rota-0")
        await process.lead()
        store.body = None
        await store.wait_until(lambda: store.body is not None)
        assert process.election.is_leading
        await process.end()

    run(story)


def test_a_candidate_waits_while_it_lacks_the_right_and_says_which() -> None:
    async def story(store: LeaseStore) -> None:
        store.error = Forbidden("the operator may not get leases", "get", "leases")
        process = Process(store, "rota-0")
        await store.wait_until(lambda: store.requests >= 3)
        assert process.warnings == [
            "the lease rota/rota-operator can be neither read nor renewed: the operator may not get leases"
        ]
        store.error = None
        await process.lead()
        await process.end()

    run(story)


def test_a_process_that_stops_as_a_candidate_writes_nothing() -> None:
    async def story(store: LeaseStore) -> None:
        leader = Process(store, "rota-0")
        await leader.lead()
        candidate = Process(store, "rota-1")
        await store.wait_until(lambda: store.requests >= 3)
        await candidate.end()
        assert store.spec["holderIdentity"] == "rota-0"
        await leader.end()

    run(story)


def test_a_stop_while_the_api_server_hangs_ends_in_time() -> None:
    async def story(store: LeaseStore) -> None:
        process = Process(store, "rota-0")
        await process.lead()
        store.hangs = True
        await process.end()

    run(story)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, core.Lease("", 15, 0, "", "", "7")),
        ({}, core.Lease("", 15, 0, "", "", "7")),
        ({"holderIdentity": ""}, core.Lease("", 15, 0, "", "", "7")),
        (
            {
                "holderIdentity": "a",
                "leaseDurationSeconds": 30,
                "leaseTransitions": 2,
                "acquireTime": "t1",
                "renewTime": "t2",
            },
            core.Lease("a", 30, 2, "t1", "t2", "7"),
        ),
    ],
)
def test_leases_are_read(spec: dict[str, object] | None, expected: core.Lease) -> None:
    assert lease_of({"metadata": {"resourceVersion": "7"}, "spec": spec}) == expected


def test_a_lease_is_written_with_the_version_that_was_read() -> None:
    body = body_of(core.Lease("a", 15, 2, "t1", "", "7"), NAME, "now")
    labels = {"app.kubernetes.io/name": "rota", "app.kubernetes.io/component": "operator"}
    assert body["metadata"] == {
        "namespace": "rota",
        "name": "rota-operator",
        "labels": labels,
        "resourceVersion": "7",
    }
    assert body["spec"] == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 2,
        "acquireTime": "t1",
        "renewTime": "now",
    }
    created = body_of(core.Lease("a", 15, 0, "", "", ""), NAME, "now")
    assert "resourceVersion" not in created["metadata"]
    assert created["spec"]["acquireTime"] == "now"
