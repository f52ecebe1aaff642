"""Sections A, J and K of the reference, as administrators see it: list, describe, delete."""

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import EXPIRING, KAFKA, Driver, Expiring
from tests.conformance.members import (
    OTHER_TOPIC,
    TOPIC,
    Member,
    answer,
    assignment,
    fetch,
    form,
    new_group,
    rebalance,
    settle,
    subscription,
    topic_offsets,
)
from tests.conformance.registry import case

# How long after its time an offset may still be there.
LOOKS_WITHIN_S = 3
EMPTY = (admin.GROUP_STATE_EMPTY, "")


async def listed(driver: Driver, group: str, *states: admin.GroupState.ValueType) -> list[tuple[int, str]]:
    """(state, protocol type) of the group, as the list has it."""
    reply = await answer(driver.send(admin.ListGroupsRequest(states=states)), admin.ListGroupsResponse)
    assert reply.error_code == pb.NONE
    return [(each.state, each.protocol_type) for each in reply.groups if each.group_id == group]


async def listed_soon(driver: Driver, group: str) -> list[tuple[int, str]]:
    """The same, once it is there: Kafka answers a first contact before the new group is written, and lists after."""
    for _ in range(50):
        found = await listed(driver, group)
        if found:
            return found
        await driver.pass_time(0.1)
    return []


async def described(driver: Driver, group: str) -> admin.DescribedGroup:
    request = admin.DescribeGroupsRequest(group_ids=[group])
    reply = await answer(driver.send(request), admin.DescribeGroupsResponse)
    (found,) = reply.groups
    assert (found.group_id, found.error_code) == (group, pb.NONE)
    return found


async def delete(driver: Driver, group: str) -> int:
    reply = await answer(
        driver.send(admin.DeleteGroupsRequest(group_ids=[group])), admin.DeleteGroupsResponse
    )
    (result,) = reply.groups
    return result.error_code


async def delete_offsets(driver: Driver, group: str, topic: str) -> admin.DeleteOffsetsResponse:
    topics = [pb.TopicPartitions(name=topic, partitions=[0])]
    request = admin.DeleteOffsetsRequest(group_id=group, topics=topics)
    return await answer(driver.send(request), admin.DeleteOffsetsResponse)


@case("2b")
async def no_offsets_are_deleted_without_a_group_id(driver: Driver) -> None:
    assert (await delete_offsets(driver, "", TOPIC)).error_code == pb.INVALID_GROUP_ID


@case("6b")
async def a_refused_join_makes_no_group(driver: Driver) -> None:
    member = Member(driver, new_group(), member_id="x")
    await answer(member.send_join(), pb.JoinGroupResponse)
    assert await listed(driver, member.group) == []


