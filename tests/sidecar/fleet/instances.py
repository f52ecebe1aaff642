"""Sidecars whose instances Fleet assigns, and one of them that ends without leaving its group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.support.app import App
from tests.support.sidecar import Deliverer


def is_member(fleet: Headquarters, name: str) -> bool:
    member = fleet.last.member
    return member.state == pb.MEMBER_STATE_STABLE and member.group_instance_id == name


@asynccontextmanager
async def started(sidecar: Deliverer) -> AsyncIterator[None]:
    await asyncio.to_thread(sidecar.start)
    try:
        yield
    finally:
        await asyncio.to_thread(sidecar.close)


async def named(fleet: Headquarters, name: str, partitions: int = 2) -> pb.MemberReport:
    """Name the sidecar; return its report once it is a member with as many partitions."""
    await fleet.wait_until(lambda: bool(fleet.reports))
    assert (await fleet.order(1, instance=pb.Instance(name=name))).error == ""
    await fleet.wait_until(lambda: is_member(fleet, name) and len(fleet.last.partitions) == partitions)
    return fleet.last.member


def static_sidecar(folder: Path, servers: str, topic: str, fleet: Headquarters, name: str) -> Deliverer:
    """A sidecar that waits for Fleet to name it, with a session that outlives the test."""
    flags = (
        f"--topics={topic}",
        "--static",
        f"--fleet={fleet.address}",
        f"--state-folder={folder}/{name}-state",
        "--session-timeout-ms=300000",
    )
    return Deliverer(folder, servers, topic, flags, name=name)


async def gives_an_instance_up(folder: Path, servers: str, topic: str) -> None:
    """
    A static member drains and its application says goodbye: another one succeeds it at its place, while the sidecar is still there.

    It joins again, as the instance that Fleet has named meanwhile, when its drain expires.
    """
    async with serving() as fleet, serving() as other_fleet:
        sidecar = static_sidecar(folder, servers, topic, fleet, "ends")
        other = static_sidecar(folder, servers, topic, other_fleet, "succeeds")
        app = App(folder, sidecar.address)
        async with started(sidecar), started(other):
            before = await named(fleet, f"{topic}-0")
            await asyncio.to_thread(app.start)
            try:
                await asyncio.to_thread(app.wait, "assigned")
                assert (await asyncio.to_thread(sidecar.drain, "for_ms=600000"))[0] == HTTPStatus.OK
                assert fleet.last.member.group_instance_id == f"{topic}-0", "its application has not ended"
                assert await asyncio.to_thread(app.terminate) == 0
            finally:
                await asyncio.to_thread(app.stop)
            await fleet.wait_until(lambda: fleet.last.member.given_up_instance_id == f"{topic}-0")
            assert fleet.last.member.group_instance_id == ""
            assert not (folder / "ends-state" / "member.json").exists(), "its next process would resume it"
            after = await named(other_fleet, f"{topic}-0")
            assert after.generation_id == before.generation_id, "nothing has moved"
            # An operator that does not know that it was given up orders an instance again.
            assert (await fleet.order(2, instance=pb.Instance(name=f"{topic}-1"))).error == ""
            await fleet.wait_until(lambda: fleet.last.member.group_instance_id == f"{topic}-1")
            assert fleet.last.member.given_up_instance_id == ""
            assert not is_member(fleet, f"{topic}-1"), "it drains"
            assert (await asyncio.to_thread(sidecar.drain, "for_ms=1"))[0] == HTTPStatus.OK
            await fleet.wait_until(lambda: is_member(fleet, f"{topic}-1"))
            await other_fleet.wait_until(lambda: is_member(other_fleet, f"{topic}-0"))


async def removes_an_ended_instance(folder: Path, servers: str, topic: str) -> None:
    """Of two static members of a topic with two partitions, one ends; the other one removes it, and has all partitions."""
    async with serving() as fleet, serving() as other_fleet:
        sidecar = static_sidecar(folder, servers, topic, fleet, "stays")
        other = static_sidecar(folder, servers, topic, other_fleet, "ends")
        async with started(sidecar):
            await named(fleet, f"{topic}-0")
            async with started(other):
                await named(other_fleet, f"{topic}-1", partitions=1)
                assert await asyncio.to_thread(other.terminate) == 0
            assert len(fleet.last.partitions) == 1, "the other one has kept its place"
            removal = pb.RemoveInstances(names=[f"{topic}-1"])
            assert (await fleet.order(2, remove_instances=removal)).error == ""
            await fleet.wait_until(lambda: len(fleet.last.partitions) == 2)
            assert (await fleet.order(3, remove_instances=removal)).error == "", "it is not there any more"
            assert is_member(fleet, f"{topic}-0")
