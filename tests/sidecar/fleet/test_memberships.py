"""A dynamic member waits until Fleet orders it to join, and its membership passes from pod to pod without a rebalance."""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import pytest

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.settings_pb2 import GroupSettings
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.sidecar.fleet.instances import started
from tests.sidecar.fleet.stories import RECORDS
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator
from tests.support.records import batch, produce
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.process
# A third of this is the time limit of the wait, which no test waits for.
FOR_MS = 600_000


def dynamic_sidecar(folder: Path, servers: str, topic: str, fleet: Headquarters, name: str) -> Deliverer:
    """A sidecar as in a pod, with a session that outlives the test."""
    flags = (
        f"--topics={topic}",
        f"--fleet={fleet.address}",
        "--settings-hash=any",
        f"--client-id={name}",
        f"--state-folder={folder}/{name}-state",
        "--session-timeout-ms=300000",
    )
    return Deliverer(folder, servers, topic, flags, name=name)


async def announced(fleet: Headquarters, number: int = 1, *, orders_join: bool = True) -> None:
    """Say that this operator orders members to join."""
    await fleet.wait_until(lambda: bool(fleet.reports))
    order = pb.Configure(settings=GroupSettings(), orders_hand_over=True, orders_join=orders_join)
    assert (await fleet.order(number, configure=order)).error == ""


async def is_stable(fleet: Headquarters, partitions: int = 2) -> pb.MemberReport:
    """Wait until the sidecar is a member with as many partitions; return its report."""
    await fleet.wait_until(lambda: bool(fleet.reports))
    await fleet.wait_until(
        lambda: fleet.last.member.state == pb.MEMBER_STATE_STABLE and len(fleet.last.partitions) == partitions
    )
    return fleet.last.member


