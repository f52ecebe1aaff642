"""Sections G and H of the reference: leaving, and static members."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import CORE, DELAYED, KAFKA, ROTA, SESSION_TIMEOUT_MS_MIN, Driver
from tests.conformance.members import (
    Member,
    answer,
    assignment,
    form,
    leave,
    new_group,
    rebalance,
    subscription,
)
from tests.conformance.registry import case


def statics(driver: Driver) -> tuple[Member, Member]:
    """Two static members of a new group."""
    group = new_group()
    return Member(driver, group, instance="s1"), Member(driver, group, instance="s2")


async def stable_statics(driver: Driver) -> tuple[Member, Member]:
    leader, follower = statics(driver)
    await form(leader, follower)
    return leader, follower


def anew(member: Member, **changes: object) -> Member:
    """The same instance after a restart: it has forgotten its id."""
    return member.with_changes(member_id="", generation=-1, leader="", **changes)


@case("79")
async def who_leaves_is_missed_at_once(driver: Driver) -> None:
    group = new_group()
    leader, follower = Member(driver, group), Member(driver, group)
    await form(leader, follower)
    assert await follower.leave() == pb.NONE
    assert await leader.heartbeat() == pb.REBALANCE_IN_PROGRESS


@case("80")
async def each_entry_of_a_leave_has_its_own_result(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    reply = await leave(driver, member.group, (member.member_id, None), ("bogus", None))
    assert reply.error_code == pb.NONE
    assert [each.error_code for each in reply.members] == [pb.NONE, pb.UNKNOWN_MEMBER_ID]
    assert await member.heartbeat() == pb.UNKNOWN_MEMBER_ID


@case("81")
async def an_instance_can_be_removed_by_its_name(driver: Driver) -> None:
    member = Member(driver, new_group(), instance="s1")
    await form(member)
    reply = await leave(driver, member.group, ("", "s1"))
    assert [(each.member_id, each.error_code) for each in reply.members] == [("", pb.NONE)]
    assert await member.heartbeat() == pb.UNKNOWN_MEMBER_ID


@case("83")
async def a_right_id_with_a_wrong_instance_is_unknown(driver: Driver) -> None:
    member = Member(driver, new_group(), instance="s1")
    await form(member)
    reply = await leave(driver, member.group, (member.member_id, "other"))
    assert reply.members[0].error_code == pb.UNKNOWN_MEMBER_ID


@case("84")
async def an_entry_that_names_nobody_is_unknown(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    reply = await leave(driver, member.group, ("", None))
    assert reply.members[0].error_code == pb.UNKNOWN_MEMBER_ID


@case("84b", on=frozenset({CORE, KAFKA}))
async def an_entry_without_names_removes_no_static_member(driver: Driver) -> None:
    """Not even one whose instance has an empty name, which Rota's server does not let join."""
    static = Member(driver, new_group(), instance="")
    await form(static)
    reply = await leave(driver, static.group, ("", None))
    assert reply.members[0].error_code == pb.UNKNOWN_MEMBER_ID
    assert await static.heartbeat() == pb.NONE


@case("84c", on=frozenset({CORE, ROTA}))
async def a_parked_sync_of_a_removed_static_member_is_answered(driver: Driver) -> None:
    """A broker never answers this call."""
    leader, follower = await stable_statics(driver)
    await rebalance(leader, follower)
    waiting = follower.send_sync()
    assert await waiting.is_parked()
    assert (await leave(driver, leader.group, ("", "s2"))).members[0].error_code == pb.NONE
    synced = await answer(waiting, pb.SyncGroupResponse)
    assert synced.error_code == pb.UNKNOWN_MEMBER_ID


@case("88b", DELAYED)
async def a_static_member_that_returns_in_its_first_round_waits_however_short_its_session(
    driver: Driver,
) -> None:
    member = Member(driver, new_group(), instance="s1", session_ms=SESSION_TIMEOUT_MS_MIN)
    replaced = member.send_join()
    assert await replaced.is_parked()
    back = anew(member)
    reply = await back.joined(back.send_join())
    assert reply.generation_id == 1
    fenced = await answer(replaced, pb.JoinGroupResponse)
    assert fenced.error_code == pb.FENCED_INSTANCE_ID


