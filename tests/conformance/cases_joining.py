"""Sections A to C of the reference: existence and bounds, the two-step join and its delay, protocols."""

import re

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DELAYED, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN, Driver
from tests.conformance.members import (
    Member,
    answer,
    fetch,
    form,
    leave,
    new_group,
    rejoin_all,
    settle,
    subscription,
    topic_offsets,
)
from tests.conformance.registry import KAFKA_ONLY, case

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
RANGE = {"range": subscription()}
ROUND_ROBIN = {"roundrobin": subscription(user_data=b"rr")}


async def join_error(member: Member) -> pb.JoinGroupResponse:
    return await answer(member.send_join(), pb.JoinGroupResponse)


@case("1")
async def join_without_a_group_id_is_refused(driver: Driver) -> None:
    reply = await join_error(Member(driver, "", member_id="m"))
    assert (reply.error_code, reply.member_id) == (pb.INVALID_GROUP_ID, "m")


@case("2")
async def no_member_request_may_lack_a_group_id(driver: Driver) -> None:
    member = Member(driver, "", member_id="m", generation=1, protocol="range")
    assert (await answer(member.send_sync(), pb.SyncGroupResponse)).error_code == pb.INVALID_GROUP_ID
    assert await member.heartbeat() == pb.INVALID_GROUP_ID
    reply = await leave(driver, "", ("m", None))
    assert (reply.error_code, list(reply.members)) == (pb.INVALID_GROUP_ID, [])
    assert await member.txn_commit() == pb.INVALID_GROUP_ID


@case("3")
async def offsets_may_be_kept_under_the_empty_group_id(driver: Driver) -> None:
    assert await Member(driver, "").commit({0: 42}) == pb.NONE
    assert await fetch(driver, "", 0) == {0: 42}


@case("4")
async def session_timeouts_have_a_lower_bound(driver: Driver) -> None:
    member = Member(driver, new_group(), session_ms=SESSION_TIMEOUT_MS_MIN - 1)
    assert (await join_error(member)).error_code == pb.INVALID_SESSION_TIMEOUT
    allowed = member.with_changes(session_ms=SESSION_TIMEOUT_MS_MIN)
    assert (await join_error(allowed)).error_code == pb.MEMBER_ID_REQUIRED


@case("5")
async def session_timeouts_have_an_upper_bound(driver: Driver) -> None:
    member = Member(driver, new_group(), session_ms=SESSION_TIMEOUT_MS_MAX + 1)
    assert (await join_error(member)).error_code == pb.INVALID_SESSION_TIMEOUT
    allowed = member.with_changes(session_ms=SESSION_TIMEOUT_MS_MAX)
    assert (await join_error(allowed)).error_code == pb.MEMBER_ID_REQUIRED


@case("6")
async def an_unknown_group_knows_no_member(driver: Driver) -> None:
    member = Member(driver, new_group(), member_id="x")
    assert (await join_error(member)).error_code == pb.UNKNOWN_MEMBER_ID


@case("8")
async def a_protocol_type_is_required(driver: Driver) -> None:
    member = Member(driver, new_group(), protocol_type="")
    assert (await join_error(member)).error_code == pb.INCONSISTENT_GROUP_PROTOCOL


@case("9")
async def a_protocol_is_required(driver: Driver) -> None:
    member = Member(driver, new_group(), protocols={})
    assert (await join_error(member)).error_code == pb.INCONSISTENT_GROUP_PROTOCOL


@case("9b", on=KAFKA_ONLY)
async def a_protocol_may_be_unnamed(driver: Driver) -> None:
    member = Member(driver, new_group(), protocols={"": subscription()})
    assert (await member.joined(await member.send_second_join())).protocol_name == ""


@case("10")
async def an_unknown_group_takes_no_heartbeat_and_no_sync(driver: Driver) -> None:
    member = Member(driver, new_group(), member_id="m", generation=1, protocol="range")
    assert await member.heartbeat() == pb.UNKNOWN_MEMBER_ID
    assert (await answer(member.send_sync(), pb.SyncGroupResponse)).error_code == pb.UNKNOWN_MEMBER_ID


