"""Sections I and J of the reference: capacity, and offsets."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import SMALL, Driver
from tests.conformance.members import (
    TOPIC,
    Member,
    answer,
    fetch,
    form,
    new_group,
    rebalance,
    rejoin_all,
    topic_offsets,
)
from tests.conformance.registry import case


async def full_group(driver: Driver) -> list[Member]:
    """The leader is the first."""
    members = [Member(driver, group) for group in [new_group()] * 3]
    await form(*members)
    return members


@case("103", SMALL)
async def a_full_group_refuses_at_the_first_step(driver: Driver) -> None:
    leader, *_ = await full_group(driver)
    reply = await answer(Member(driver, leader.group).send_join(), pb.JoinGroupResponse)
    assert (reply.error_code, reply.member_id) == (pb.GROUP_MAX_SIZE_REACHED, "")


@case("105", SMALL)
async def a_member_that_waits_may_join_again_in_a_full_group(driver: Driver) -> None:
    members = await full_group(driver)
    first = members[0].send_join()
    assert await first.is_parked()
    await rejoin_all(members)


@case("106", SMALL)
async def the_members_of_a_full_group_join_again(driver: Driver) -> None:
    leader, *others = await full_group(driver)
    await rebalance(leader, *others)
    assert len(leader.entries) == 3


@case("107")
async def offsets_need_no_members(driver: Driver) -> None:
    group = new_group()
    assert await Member(driver, group).commit({0: 42}) == pb.NONE
    assert await fetch(driver, group, 0) == {0: 42}


@case("108")
async def a_generation_of_an_unknown_group_is_refused(driver: Driver) -> None:
    assert await Member(driver, new_group(), member_id="m", generation=5).commit() == pb.GROUP_ID_NOT_FOUND


@case("109")
async def a_commit_is_checked_by_member_and_generation(driver: Driver) -> None:
    member = Member(driver, new_group())
    await form(member)
    assert await member.commit() == pb.NONE
    assert await member.commit(member_id="stranger") == pb.UNKNOWN_MEMBER_ID
    assert await member.commit(generation_id=member.generation - 1) == pb.ILLEGAL_GENERATION
    assert await member.commit(generation_id=-1, member_id="") == pb.UNKNOWN_MEMBER_ID
    assert await member.commit(generation_id=-1) == pb.ILLEGAL_GENERATION


@case("110")
async def no_commit_between_join_and_sync(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.joined(await member.send_second_join())
    assert await member.commit() == pb.REBALANCE_IN_PROGRESS
    assert await member.txn_commit() == pb.NONE


@case("111")
async def a_commit_before_joining_again_is_taken(driver: Driver) -> None:
    leader, follower, _ = await full_group(driver)
    assert await leader.send_join().is_parked()
    assert await follower.commit({1: 5}) == pb.NONE
    assert await fetch(driver, leader.group, 1) == {1: 5}


@case("113")
async def metadata_has_a_limit_for_each_partition(driver: Driver) -> None:
    member = Member(driver, new_group())
    request = member.commit_request({0: 1, 1: 1})
    request.topics[0].partitions[0].metadata = "m" * 4096
    request.topics[0].partitions[1].metadata = "m" * 4097
    reply = await answer(driver.send(request), pb.CommitOffsetsResponse)
    errors = [partition.error_code for partition in reply.topics[0].partitions]
    assert errors == [pb.NONE, pb.OFFSET_METADATA_TOO_LARGE]
    assert await fetch(driver, member.group, 0, 1) == {0: 1, 1: -1}


@case("114")
async def epoch_and_metadata_come_back(driver: Driver) -> None:
    member = Member(driver, new_group())
    request = member.commit_request({0: 1, 1: 2})
    request.topics[0].partitions[0].leader_epoch = 7
    request.topics[0].partitions[0].metadata = "m"
    await answer(driver.send(request), pb.CommitOffsetsResponse)
    asked = pb.FetchOffsetsRequest(
        group_id=member.group, topics=[pb.TopicPartitions(name=TOPIC, partitions=[0, 1])]
    )
    reply = await answer(driver.send(asked), pb.FetchOffsetsResponse)
    found = {
        each.index: (each.offset, each.leader_epoch, each.metadata) for each in reply.topics[0].partitions
    }
    assert found == {0: (1, 7, "m"), 1: (2, -1, "")}


@case("116")
async def nothing_committed_is_minus_one(driver: Driver) -> None:
    assert await fetch(driver, new_group(), 0) == {0: -1}
    member = Member(driver, new_group())
    await member.commit({0: 1})
    assert await fetch(driver, member.group, 5) == {5: -1}
    assert await fetch(driver, member.group, 0, topic="unknown") == {0: -1}


@case("117")
async def all_offsets_are_those_committed(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 1, 3: 4})
    assert await fetch(driver, member.group) == {0: 1, 3: 4}


@case("118")
async def the_last_commit_counts(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 100})
    await member.commit({0: 50})
    assert await fetch(driver, member.group, 0) == {0: 50}


@case("119b")
async def an_offset_of_an_open_transaction_is_not_seen(driver: Driver) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 1})
    assert await member.txn_commit({0: 2}) == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: 1}
    asked = pb.FetchOffsetsRequest(group_id=member.group, require_stable=True)
    asked.topics.add(name=TOPIC, partitions=[0, 1])
    reply = await answer(driver.send(asked), pb.FetchOffsetsResponse)
    errors = {each.index: each.error_code for each in reply.topics[0].partitions}
    assert errors == {0: pb.UNSTABLE_OFFSET_COMMIT, 1: pb.NONE}


@case("118b")
async def a_commit_may_hold_several_partitions(driver: Driver) -> None:
    group = new_group()
    request = pb.CommitOffsetsRequest(
        group_id=group, generation_id=-1, topics=[topic_offsets({0: 1, 1: 2, 2: 3})]
    )
    reply = await answer(driver.send(request), pb.CommitOffsetsResponse)
    assert [(each.index, each.error_code) for each in reply.topics[0].partitions] == [(0, 0), (1, 0), (2, 0)]
