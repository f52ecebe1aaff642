"""A sidecar that Fleet has named is the same static member after a crash, also while Fleet is unavailable."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

import pytest

from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.sidecar.fleet.headquarters import serving
from tests.sidecar.fleet.instances import (
    gives_an_instance_up,
    is_member,
    named,
    removes_an_ended_instance,
    started,
)
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.process
AGAIN_S = 2
EXIT_S = 60


def sidecar_of(
    folder: Path,
    coordinator: Coordinator,
    topic: str,
    fleet: str,
    more: Sequence[str] = (),
    name: str = "sidecar",
) -> Deliverer:
    flags = (
        f"--topics={topic}",
        "--static",
        f"--fleet={fleet}",
        f"--state-folder={folder}/{name}-state",
        *more,
    )
    return Deliverer(folder, f"rota://{coordinator.address}", topic, flags, name=name)


def is_stable(sidecar: Deliverer, topic: str) -> bool:
    return sidecar.metrics().get(f'rota_member_state{{group="{topic}",state="Stable"}}') == 1


def test_after_a_crash_it_is_the_same_member_without_fleet(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            sidecar = sidecar_of(tmp_path, coordinator, topic, address := fleet.address)
            await asyncio.to_thread(sidecar.start)
            before = await named(fleet, f"{topic}-3")
            await asyncio.to_thread(sidecar.kill)
        async with started(sidecar):
            await asyncio.to_thread(sidecar.wait_until, lambda: is_stable(sidecar, topic), within_s=AGAIN_S)
            async with serving(address) as fleet:
                await fleet.wait_until(lambda: bool(fleet.reports))
                after = fleet.last.member
                assert (after.member_id, after.generation_id, after.group_instance_id) == (
                    before.member_id,
                    before.generation_id,
                    before.group_instance_id,
                )
                assert (await fleet.order(2, instance=pb.Instance(name=f"{topic}-3"))).error == ""
                assert fleet.last.member.generation_id == before.generation_id

    asyncio.run(run())


def test_a_name_that_another_member_has_taken_is_not_taken_back(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            sidecar = sidecar_of(tmp_path, coordinator, topic, fleet.address)
            await asyncio.to_thread(sidecar.start)
            await named(fleet, f"{topic}-0")
            await asyncio.to_thread(sidecar.kill)
        other = Deliverer(
            tmp_path,
            f"rota://{coordinator.address}",
            topic,
            (f"--topics={topic}", f"--group-instance-id={topic}-0"),
            name="other",
        )
        async with started(other):
            await asyncio.to_thread(other.wait_until, lambda: is_stable(other, topic))
            sidecar.begin_start()
            assert await asyncio.to_thread(sidecar.process.wait, within_s=EXIT_S) == 1
            assert "FENCED_INSTANCE_ID" in sidecar.process.log.read_text()
            async with serving(fleet.address) as again, started(sidecar):
                await again.wait_until(lambda: bool(again.reports))
                member = again.last.member
                assert (member.state, member.group_instance_id) == (pb.MEMBER_STATE_DOWN, "")
                assert (member.fenced_instance_id, member.ready) == (f"{topic}-0", False)
                refused = await again.order(1, instance=pb.Instance(name=f"{topic}-0"))
                assert "another process has taken the instance" in refused.error
                assert is_stable(other, topic)
                await asyncio.to_thread(other.terminate)
                order = pb.Instance(name=f"{topic}-0", after_fencing=True)
                assert (await again.order(2, instance=order)).error == ""
                await again.wait_until(lambda: is_member(again, f"{topic}-0"))
                assert again.last.member.fenced_instance_id == ""
                await asyncio.to_thread(sidecar.kill)
            async with started(sidecar):
                await asyncio.to_thread(
                    sidecar.wait_until, lambda: is_stable(sidecar, topic), within_s=AGAIN_S
                )

    asyncio.run(run())


def test_a_name_ends_with_the_member_that_is_scaled_away(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            sidecar = sidecar_of(tmp_path, coordinator, topic, fleet.address)
            await asyncio.to_thread(sidecar.start)
            await named(fleet, f"{topic}-0")
            far_ms = 1 << 50
            assert (await fleet.order(2, drain=pb.Drain(expires_ms=far_ms))).error == ""
            assert await asyncio.to_thread(sidecar.terminate) == 0
            seen = len(fleet.reports)
            async with started(sidecar):
                await fleet.wait_until(lambda: len(fleet.reports) > seen)
                assert fleet.last.member.state == pb.MEMBER_STATE_DOWN
                assert fleet.last.member.group_instance_id == ""

    asyncio.run(run())


def test_a_member_removes_a_static_one_that_has_ended_without_leaving(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    asyncio.run(removes_an_ended_instance(tmp_path, f"rota://{coordinator.address}", topic))


def test_a_drained_member_gives_its_instance_up_when_its_application_says_goodbye(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    asyncio.run(gives_an_instance_up(tmp_path, f"rota://{coordinator.address}", topic))


def test_a_drained_member_keeps_its_instance_while_fleet_is_away(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            sidecar = sidecar_of(tmp_path, coordinator, topic, fleet.address)
            await asyncio.to_thread(sidecar.start)
            await named(fleet, f"{topic}-0")
        try:
            await asyncio.to_thread(
                sidecar.wait_until, lambda: "Fleet is unavailable" in sidecar.process.log.read_text()
            )
            with attached(app := App(tmp_path, sidecar.address)):
                await asyncio.to_thread(app.wait, "assigned")
                assert (await asyncio.to_thread(sidecar.drain))[0] == HTTPStatus.OK
                assert await asyncio.to_thread(app.terminate) == 0
                await asyncio.to_thread(sidecar.wait_until, lambda: sidecar.has_said("detached"))
                assert is_stable(sidecar, topic), "no pod would be told to succeed it"
            assert await asyncio.to_thread(sidecar.terminate) == 0
            assert coordinator.members_of(topic) == 1, "its place waits for the end of the pod"
            assert (tmp_path / "sidecar-state" / "member.json").exists(), "its membership was not given up"
        finally:
            await asyncio.to_thread(sidecar.close)

    asyncio.run(run())


def test_a_drained_member_with_a_name_of_its_own_keeps_it_until_it_ends(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            own = [f"--group-instance-id={topic}-0"]
            sidecar = sidecar_of(tmp_path, coordinator, topic, fleet.address, own)
            async with started(sidecar):
                await fleet.wait_until(lambda: bool(fleet.reports) and is_member(fleet, f"{topic}-0"))
                with attached(app := App(tmp_path, sidecar.address)):
                    await asyncio.to_thread(app.wait, "assigned")
                    assert (await asyncio.to_thread(sidecar.drain))[0] == HTTPStatus.OK
                    assert await asyncio.to_thread(app.terminate) == 0
                    await asyncio.to_thread(sidecar.wait_until, lambda: sidecar.has_said("detached"))
                    assert await asyncio.to_thread(sidecar.terminate) == 0
                assert all(each.member.given_up_instance_id == "" for each in fleet.reports)
                assert (tmp_path / "sidecar-state" / "member.json").exists(), "its next process resumes it"

    asyncio.run(run())


def test_an_instance_is_not_removed_without_the_coordinator_nor_by_itself(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet, started(sidecar_of(tmp_path, coordinator, topic, fleet.address)):
            early = await fleet.order(9, remove_instances=pb.RemoveInstances(names=["other"]))
            assert "call find first" in early.error, "it has not joined"
            await named(fleet, f"{topic}-0")
            own = pb.RemoveInstances(names=[f"{topic}-0"])
            assert "the instance of this sidecar" in (await fleet.order(2, remove_instances=own)).error
            assert is_member(fleet, f"{topic}-0")

    asyncio.run(run())


def test_a_pod_with_a_name_of_its_own_does_not_take_it_back_after_a_restart(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    own = f"--group-instance-id={topic}-0"

    async def run() -> None:
        async with serving() as fleet:
            sidecar = Deliverer(
                tmp_path,
                f"rota://{coordinator.address}",
                topic,
                (f"--topics={topic}", own, f"--fleet={fleet.address}", f"--state-folder={tmp_path}/state"),
            )
            other = Deliverer(
                tmp_path, f"rota://{coordinator.address}", topic, (f"--topics={topic}", own), name="other"
            )
            async with started(sidecar):
                await fleet.wait_until(lambda: bool(fleet.reports) and is_member(fleet, f"{topic}-0"))
                async with started(other):
                    await asyncio.to_thread(other.wait_until, lambda: is_stable(other, topic))
                    assert await asyncio.to_thread(sidecar.process.wait, within_s=EXIT_S) == 1
                    seen = len(fleet.reports)
                    await asyncio.to_thread(sidecar.start)
                    await fleet.wait_until(lambda: len(fleet.reports) > seen + 2)
                    assert fleet.last.member.fenced_instance_id == f"{topic}-0"
                    assert fleet.last.member.state == pb.MEMBER_STATE_DOWN
                    assert is_stable(other, topic)
                    # The process that was fenced has ended before any scrape: an alert would not see it else.
                    fenced = f'rota_heartbeats_total{{group="{topic}",outcome="FENCED_INSTANCE_ID"}}'
                    assert (await asyncio.to_thread(sidecar.metrics))[fenced] == 1

    asyncio.run(run())