@case("7")
async def a_first_contact_makes_an_empty_group(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.take_id()
    assert await listed_soon(driver, member.group) == [EMPTY]


@case("8b")
async def even_an_inconsistent_join_makes_a_group(driver: Driver) -> None:
    member = Member(driver, new_group(), protocol_type="")
    await answer(member.send_join(), pb.JoinGroupResponse)
    assert await listed_soon(driver, member.group) == [EMPTY]


@case("54b")
async def an_emptied_group_keeps_its_type_and_no_members(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    await member.leave()
    await driver.pass_time(0.5)
    found = await described(driver, member.group)
    assert (found.state, found.protocol_type, list(found.members)) == (
        admin.GROUP_STATE_EMPTY,
        "consumer",
        [],
    )


@case("107b")
async def commits_alone_make_an_empty_group(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 1})
    assert await listed(driver, member.group) == [EMPTY]


@case("122")
async def offsets_of_a_topic_that_is_read_stay(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    request = member.commit_request({0: 1})
    request.topics.append(topic_offsets({0: 2}, OTHER_TOPIC))
    await answer(driver.send(request), pb.CommitOffsetsResponse)
    kept = await delete_offsets(driver, member.group, TOPIC)
    gone = await delete_offsets(driver, member.group, OTHER_TOPIC)
    assert kept.topics[0].partitions[0].error_code == pb.GROUP_SUBSCRIBED_TO_TOPIC
    assert gone.topics[0].partitions[0].error_code == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: 1}
    assert await fetch(driver, member.group, 0, topic=OTHER_TOPIC) == {0: -1}


@case("122b")
async def offsets_of_other_protocols_stay_while_somebody_is_there(driver: Driver) -> None:
    member = Member(driver, new_group(), protocol_type="connect", protocols={"any": b"bytes"})
    await member.joined(await member.send_second_join())
    await answer(member.send_sync({member.member_id: b"all"}), pb.SyncGroupResponse)
    assert (await delete_offsets(driver, member.group, TOPIC)).error_code == pb.NON_EMPTY_GROUP
    assert (await delete_offsets(driver, new_group(), TOPIC)).error_code == pb.GROUP_ID_NOT_FOUND


@case("123")
async def a_group_is_deleted_with_its_offsets_when_nobody_is_in_it(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    await member.commit({0: 1})
    assert await delete(driver, member.group) == pb.NON_EMPTY_GROUP
    await member.leave()
    await driver.pass_time(0.5)
    assert await delete(driver, member.group) == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: -1}
    assert await delete(driver, member.group) == pb.GROUP_ID_NOT_FOUND


@case("125", EXPIRING)
async def offsets_are_kept_for_a_while_after_the_last_member(driver: Expiring) -> None:
    # Static members: on Kafka a group that is empty, with an id handed out, may be gone before the second step.
    members = [Member(driver, new_group(), instance="i", session_ms=600_000) for _ in range(2)]
    for member in members:
        await form(member)
    emptied, stays = members
    simple = Member(driver, new_group())
    groups = [emptied.group, stays.group, simple.group]
    for member in (emptied, stays, simple):
        request = member.commit_request({0: 1})
        request.topics.append(topic_offsets({0: 2}, OTHER_TOPIC))
        await answer(driver.send(request), pb.CommitOffsetsResponse)
    await emptied.leave()
    half_s = driver.settings.retention_s / 2
    await driver.pass_time(half_s)
    assert [await fetch(driver, group, 0) for group in groups] == [{0: 1}] * 3

    await driver.pass_time(half_s + LOOKS_WITHIN_S)
    assert [await fetch(driver, group, 0) for group in groups] == [{0: -1}, {0: 1}, {0: -1}]
    assert [await listed(driver, group) for group in groups] == [
        [],
        [(admin.GROUP_STATE_STABLE, "consumer")],
        [],
    ]
    # Listed as a difference: Kafka forgets what no member subscribes to, Rota nothing while there are members.
    left = -1 if driver.name == KAFKA else 2
    assert await fetch(driver, stays.group, 0, topic=OTHER_TOPIC) == {0: left}


@case("126")
async def metadata_is_shown_of_a_stable_group_only(driver: Driver) -> None:
    leader, follower = (Member(driver, group) for group in [new_group()] * 2)
    await form(leader, follower)
    stable = await described(driver, leader.group)
    assert (stable.state, stable.protocol_name) == (admin.GROUP_STATE_STABLE, "range")
    assert {each.member_id: each.assignment for each in stable.members} == {
        leader.member_id: assignment(0),
        follower.member_id: assignment(1),
    }
    assert {each.metadata for each in stable.members} == {subscription()}
    assert {each.client_id for each in stable.members} == {"cid"}
    assert {each.client_host for each in stable.members} == {"/127.0.0.1"}

    assert await leader.send_join().is_parked()
    preparing = await described(driver, leader.group)
    assert (preparing.state, preparing.protocol_name) == (admin.GROUP_STATE_PREPARING_REBALANCE, "")
    assert {each.metadata for each in preparing.members} == {b""}

    await rebalance(leader, follower)
    completing = await described(driver, leader.group)
    assert (completing.state, completing.protocol_name) == (admin.GROUP_STATE_COMPLETING_REBALANCE, "")
    assert {each.metadata for each in completing.members} == {b""}


@case("126c")
async def a_description_shows_the_client_id_of_a_members_latest_join(driver: Driver) -> None:
    group = new_group()
    dynamic, static = Member(driver, group), Member(driver, group, instance="i")
    await form(dynamic, static)
    again = Member(driver, group, instance="i", client_id="static-again")
    await again.joined(again.send_join())
    dynamic.client_id = "dynamic-again"
    joining = dynamic.send_join()
    # Kafka's driver has a connection for each client id: without this the two joins could overtake each other.
    assert await joining.is_parked()
    await again.joined(again.send_join())
    await dynamic.joined(joining)
    await settle(dynamic, again)
    shown = {each.member_id: each.client_id for each in (await described(driver, group)).members}
    # Listed as a difference: Kafka shows that of the first join.
    if driver.name == KAFKA:
        assert shown == {dynamic.member_id: "cid", again.member_id: "cid"}
    else:
        assert shown == {dynamic.member_id: "dynamic-again", again.member_id: "static-again"}


@case("126b")
async def an_unknown_group_is_dead(driver: Driver) -> None:
    found = await described(driver, new_group())
    assert (found.state, list(found.members)) == (admin.GROUP_STATE_DEAD, [])


@case("127")
async def a_list_can_be_of_some_states(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    stable = (admin.GROUP_STATE_STABLE, "consumer")
    assert await listed(driver, member.group, admin.GROUP_STATE_STABLE) == [stable]
    assert await listed(driver, member.group, admin.GROUP_STATE_EMPTY, admin.GROUP_STATE_STABLE) == [stable]
    assert await listed(driver, member.group, admin.GROUP_STATE_EMPTY) == []
