"""Cases for Kafka only: Rota has the newest versions only, requests of one group, and enums for states."""

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import group as wire

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import DELAYED
from tests.conformance.kafka import KafkaDriver
from tests.conformance.members import TOPIC, Member, answer, assignment, form, new_group, rebalance
from tests.conformance.registry import KAFKA_ONLY, case


@case("11b", on=KAFKA_ONLY)
async def leaving_an_unknown_group_was_an_error_of_the_request(driver: KafkaDriver) -> None:
    older = driver.speaking({wire.LeaveGroupRequest: 2})
    reply = await older.ask(wire.LeaveGroupRequest(group_id=new_group(), member_id="m"))
    assert reply.error_code == pb.UNKNOWN_MEMBER_ID


@case("14", DELAYED, on=KAFKA_ONLY)
async def joining_took_one_step(driver: KafkaDriver) -> None:
    member = Member(driver.speaking({wire.JoinGroupRequest: 3}), new_group())
    call = member.send_join()
    assert await call.is_parked()
    reply = await member.joined(call)
    assert (reply.generation_id, reply.leader) == (1, member.member_id)


@case("36", on=KAFKA_ONLY)
async def a_refused_join_named_an_empty_protocol(driver: KafkaDriver) -> None:
    names = {}
    for version in (6, 7):
        older = driver.speaking({wire.JoinGroupRequest: version})
        reply = await older.ask(
            wire.JoinGroupRequest(
                group_id=new_group(),
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="stranger",
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[("range", b"")],
            )
        )
        assert reply.error_code == pb.UNKNOWN_MEMBER_ID
        names[version] = reply.protocol_name
    assert names == {6: "", 7: None}


@case("64", on=KAFKA_ONLY)
async def a_sync_needed_no_protocol(driver: KafkaDriver) -> None:
    member = Member(driver, new_group())
    await form(member)
    await rebalance(member)
    older = member.with_changes(driver=driver.speaking({wire.SyncGroupRequest: 4}), protocol="")
    reply = await answer(older.send_sync({member.member_id: assignment(3)}), pb.SyncGroupResponse)
    assert (reply.error_code, reply.assignment) == (pb.NONE, assignment(3))


@case("90", on=KAFKA_ONLY)
async def a_static_leader_that_returned_received_its_old_id(driver: KafkaDriver) -> None:
    group = new_group()
    leader, follower = (Member(driver, group, instance=name) for name in ("s1", "s2"))
    await form(leader, follower)
    older = driver.speaking({wire.JoinGroupRequest: 8})
    back = Member(older, group, instance="s1")
    reply = await back.joined(back.send_join(), within_s=5)
    assert back.member_id != leader.member_id
    assert (reply.leader, list(reply.members)) == (leader.member_id, [])
    assert await follower.heartbeat() == pb.NONE


@case("108b", on=KAFKA_ONLY)
async def a_generation_of_an_unknown_group_was_illegal(driver: KafkaDriver) -> None:
    older = driver.speaking({wire.OffsetCommitRequest: 8})
    member = Member(older, new_group(), member_id="m", generation=5)
    assert await member.commit() == pb.ILLEGAL_GENERATION


@case("117b", on=KAFKA_ONLY)
async def each_group_of_a_fetch_is_answered_for_itself(driver: KafkaDriver) -> None:
    committed = {new_group(): 1, new_group(): 2}
    for group, offset in committed.items():
        assert await Member(driver, group).commit({0: offset}) == pb.NONE
    asked = {**committed, new_group(): -1}
    topics = [(TOPIC, [0])]
    reply = await driver.ask(
        wire.OffsetFetchRequest(groups=[(group, None, -1, topics) for group in asked], require_stable=False)
    )
    found = {group.group_id: group.topics[0].partitions[0].committed_offset for group in reply.groups}
    assert found == asked


@case("127b", on=KAFKA_ONLY)
async def a_list_is_filtered_by_states_and_types(driver: KafkaDriver) -> None:
    member = Member(driver, new_group())
    await form(member)

    async def is_listed(states: list[str], types: list[str]) -> bool:
        reply = await driver.ask(ListGroupsRequest(states_filter=states, types_filter=types))
        return member.group in {group.group_id for group in reply.groups}

    assert await is_listed(["stable"], [])
    assert await is_listed(["STABLE"], [])
    assert not await is_listed(["nonsense"], [])
    assert await is_listed([], ["classic"])
    assert not await is_listed([], ["consumer"])