@case("86")
async def even_an_unused_id_that_leaves_starts_a_round(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    pending = Member(driver, member.group)
    await pending.take_id()
    assert await pending.leave() == pb.NONE
    assert await member.heartbeat() == pb.REBALANCE_IN_PROGRESS


@case("88")
async def a_static_follower_returns_without_a_round(driver: Driver) -> None:
    leader, follower = await stable_statics(driver)
    back = anew(follower)
    reply = await back.joined(back.send_join(), within_s=5)
    assert back.member_id != follower.member_id
    assert (reply.generation_id, reply.leader) == (leader.generation, leader.member_id)
    assert (list(reply.members), reply.skip_assignment) == ([], False)
    synced = await answer(back.send_sync(), pb.SyncGroupResponse, within_s=5)
    assert (synced.error_code, synced.assignment) == (pb.NONE, assignment(1))
    assert await leader.heartbeat() == pb.NONE


@case("89")
async def a_static_leader_returns_and_need_not_assign(driver: Driver) -> None:
    leader, follower = await stable_statics(driver)
    back = anew(leader)
    reply = await back.joined(back.send_join(), within_s=5)
    assert (reply.leader, reply.skip_assignment, len(reply.members)) == (back.member_id, True, 2)
    assert await follower.heartbeat() == pb.NONE


@case("91")
async def the_old_id_of_a_returned_instance_is_fenced(driver: Driver) -> None:
    _, follower = await stable_statics(driver)
    back = anew(follower)
    await back.joined(back.send_join(), within_s=5)
    joined = await answer(follower.send_join(), pb.JoinGroupResponse)
    synced = await answer(follower.send_sync(), pb.SyncGroupResponse)
    assert (joined.error_code, synced.error_code) == (pb.FENCED_INSTANCE_ID, pb.FENCED_INSTANCE_ID)
    assert await follower.heartbeat() == pb.FENCED_INSTANCE_ID
    assert await follower.leave() == pb.FENCED_INSTANCE_ID
    assert await follower.commit() == pb.FENCED_INSTANCE_ID


@case("92")
async def the_old_id_without_its_instance_is_unknown(driver: Driver) -> None:
    _, follower = await stable_statics(driver)
    back = anew(follower)
    await back.joined(back.send_join(), within_s=5)
    nameless = follower.with_changes(instance=None)
    assert await nameless.heartbeat() == pb.UNKNOWN_MEMBER_ID


@case("93")
async def a_static_member_that_changes_the_choice_starts_a_round(driver: Driver) -> None:
    leader, follower = statics(driver)
    both = {"range": subscription(), "roundrobin": subscription()}
    leader.protocols = follower.protocols = both
    await form(leader, follower)
    back = anew(follower, protocols={"roundrobin": subscription()})
    assert await back.send_join().is_parked()
    assert await leader.heartbeat() == pb.REBALANCE_IN_PROGRESS


@case("94")
async def a_static_member_that_returns_before_the_sync_starts_a_round(driver: Driver) -> None:
    leader, follower = await stable_statics(driver)
    await rebalance(leader, follower)
    waiting = follower.send_sync()
    assert await waiting.is_parked()
    back = anew(follower)
    assert await back.send_join().is_parked()
    assert (await answer(waiting, pb.SyncGroupResponse)).error_code == pb.FENCED_INSTANCE_ID
    assert await leader.heartbeat() == pb.REBALANCE_IN_PROGRESS


@case("96")
async def a_static_leader_that_knows_its_id_starts_a_round(driver: Driver) -> None:
    leader, follower = await stable_statics(driver)
    assert await leader.send_join().is_parked()
    assert await follower.heartbeat() == pb.REBALANCE_IN_PROGRESS


@case("97")
async def id_and_instance_must_belong_together(driver: Driver) -> None:
    leader, follower = await stable_statics(driver)
    crossed = follower.with_changes(instance=leader.instance)
    assert (await answer(crossed.send_join(), pb.JoinGroupResponse)).error_code == pb.FENCED_INSTANCE_ID
    unknown = follower.with_changes(instance="s3")
    assert (await answer(unknown.send_join(), pb.JoinGroupResponse)).error_code == pb.UNKNOWN_MEMBER_ID


@case("100")
async def a_second_step_cannot_become_static(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.take_id()
    member.instance = "s1"
    assert (await answer(member.send_join(), pb.JoinGroupResponse)).error_code == pb.UNKNOWN_SERVER_ERROR


@case("102")
async def each_return_has_a_new_id(driver: Driver) -> None:
    _, follower = await stable_statics(driver)
    ids = {follower.member_id}
    for _ in range(2):
        back = anew(follower)
        await back.joined(back.send_join(), within_s=5)
        ids.add(back.member_id)
    assert len(ids) == 3
