"""Watches of groups at several coordinators on one PostgreSQL: each lasts as long as its coordinator serves the group."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.members import new_group
from tests.coordinator.fleet import GIVES_UP_S, Fleet, until
from tests.support.postgres.fixtures import StartPostgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.process
# So many that each coordinator serves some of them.
GROUPS = 20


@pytest.fixture
def fleet(tmp_path: Path, database: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, database, "ab") as fleet:
        yield fleet


@asynccontextmanager
async def watched(address: str, groups: list[str]) -> "AsyncIterator[dict[str, asyncio.Task[list[int]]]]":
    """Watch groups at one coordinator; a task ends with the errors of all responses, once its stream ends."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub, first = AdminStub(channel), asyncio.Semaphore(0)

        async def watch(group: str) -> list[int]:
            codes: list[int] = []
            async for response in stub.WatchGroup(admin.WatchGroupRequest(group_id=group)):
                codes.append(response.group.error_code)
                if len(codes) == 1:
                    first.release()
            return codes

        tasks = {group: asyncio.create_task(watch(group)) for group in groups}
        for _ in groups:
            await first.acquire()
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def served_by(asked: str, groups: list[str]) -> dict[str, str]:
    """Return the addresses of the groups' coordinators, as one of them says."""
    async with grpc.aio.insecure_channel(asked) as channel:
        request = pb.FindCoordinatorRequest(group_ids=groups)
        found = await CoordinatorStub(channel).FindCoordinator(request, timeout=GIVES_UP_S)
    return {each.group_id: each.address for each in found.coordinators}


def test_a_watch_ends_where_another_coordinator_serves_the_group(fleet: Fleet) -> None:
    async def body() -> None:
        await until(fleet.is_shared_equally)
        groups, here = [new_group() for _ in range(GROUPS)], fleet.addresses["a"]
        owners = await served_by(here, groups)
        assert set(owners.values()) == set(fleet.addresses.values())
        async with watched(here, groups) as tasks:
            for group, owner in owners.items():
                if owner != here:
                    assert await tasks[group] == [pb.NOT_COORDINATOR]
            assert not any(tasks[group].done() for group, owner in owners.items() if owner == here)

    asyncio.run(asyncio.wait_for(body(), GIVES_UP_S))


def test_a_watch_ends_when_its_group_is_handed_over(fleet: Fleet) -> None:
    async def body() -> None:
        await asyncio.to_thread(fleet.members["b"].stop)
        groups, here = [new_group() for _ in range(GROUPS)], fleet.addresses["a"]

        async def serves_all() -> bool:
            return (await fleet.shares("a"))["a"] == 50

        await until(serves_all)
        async with watched(here, groups) as tasks:
            await asyncio.to_thread(fleet.members["b"].start)
            await until(fleet.is_shared_equally)
            for group, owner in (await served_by(here, groups)).items():
                if owner != here:
                    assert await tasks[group] == [pb.NONE, pb.NOT_COORDINATOR]
                else:
                    assert not tasks[group].done()

    asyncio.run(asyncio.wait_for(body(), GIVES_UP_S))


def test_watches_of_a_coordinator_that_loses_its_lease_end(fleet: Fleet) -> None:
    async def body() -> None:
        await until(fleet.is_shared_equally)
        here, there = fleet.addresses["a"], fleet.addresses["b"]
        groups = [new_group() for _ in range(GROUPS)]
        own = [group for group, owner in (await served_by(there, groups)).items() if owner == here]
        async with watched(here, own) as tasks:
            fleet.members["a"].signal(signal.SIGSTOP)

            async def is_taken_over() -> bool:
                return set((await served_by(there, own)).values()) == {there}

            await until(is_taken_over)
            fleet.members["a"].signal(signal.SIGCONT)
            for group in own:
                assert await tasks[group] == [pb.NONE, pb.NOT_COORDINATOR]

    asyncio.run(asyncio.wait_for(body(), GIVES_UP_S))


def test_watches_end_when_the_lease_ends_while_the_store_is_away(
    tmp_path: Path, start_postgres: StartPostgres
) -> None:
    store = start_postgres(durable=True)

    async def body(fleet: Fleet) -> None:
        await until(fleet.is_shared_equally)
        here = fleet.addresses["a"]
        groups = [new_group() for _ in range(GROUPS)]
        own = [group for group, owner in (await served_by(here, groups)).items() if owner == here]
        async with watched(here, own) as tasks:
            await asyncio.to_thread(store.kill)
            for group in own:
                assert await tasks[group] == [pb.NONE, pb.NOT_COORDINATOR]
            store.start()

    with Fleet(tmp_path, store.new_database("watches"), "ab") as fleet:
        asyncio.run(asyncio.wait_for(body(fleet), GIVES_UP_S))