@case("11")
async def leaving_an_unknown_group_is_an_error_of_each_entry(driver: Driver) -> None:
    reply = await leave(driver, new_group(), ("a", None), ("b", None))
    assert reply.error_code == pb.NONE
    assert [each.error_code for each in reply.members] == [pb.UNKNOWN_MEMBER_ID] * 2


@case("12")
async def a_given_id_begins_with_the_client_id(driver: Driver) -> None:
    group = new_group()
    assert re.fullmatch(f"cid-{UUID}", await Member(driver, group).take_id())
    assert re.fullmatch(f"-{UUID}", await Member(driver, group, client_id="").take_id())


@case("13", DELAYED)
async def the_second_step_waits_for_the_round(driver: Driver) -> None:
    member = Member(driver, new_group())
    call = await member.send_second_join()
    assert await call.is_parked()
    reply = await member.joined(call)
    assert (reply.generation_id, reply.leader, reply.protocol_name) == (1, member.member_id, "range")
    assert [(each.member_id, each.metadata) for each in reply.members] == [(member.member_id, subscription())]


@case("15")
async def a_static_member_needs_one_step(driver: Driver) -> None:
    member = Member(driver, new_group(), instance="giid")
    await member.joined(member.send_join())
    assert re.fullmatch(f"giid-{UUID}", member.member_id)


@case("16")
async def an_id_that_is_not_used_in_time_is_forgotten(driver: Driver) -> None:
    member = Member(driver, new_group(), session_ms=SESSION_TIMEOUT_MS_MIN)
    await member.take_id()
    await driver.pass_time(0.8)
    assert (await join_error(member)).error_code == pb.UNKNOWN_MEMBER_ID


@case("17")
async def an_id_alone_is_no_membership(driver: Driver) -> None:
    member = Member(driver, new_group(), protocol="range")
    await member.take_id()
    assert await member.heartbeat() == pb.UNKNOWN_MEMBER_ID
    assert (await answer(member.send_sync(), pb.SyncGroupResponse)).error_code == pb.UNKNOWN_MEMBER_ID