def test_it_waits_for_the_order_to_join_and_is_ready_once_it_has_an_application(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        async with serving() as fleet:
            sidecar = dynamic_sidecar(tmp_path, f"rota://{coordinator.address}", topic, fleet, "waits")
            async with started(sidecar):
                await announced(fleet)
                await fleet.wait_until(lambda: fleet.last.member.awaits_join)
                assert not fleet.last.member.ready
                with attached(App(tmp_path, sidecar.address)):
                    await fleet.wait_until(lambda: fleet.last.member.ready)
                    assert fleet.last.member.state == pb.MEMBER_STATE_DOWN
                    assert (await fleet.order(2, join=pb.Join())).error == ""
                    assert not (await is_stable(fleet)).awaits_join

    asyncio.run(run())


async def joins_by_itself(
    folder: Path, coordinator: Coordinator, topic: str, says: Callable[[Headquarters], Awaitable[None]]
) -> None:
    """A sidecar becomes a member without an order, whatever the operator says."""
    async with serving() as fleet:
        sidecar = dynamic_sidecar(folder, f"rota://{coordinator.address}", topic, fleet, "joins")
        async with started(sidecar):
            await says(fleet)
            with attached(App(folder, sidecar.address)):
                await is_stable(fleet)


def test_it_joins_by_itself_with_an_older_operator(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def says(fleet: Headquarters) -> None:
        await announced(fleet, orders_join=False)

    asyncio.run(joins_by_itself(tmp_path, coordinator, topic, says))


def test_it_joins_by_itself_with_an_operator_that_says_nothing(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def says(_: Headquarters) -> None:
        pass

    asyncio.run(joins_by_itself(tmp_path, coordinator, topic, says))


def test_it_joins_by_itself_once_its_operator_is_away(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def says(fleet: Headquarters) -> None:
        await announced(fleet)
        await fleet.wait_until(lambda: fleet.last.member.awaits_join)
        fleet.hang_up()

    asyncio.run(joins_by_itself(tmp_path, coordinator, topic, says))


def test_its_membership_goes_on_in_the_pod_that_replaces_it(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        servers = f"rota://{coordinator.address}"
        async with serving() as fleet, serving() as other_fleet:
            ending = dynamic_sidecar(tmp_path, servers, topic, fleet, "ends")
            succeeding = dynamic_sidecar(tmp_path, servers, topic, other_fleet, "succeeds")
            async with started(ending), started(succeeding):
                app, other = App(tmp_path, ending.address), App(tmp_path, succeeding.address, name="other")
                with attached(app), attached(other):
                    await announced(fleet)
                    assert (await fleet.order(2, join=pb.Join())).error == ""
                    before = await is_stable(fleet)
                    await asyncio.to_thread(app.wait, "assigned")
                    await announced(other_fleet)
                    await other_fleet.wait_until(lambda: other_fleet.last.member.ready)
                    draining = asyncio.create_task(asyncio.to_thread(ending.drain, f"for_ms={FOR_MS}"))
                    await fleet.wait_until(lambda: fleet.last.member.awaits_successor)
                    await asyncio.to_thread(produce, coordinator.address, topic, 0, batch(["served"]))
                    await asyncio.to_thread(app.wait_until, lambda: (topic, 0, RECORDS) in app.done)
                    assert (await fleet.order(3, hand_over=pb.HandOver(successor="succeeds"))).error == ""
                    assert (await draining)[0] == HTTPStatus.OK
                    await fleet.wait_until(lambda: fleet.last.member.HasField("given_up_membership"))
                    given_up = fleet.last.member.given_up_membership
                    assert given_up.successor == "succeeds"
                    assert not (tmp_path / "ends-state" / "member.json").exists(), "nobody else resumes it"
                    take_over = pb.TakeOver(membership=given_up.membership, successor="other")
                    assert "not for this pod" in (await other_fleet.order(2, take_over=take_over)).error
                    take_over.successor = "succeeds"
                    for number in (3, 4):
                        assert (await other_fleet.order(number, take_over=take_over)).error == "", (
                            "idempotent"
                        )
                    after = await is_stable(other_fleet)
                    assert (after.member_id, after.generation_id) == (before.member_id, before.generation_id)
                    removal = pb.RemoveInstances(member_ids=[after.member_id])
                    assert "drain it instead" in (await other_fleet.order(5, remove_instances=removal)).error
                    await asyncio.to_thread(produce, coordinator.address, topic, 0, batch(["next"]))
                    await asyncio.to_thread(
                        app.wait_until, lambda: len(app.done) + len(other.done) >= 2 * RECORDS + 2
                    )
                    assert len({*app.done, *other.done}) == 2 * RECORDS + 2, "nothing is repeated"
                    assert (topic, 0, RECORDS + 1) in other.done

    asyncio.run(run())


def test_a_membership_that_comes_too_late_is_removed_from_the_group(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def run() -> None:
        servers = f"rota://{coordinator.address}"
        async with serving() as fleet, serving() as other_fleet:
            ending = dynamic_sidecar(tmp_path, servers, topic, fleet, "ends")
            succeeding = dynamic_sidecar(tmp_path, servers, topic, other_fleet, "succeeds")
            async with started(ending):
                with attached(app := App(tmp_path, ending.address)):
                    await announced(fleet, orders_join=False)
                    await is_stable(fleet)
                    await asyncio.to_thread(app.wait, "assigned")
                    await announced(fleet, 2)
                    draining = asyncio.create_task(asyncio.to_thread(ending.drain, f"for_ms={FOR_MS}"))
                    await fleet.wait_until(lambda: fleet.last.member.awaits_successor)
                    assert (await fleet.order(3, hand_over=pb.HandOver(successor="succeeds"))).error == ""
                    assert (await draining)[0] == HTTPStatus.OK
                    await fleet.wait_until(lambda: fleet.last.member.HasField("given_up_membership"))
                    given_up = fleet.last.member.given_up_membership
                    async with started(succeeding):
                        with attached(App(tmp_path, succeeding.address, name="other")):
                            # It joins by itself, and the group waits for the member that was given up.
                            await other_fleet.wait_until(lambda: bool(other_fleet.reports))
                            await other_fleet.wait_until(
                                lambda: other_fleet.last.member.state == pb.MEMBER_STATE_JOINING
                            )
                            order = pb.TakeOver(membership=given_up.membership, successor="succeeds")
                            assert (await other_fleet.order(2, take_over=order)).error == ""
                            removal = pb.RemoveInstances(member_ids=[given_up.membership.member_id])
                            answer = await other_fleet.order(3, remove_instances=removal)
                            assert answer.error == "", "it is not in the group any more"
                            member = await is_stable(other_fleet)
                            assert member.member_id != given_up.membership.member_id

    asyncio.run(run())
