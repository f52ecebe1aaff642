"""The sidecar's connection to Kafka when brokers are away, die, freeze, or hand groups over: a sentence, and no hang."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topics import KafkaTopics
from rota_sidecar.engines.port import Disconnected, Unreachable
from tests.conformance.kafka import NOT_YET
from tests.kafka.sidecar_group import POLL_S, WITHIN_S, HandMember, member, run
from tests.support.kafka import MORTAL, Kafka, running
from tests.support.kafka.fixtures import StartKafka
from tests.support.ports import free_port

pytestmark = pytest.mark.kafka

SHORT_S = 0.5


async def join_alone(one: HandMember) -> None:
    """A group of one, which is stable."""
    await one.serve()
    assert (await one.join()).error_code == pb.NONE
    assert (await one.sync(**{one.member_id: b""})).error_code == pb.NONE


async def is_served(one: HandMember) -> bool:
    """Return True once its coordinator is found and knows it; for a while the brokers still name the one that died."""
    try:
        error = await one.coordination.find(WITHIN_S) or await one.heartbeat()
    except Unreachable as unreachable:
        if re.match(r".* is the coordinator of group 'group', but connection refused by", str(unreachable)):
            return False
        raise
    assert error in (pb.NONE, *NOT_YET)
    return error == pb.NONE


@pytest.fixture(scope="module")
def mortal() -> Iterator[Kafka]:
    """A broker for those who kill it and start it again; it stands in a rack."""
    with running(settings={**MORTAL, "broker.rack": "here"}) as kafka:
        yield kafka


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            f"127.0.0.1:{free_port()}",
            "connection refused by {}; check the address, and that Kafka is running",
        ),
        ("nobody.invalid:9092", "unknown host nobody.invalid of {} ("),
    ],
)
def test_a_wrong_address_is_said(address: str, said: str) -> None:
    async def find() -> None:
        topics = KafkaTopics(KafkaSettings((address,)))
        async with member(KafkaSettings((address,)), "any") as one:
            with pytest.raises(Unreachable) as unreachable:
                await one.coordination.find(WITHIN_S)
            with pytest.raises(Unreachable) as again:
                await topics.describe(None, WITHIN_S)
        assert str(unreachable.value).startswith(said.format(address))
        assert str(again.value) == str(unreachable.value)

    run(find())


def test_topics_are_described_and_none_is_made_by_asking(kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name, partitions=3)
    unknown = f"{unique_name}-unknown"

    async def describe() -> None:
        topics = KafkaTopics(KafkaSettings((kafka.bootstrap,)))
        found = await topics.describe([unique_name, unknown, "no name"], WITHIN_S)
        assert list(found) == [unique_name]
        assert (found[unique_name].partitions, len(found[unique_name].topic_id)) == (3, 16)
        every = await topics.describe(None, WITHIN_S)
        assert every[unique_name] == found[unique_name]
        assert not [name for name in every if name.startswith("__") or name == unknown]
        assert await topics.describe([], WITHIN_S) == {}
        await topics.close()

    run(describe())


def test_partitions_are_described_with_the_racks_of_their_replicas(mortal: Kafka, unique_name: str) -> None:
    mortal.create_topic(unique_name, partitions=2)

    async def describe() -> None:
        topics = KafkaTopics(KafkaSettings((mortal.bootstrap,)))
        found = await topics.describe([unique_name], WITHIN_S)
        assert found[unique_name].racks == (frozenset({"here"}),) * 2
        await topics.close()

    run(describe())


def test_a_commit_for_an_unknown_topic_is_refused_for_it_alone(kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name)

    async def commit() -> None:
        async with member(KafkaSettings((kafka.bootstrap,)), unique_name, unique_name) as one:
            await join_alone(one)
            offsets = [pb.PartitionOffset(index=0, offset=1, leader_epoch=-1)]
            request = pb.CommitOffsetsRequest(
                group_id=unique_name,
                generation_id=one.generation,
                member_id=one.member_id,
                topics=[pb.TopicOffsets(name=name, partitions=offsets) for name in (unique_name, "unknown")],
            )
            answer = await one.coordination.ask(request, WITHIN_S)
            assert isinstance(answer, pb.CommitOffsetsResponse)
            errors = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
            assert errors == {unique_name: pb.NONE, "unknown": pb.UNKNOWN_TOPIC_OR_PARTITION}
            assert answer.error_code == pb.NONE

    run(commit())


def test_a_broker_dies_while_a_join_waits_and_comes_back(mortal: Kafka, unique_name: str) -> None:
    settings = KafkaSettings((mortal.bootstrap,))

    async def lose() -> None:
        async with member(settings, unique_name) as first, member(settings, unique_name) as second:
            await join_alone(first)
            await second.serve()
            # It waits for the first one, which does not join again.
            joining = asyncio.create_task(second.join())
            while await first.heartbeat() != pb.REBALANCE_IN_PROGRESS:
                await asyncio.sleep(POLL_S)
            mortal.broker(1).kill()
            with pytest.raises(Unreachable, match=f"the connection to Kafka at {mortal.bootstrap} was lost"):
                await joining
            for one in (first, second):
                received = await one.received.get()
                assert isinstance(received, Disconnected)
                assert received.reason.startswith(f"the connection to Kafka at {mortal.bootstrap} was lost;")
                with pytest.raises(Unreachable, match="not connected to the coordinator of group"):
                    await one.heartbeat()
            with pytest.raises(Unreachable, match="connection refused by"):
                await first.coordination.find(WITHIN_S)

            mortal.broker(1).begin_start()
            await asyncio.to_thread(mortal.broker(1).end_start)
            for one in (first, second):
                await one.serve()
                assert one.received.empty()
            # What the group had agreed on before is known to the broker again.
            assert await first.heartbeat() == pb.NONE

    run(lose())


def test_a_frozen_broker_is_given_up_after_the_deadline_and_serves_again(
    mortal: Kafka, unique_name: str
) -> None:
    silence = f"Kafka at {mortal.bootstrap} did not answer within 0.5 s; check that it is running and not overloaded"

    async def freeze() -> None:
        async with member(KafkaSettings((mortal.bootstrap,)), unique_name) as one:
            await join_alone(one)
            os.kill(mortal.broker(1).pid, signal.SIGSTOP)
            try:
                # The second one waits behind the first: it fails with it, and does not wait any longer.
                answers = await asyncio.gather(
                    one.heartbeat(SHORT_S), one.heartbeat(WITHIN_S), return_exceptions=True
                )
                assert [str(answer) for answer in answers] == [silence, silence]
                assert await one.received.get() == Disconnected(silence)
                with pytest.raises(Unreachable, match="did not answer within"):
                    await one.coordination.find(SHORT_S)
            finally:
                os.kill(mortal.broker(1).pid, signal.SIGCONT)
            # A broker that was frozen for longer than its session, two seconds, loads its groups again.
            while not await is_served(one):
                await asyncio.sleep(POLL_S)

    run(freeze())


def test_a_group_is_found_where_it_went_by_any_broker_that_is_left(start_kafka: StartKafka) -> None:
    kafka = start_kafka(3, settings=MORTAL)
    addresses = tuple(broker.address for broker in kafka.brokers)

    async def move() -> None:
        async with member(KafkaSettings(addresses), "group") as one:
            await join_alone(one)
            (victim,) = (
                broker for broker in kafka.brokers if broker.address == str(one.coordination.coordinator)
            )
            victim.kill()
            assert isinstance(await one.received.get(), Disconnected)
            while not await is_served(one):
                await asyncio.sleep(POLL_S)
            assert str(one.coordination.coordinator) != victim.address

    run(move())