@case("18")
async def an_id_that_nobody_returns_with_disturbs_no_one(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    await Member(driver, member.group, session_ms=SESSION_TIMEOUT_MS_MIN).take_id()
    for _ in range(3):
        await driver.pass_time(0.3)
        assert await member.heartbeat() == pb.NONE


@case("19")
async def an_unused_id_can_leave_once(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.take_id()
    assert await member.leave() == pb.NONE
    assert await member.leave() == pb.UNKNOWN_MEMBER_ID


@case("20", DELAYED)
async def a_first_round_ends_after_its_delay(driver: Driver) -> None:
    member = Member(driver, new_group())
    call = await member.send_second_join()
    await driver.pass_time(1)
    assert await call.is_parked()
    await member.joined(call, within_s=2)


@case("22", DELAYED)
async def a_first_round_is_lengthened_up_to_the_rebalance_timeout(driver: Driver) -> None:
    group = new_group()
    calls = []
    for _ in range(3):  # at 0, 1.2 and 2.4 s; parked calls are looked at for 0.2 s
        member = Member(driver, group, rebalance_ms=4000)
        calls.append((member, await member.send_second_join()))
        assert await calls[0][1].is_parked()
        await driver.pass_time(1)
    for member, call in calls:
        assert (await member.joined(call, within_s=2)).generation_id == 1


@case("23", DELAYED)
async def a_short_rebalance_timeout_leaves_nothing_to_lengthen(driver: Driver) -> None:
    group = new_group()
    first, second = (Member(driver, group, rebalance_ms=500) for _ in range(2))
    call = await first.send_second_join()
    await driver.pass_time(1)
    other = await second.send_second_join()
    assert await call.is_parked()
    # Lengthened, it would end after 3 s at the earliest.
    await first.joined(call, within_s=1.5)
    await second.joined(other, within_s=1)


@case("24", DELAYED)
async def an_emptied_group_waits_again(driver: Driver) -> None:
    gone, first, second = (Member(driver, group) for group in [new_group()] * 3)
    await gone.joined(await gone.send_second_join())
    await gone.leave()
    call = await first.send_second_join()
    await driver.pass_time(1)
    other = await second.send_second_join()
    await driver.pass_time(1.5)
    assert await call.is_parked()
    assert (await first.joined(call, within_s=3)).generation_id == 3
    await second.joined(other, within_s=1)


@case("26", DELAYED)
async def a_first_round_does_not_wait_for_an_unused_id(driver: Driver) -> None:
    member = Member(driver, new_group())
    call = await member.send_second_join()
    await Member(driver, member.group).take_id()
    await driver.pass_time(1)
    assert await call.is_parked()
    await member.joined(call, within_s=2)


@case("27")
async def a_group_keeps_its_protocol_type(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    other = Member(driver, member.group, protocol_type="connect")
    assert (await join_error(other)).error_code == pb.INCONSISTENT_GROUP_PROTOCOL


@case("28")
async def a_joiner_must_share_a_protocol_with_all(driver: Driver) -> None:
    member = Member(driver, new_group(), protocols=RANGE)
    await form(member)
    reply = await join_error(Member(driver, member.group, protocols=ROUND_ROBIN))
    assert (reply.error_code, reply.member_id) == (pb.INCONSISTENT_GROUP_PROTOCOL, "")
    assert await member.heartbeat() == pb.NONE


@case("29")
async def the_protocol_that_all_offer_is_chosen(driver: Driver) -> None:
    both, one = (Member(driver, group) for group in [new_group()] * 2)
    both.protocols = {"range": subscription(user_data=b"r"), "roundrobin": subscription(user_data=b"b")}
    one.protocols = ROUND_ROBIN
    await form(both, one)
    assert (both.protocol, one.protocol) == ("roundrobin", "roundrobin")
    metadata = {each.member_id: each.metadata for each in both.entries}
    assert metadata == {
        both.member_id: subscription(user_data=b"b"),
        one.member_id: subscription(user_data=b"rr"),
    }


@case("30")
async def the_protocol_with_most_votes_is_chosen(driver: Driver) -> None:
    group = new_group()
    members = [Member(driver, group, protocols=RANGE | ROUND_ROBIN) for _ in range(2)]
    members.append(Member(driver, group, protocols=ROUND_ROBIN | RANGE))
    await form(*members)
    assert {member.protocol for member in members} == {"range"}


@case("31")
async def a_tie_goes_to_the_first_in_kafkas_order(driver: Driver) -> None:
    group = new_group()
    members = [Member(driver, group, protocols=order) for order in (ROUND_ROBIN | RANGE, RANGE | ROUND_ROBIN)]
    await form(*members)
    assert {member.protocol for member in members} == {"range"}


@case("32")
async def a_lone_member_cannot_change_all_its_protocols(driver: Driver) -> None:
    member = Member(driver, new_group(), protocols=RANGE)
    await form(member)
    changed = member.with_changes(protocols=ROUND_ROBIN)
    assert (await join_error(changed)).error_code == pb.INCONSISTENT_GROUP_PROTOCOL


@case("34")
async def protocols_are_looked_at_before_ids(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    stranger = Member(driver, member.group, member_id="stranger", protocol_type="connect")
    assert (await join_error(stranger)).error_code == pb.INCONSISTENT_GROUP_PROTOCOL


@case("35")
async def an_emptied_group_takes_another_type(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    await member.leave()
    other = Member(driver, member.group, protocol_type="connect", protocols={"any": b"bytes"})
    reply = await other.joined(await other.send_second_join())
    assert reply.protocol_type == "connect"


@case("3b")
async def commits_do_not_make_a_group_refuse_members(driver: Driver) -> None:
    group = new_group()
    request = pb.CommitOffsetsRequest(group_id=group, generation_id=-1, topics=[topic_offsets({0: 7})])
    assert (await answer(driver.send(request), pb.CommitOffsetsResponse)).error_code == pb.NONE
    member, other = Member(driver, group), Member(driver, group)
    await form(member)
    joining = await other.send_second_join()
    await rejoin_all([member])
    await other.joined(joining)
    await settle(member, other)
    assert await fetch(driver, group, 0) == {0: 7}
