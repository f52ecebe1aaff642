"""
Cases of the reference about offsets beside topics and transactions: unknown topics, deleted topics, the end of
pending offsets.
"""

import asyncio

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import (
    FIRST_PRODUCER,
    KAFKA,
    MORTAL,
    ROTA,
    SECOND_PRODUCER,
    Driver,
    Keeper,
    MortalProducer,
    Producing,
)
from tests.conformance.members import TOPIC, Member, answer, fetch, form, new_group, topic_offsets
from tests.conformance.registry import case

# The core of the groups knows no topics.
KEEPERS = frozenset({ROTA, KAFKA})
APPLIED_WITHIN_S = 10
POLL_S = 0.05
UNKNOWN = "conformance-unknown"


async def stable_error(driver: Producing, group: str, topic: str = "conformance") -> int:
    """Return the error of a fetch that requires stable offsets."""
    asked = pb.FetchOffsetsRequest(group_id=group, require_stable=True)
    asked.topics.add(name=topic, partitions=[0])
    reply = await answer(driver.send(asked), pb.FetchOffsetsResponse)
    return reply.topics[0].partitions[0].error_code


async def until_committed(driver: Driver, group: str, offsets: dict[int, int], topic: str = TOPIC) -> None:
    """Wait until these are the committed offsets: a broker applies the end of a transaction after it has answered."""
    async with asyncio.timeout(APPLIED_WITHIN_S):
        while await fetch(driver, group, *offsets, topic=topic) != offsets:
            await asyncio.sleep(POLL_S)


@case("115", on=KEEPERS)
async def an_unknown_topic_is_refused_alone(driver: Keeper) -> None:
    member = Member(driver, new_group())
    await form(member)
    request = member.commit_request({0: 5})
    request.topics.insert(0, topic_offsets({0: 1, 1: 2}, UNKNOWN))
    reply = await answer(driver.send(request), pb.CommitOffsetsResponse)
    errors = {topic.name: {each.error_code for each in topic.partitions} for topic in reply.topics}
    assert errors == {UNKNOWN: {pb.UNKNOWN_TOPIC_OR_PARTITION}, "conformance": {pb.NONE}}
    assert await fetch(driver, member.group, 0) == {0: 5}


@case("115b", on=KEEPERS)
async def of_unknown_topics_only_that_is_said_even_to_one_who_is_out(driver: Keeper) -> None:
    stranger = Member(driver, new_group(), member_id="stranger", generation=7)
    request = stranger.commit_request()
    request.topics[0].name = UNKNOWN
    reply = await answer(driver.send(request), pb.CommitOffsetsResponse)
    assert [each.error_code for each in reply.topics[0].partitions] == [pb.UNKNOWN_TOPIC_OR_PARTITION]


@case("119")
async def pending_offsets_count_when_their_transaction_is_committed(driver: Producing) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 1})
    assert await member.txn_commit({0: 2}) == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: 1}
    assert await stable_error(driver, member.group) == pb.UNSTABLE_OFFSET_COMMIT
    await driver.end_transaction(member.group, committed=True)
    assert await stable_error(driver, member.group) == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: 2}


@case("119c")
async def pending_offsets_are_dropped_when_their_transaction_is_aborted(driver: Producing) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 1})
    assert await member.txn_commit({0: 2}) == pb.NONE
    await driver.end_transaction(member.group, committed=False)
    assert await stable_error(driver, member.group) == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: 1}


@case("119d")
async def of_two_transactions_the_later_commit_counts(driver: Producing) -> None:
    member = Member(driver, new_group())
    assert await member.txn_commit({0: 11, 1: 11}, FIRST_PRODUCER) == pb.NONE
    assert await member.txn_commit({0: 22, 1: 22}, SECOND_PRODUCER) == pb.NONE
    assert await member.txn_commit({1: 33}, FIRST_PRODUCER) == pb.NONE
    await driver.end_transaction(member.group, FIRST_PRODUCER, committed=True)
    await until_committed(driver, member.group, {0: 11, 1: 33})
    await driver.end_transaction(member.group, SECOND_PRODUCER, committed=True)
    assert await stable_error(driver, member.group) == pb.NONE
    assert await fetch(driver, member.group, 0, 1) == {0: 22, 1: 33}


@case("124", on=KEEPERS)
async def offsets_go_with_their_topic(driver: Keeper) -> None:
    topic = f"conformance-{new_group()}"
    await driver.create_topic(topic)
    member = Member(driver, new_group())
    request = member.commit_request({0: 1})
    request.topics.append(topic_offsets({0: 2}, topic))
    await answer(driver.send(request), pb.CommitOffsetsResponse)
    assert await fetch(driver, member.group, 0, topic=topic) == {0: 2}
    await driver.delete_topic(topic)
    await until_committed(driver, member.group, {0: -1}, topic)
    everything = await answer(
        driver.send(pb.FetchOffsetsRequest(group_id=member.group, all=True)), pb.FetchOffsetsResponse
    )
    assert [each.name for each in everything.topics] == ["conformance"]


@case("119e", MORTAL)
async def the_later_commit_counts_after_a_crash_between_two_ends(driver: MortalProducer) -> None:
    member = Member(driver, new_group())
    assert await member.txn_commit({0: 11, 1: 11}, FIRST_PRODUCER) == pb.NONE
    assert await member.txn_commit({0: 22}, SECOND_PRODUCER) == pb.NONE
    await driver.end_transaction(member.group, FIRST_PRODUCER, committed=True)
    await until_committed(driver, member.group, {0: 11, 1: 11})
    await driver.fail_over(member.group)
    assert await fetch(driver, member.group, 0, 1) == {0: 11, 1: 11}
    await driver.end_transaction(member.group, SECOND_PRODUCER, committed=True)
    assert await stable_error(driver, member.group) == pb.NONE
    assert await fetch(driver, member.group, 0, 1) == {0: 22, 1: 11}


@case("133", MORTAL)
async def pending_offsets_stay_pending_when_their_coordinator_is_lost(driver: MortalProducer) -> None:
    member = Member(driver, new_group())
    await member.commit({0: 1})
    assert await member.txn_commit({0: 2}) == pb.NONE
    await driver.fail_over(member.group)
    assert await fetch(driver, member.group, 0) == {0: 1}
    assert await stable_error(driver, member.group) == pb.UNSTABLE_OFFSET_COMMIT
    await driver.end_transaction(member.group, committed=True)
    assert await stable_error(driver, member.group) == pb.NONE
    assert await fetch(driver, member.group, 0) == {0: 2}
