"""A sidecar whose pod ends serves its application until Fleet orders it to hand its instance over to the successor that waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.settings_pb2 import GroupSettings
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.sidecar.fleet.instances import named, started, static_sidecar
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator
from tests.support.records import batch, produce
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.process
# A third of this is the time limit of the wait, which no test waits for.
FOR_MS = 600_000


@asynccontextmanager
async def waiting(
    folder: Path, coordinator: Coordinator, topic: str, fleet: Headquarters
) -> AsyncIterator[tuple[Deliverer, App, "asyncio.Task[tuple[int, str]]"]]:
    """A member with its application, of which a drain was requested as by the end of its pod, and the request."""
    sidecar = static_sidecar(folder, f"rota://{coordinator.address}", topic, fleet, "ends")
    async with started(sidecar):
        with attached(app := App(folder, sidecar.address)):
            await named(fleet, f"{topic}-0")
            await asyncio.to_thread(app.wait, "assigned")
            order = pb.Configure(settings=GroupSettings(), orders_hand_over=True)
            assert (await fleet.order(2, configure=order)).error == ""
            draining = asyncio.create_task(asyncio.to_thread(sidecar.drain, f"for_ms={FOR_MS}"))
            await fleet.wait_until(lambda: fleet.last.member.awaits_successor)
            yield sidecar, app, draining


def test_it_serves_until_its_successor_waits_and_gives_its_instance_up_while_its_application_runs(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet, serving() as other_fleet:
            servers = f"rota://{coordinator.address}"
            other = static_sidecar(tmp_path, servers, topic, other_fleet, "succeeds")
            async with waiting(tmp_path, coordinator, topic, fleet) as (_, app, draining):
                member = fleet.last.member
                assert (member.draining, member.ready) == (False, True)
                await asyncio.to_thread(produce, coordinator.address, topic, 0, batch(["served"]))
                await asyncio.to_thread(app.wait, "done")
                assert not draining.done()
                async with started(other):
                    await other_fleet.wait_until(lambda: bool(other_fleet.reports))
                    assert not other_fleet.last.member.ready, "it has no application"
                    assert (await fleet.order(3, hand_over=pb.HandOver())).error == ""
                    assert (await draining)[0] == HTTPStatus.OK
                    await asyncio.to_thread(app.wait, "revoked")
                    await fleet.wait_until(lambda: fleet.last.member.given_up_instance_id == f"{topic}-0")
                    after = await named(other_fleet, f"{topic}-0")
                    assert after.generation_id == member.generation_id, "nothing has moved"
                assert await asyncio.to_thread(app.terminate) == 0

    asyncio.run(run())


def test_it_drains_when_no_successor_comes_and_keeps_its_instance(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet, waiting(tmp_path, coordinator, topic, fleet) as (_, _, draining):
            assert (await fleet.order(3, hand_over=pb.HandOver(no_successor=True))).error == ""
            assert (await draining)[0] == HTTPStatus.OK
            await fleet.wait_until(lambda: fleet.last.member.draining)
            assert fleet.last.member.group_instance_id == f"{topic}-0", "its application has not ended"
            assert not fleet.last.member.awaits_successor

    asyncio.run(run())


def test_it_drains_when_fleet_is_gone(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    async def run() -> None:
        async with serving() as fleet, waiting(tmp_path, coordinator, topic, fleet) as (sidecar, _, draining):
            fleet.hang_up()
            assert (await draining)[0] == HTTPStatus.OK
            # The next stream is of an operator that may not know the order: nothing is waited for.
            await fleet.wait_until(lambda: fleet.streams > 1 and fleet.last.member.draining)
            assert (await asyncio.to_thread(sidecar.drain, f"for_ms={FOR_MS}"))[0] == HTTPStatus.OK

    asyncio.run(run())


def test_it_reports_that_it_has_given_its_instance_up_before_it_ends(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet, waiting(tmp_path, coordinator, topic, fleet) as (sidecar, _, draining):
            # Between two reports.
            assert (await fleet.order(3, hand_over=pb.HandOver())).error == ""
            assert await asyncio.to_thread(sidecar.terminate) == 0
            assert (await draining)[0] == HTTPStatus.OK
            await fleet.wait_until(lambda: fleet.last.member.given_up_instance_id == f"{topic}-0")
            assert not (tmp_path / "ends-state" / "member.json").exists(), "its next process would resume it"

    asyncio.run(run())


def test_a_signal_ends_the_wait(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    async def run() -> None:
        async with serving() as fleet, waiting(tmp_path, coordinator, topic, fleet) as (sidecar, _, draining):
            assert await asyncio.to_thread(sidecar.terminate) == 0
            assert (await draining)[0] == HTTPStatus.OK

    asyncio.run(run())
