"""Sections K and L of the reference: where a group is coordinated, and what a failover leaves of it."""

from rota_coordinator.core.group.hashing import slot_of
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import SEVERAL, Cluster, Failing
from tests.conformance.members import (
    Member,
    answer,
    assignment,
    fetch,
    form,
    leave,
    new_group,
    rejoin_all,
)
from tests.conformance.registry import SEVERAL_PROCESSES, case

SESSION_MS = 60_000


def team(driver: Failing, count: int) -> list[Member]:
    group = new_group()
    return [Member(driver, group, session_ms=SESSION_MS) for _ in range(count)]


async def keeps_its_part(member: Member, partition: int) -> None:
    """The member is told what it was told before."""
    assert await member.heartbeat() == pb.NONE
    synced = await answer(member.send_sync(), pb.SyncGroupResponse)
    assert (synced.error_code, synced.assignment) == (pb.NONE, assignment(partition))


@case("128", SEVERAL, on=SEVERAL_PROCESSES)
async def a_groups_name_says_where_it_is_coordinated(driver: Cluster) -> None:
    groups = [new_group() for _ in range(100)]
    found = await driver.find_all(groups)
    owners = await driver.owners()
    assert len(set(found)) > 1
    assert found == [owners[slot_of(group, len(owners))] for group in groups]
    assert found == [(await driver.find_all([group]))[0] for group in groups]


@case("134", SEVERAL, on=SEVERAL_PROCESSES)
async def only_the_groups_own_coordinator_answers(driver: Cluster) -> None:
    here = Member(driver, new_group(), session_ms=SESSION_MS)
    await form(here)
    (address,) = await driver.find_all([here.group])
    elsewhere = driver.at(next(each for each in await driver.owners() if each != address))
    member = here.with_changes(driver=elsewhere)
    group = here.group

    joined = await answer(member.send_join(), pb.JoinGroupResponse)
    synced = await answer(member.send_sync(), pb.SyncGroupResponse)
    left = await leave(elsewhere, group, (member.member_id, None))
    asked = pb.FetchOffsetsRequest(group_id=group, all=True)
    fetched = await answer(elsewhere.send(asked), pb.FetchOffsetsResponse)
    describe, delete = (
        kind(group_ids=[group]) for kind in (admin.DescribeGroupsRequest, admin.DeleteGroupsRequest)
    )
    described = await answer(elsewhere.send(describe), admin.DescribeGroupsResponse)
    deleted = await answer(elsewhere.send(delete), admin.DeleteGroupsResponse)
    errors = [
        await member.heartbeat(),
        joined.error_code,
        synced.error_code,
        left.error_code,
        await member.commit(),
        fetched.error_code,
        described.groups[0].error_code,
        deleted.groups[0].error_code,
    ]
    assert errors == [pb.NOT_COORDINATOR] * len(errors)
    await keeps_its_part(here, 0)


@case("129", SEVERAL)
async def a_stable_group_survives_its_coordinator(driver: Failing) -> None:
    leader, follower = team(driver, 2)
    await form(leader, follower)
    assert await leader.commit({0: 7}) == pb.NONE
    await driver.fail_over(leader.group)
    await keeps_its_part(leader, 0)
    await keeps_its_part(follower, 1)
    assert await fetch(driver, leader.group, 0) == {0: 7}


@case("130", SEVERAL)
async def a_round_that_was_not_synced_is_lost_with_its_coordinator(driver: Failing) -> None:
    leader, follower, newcomer = team(driver, 3)
    await form(leader, follower)
    joining = await newcomer.send_second_join()
    assert await joining.is_parked()
    synced = leader.generation
    await rejoin_all([leader, follower])
    await newcomer.joined(joining)
    assert {member.generation for member in (leader, follower, newcomer)} == {synced + 1}

    await driver.fail_over(leader.group)
    assert await leader.heartbeat() == pb.ILLEGAL_GENERATION
    assert await follower.heartbeat() == pb.ILLEGAL_GENERATION
    assert await newcomer.heartbeat() == pb.UNKNOWN_MEMBER_ID
    await keeps_its_part(leader.with_changes(generation=synced), 0)
    await keeps_its_part(follower.with_changes(generation=synced), 1)
