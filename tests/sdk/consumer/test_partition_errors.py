"""A consumer raises why it gets no records of a partition, where Kafka's raises: once per occurrence; the others go on."""

import asyncio
from collections.abc import Iterator

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.clocks import system_clocks
from rota.consumer import messages
from rota.consumer.core import Core, Rebalance, RebalanceKind, Tenure
from rota.consumer.engine import Engine
from rota.consumer.listeners import Partitions
from rota.consumer.options import Options
from rota.testing import Group
from rota.testing.transport import MemoryTransport
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from tests.sdk.consumer.reading import P0, P1, SOON_MS, WAIT_MS, fill, offsets, read


@pytest.fixture
def group() -> Iterator[Group]:
    with Group(partitions=2, auto_offset_reset="none") as made:
        yield made


def test_a_poll_raises_where_nothing_is_committed_and_nothing_is_set(group: Group) -> None:
    fill(group, 3)
    consumer = group.consumer("orders")
    raised: list[tuple[str, int]] = []
    for _ in range(2):
        with pytest.raises(errors.NoOffsetForPartition) as info:
            consumer.poll(timeout_ms=WAIT_MS)
        raised += info.value.partitions
        assert "seek" in str(info.value)
    assert sorted(raised) == [P0, P1]
    assert consumer.poll(timeout_ms=SOON_MS) == {}, "it is raised once"
    consumer.seek(P0, 1)
    assert offsets(read(consumer, 2)) == [1, 2]


def test_the_other_partitions_go_on_after_the_exception(group: Group) -> None:
    fill(group, 3)
    consumer = group.consumer()
    group.take_away(P0, P1)
    consumer.subscribe("orders")
    group._sidecar.partition(P0).committed = (0, "")
    group.give_back(P0, P1)
    with pytest.raises(errors.NoOffsetForPartition, match=r"^orders\[1\]: nothing is committed"):
        consumer.poll(timeout_ms=WAIT_MS)
    assert offsets(read(consumer, 3)) == [0, 1, 2]


def test_iteration_goes_on_after_the_exception(group: Group) -> None:
    fill(group, 2)
    consumer = group.consumer(consumer_timeout_ms=WAIT_MS)
    consumer.assign([P0])
    with pytest.raises(errors.NoOffsetForPartition):
        next(consumer)
    consumer.seek_to_beginning(P0)
    assert next(consumer).offset == 0


def test_an_offset_that_has_expired_raises_once_per_occurrence(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer(enable_auto_commit=False)
    consumer.assign([P0])
    consumer.seek(P0, 0)
    assert offsets(read(consumer, 5)) == [0, 1, 2, 3, 4]
    group.delete_records("orders", 0, 3)
    for _ in range(2):
        consumer.seek(P0, 1)
        with pytest.raises(errors.OffsetOutOfRange) as info:
            consumer.poll(timeout_ms=WAIT_MS)
        assert info.value.partitions == (P0,)
        assert consumer.poll(timeout_ms=SOON_MS) == {}
    consumer.seek_to_beginning(P0)
    assert offsets(read(consumer, 2)) == [3, 4]
    assert consumer.beginning_offsets([P0]) == {P0: 3}


def test_a_commit_of_an_offset_settles_it(group: Group) -> None:
    fill(group, 3)
    consumer = group.consumer(enable_auto_commit=False)
    consumer.assign([P0])
    with pytest.raises(errors.NoOffsetForPartition):
        consumer.poll(timeout_ms=WAIT_MS)
    consumer.commit({P0: 2})
    assert offsets(read(consumer, 1)) == [2]


def test_a_partition_that_the_listener_seeks_raises_no_error(group: Group) -> None:
    class Rewind(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            consumer.seek_to_beginning(*partitions)

    fill(group, 3)
    consumer = group.consumer()
    consumer.subscribe("orders", listener=Rewind())
    assert offsets(read(consumer, 3)) == [0, 1, 2]


@pytest.mark.parametrize(("reset", "first"), [("earliest", 3), ("latest", 5)])
def test_a_group_in_memory_begins_where_it_is_set(reset: str, first: int) -> None:
    with Group(partitions=1, auto_offset_reset=reset) as group:  # type: ignore[arg-type]
        fill(group, 5)
        group.delete_records("orders", 0, 3)
        consumer = group.consumer()
        consumer.assign([P0])
        assert consumer.position(P0) == first, "nothing is committed"
        consumer.seek(P0, 0)
        assert consumer.position(P0) in (0, first)
        fill(group, 1)
        assert offsets(read(consumer, 1))[0] == first, "what was sought is not there"


def test_an_asynchronous_consumer_raises_as_well(group: Group) -> None:
    fill(group, 1)

    async def story() -> None:
        async with group.async_consumer() as consumer:
            await consumer.assign([P0])
            with pytest.raises(errors.NoOffsetForPartition):
                await consumer.poll(timeout_ms=WAIT_MS)

    asyncio.run(story())


# Of the core


def core_with(*partitions: rota.TopicPartition, delivery_epoch: int) -> Core:
    core = Core(100)
    event = Rebalance(1, RebalanceKind.ASSIGNED, partitions, Tenure(1, "me", 1, 1))
    core.on_rebalance(event)
    core.begin_rebalance(event, {})
    core.end_rebalance(event)
    for each in partitions:
        core.assigned[each].delivery_epoch = delivery_epoch
    return core


def failing(
    *partitions: rota.TopicPartition, delivery_epoch: int, kind: int = 1
) -> pb.AttachResponse.PartitionError:
    named = [pb.TopicPartition(topic=each.topic, partition=each.partition) for each in partitions]
    return pb.AttachResponse.PartitionError(
        kind=pb.PartitionErrorKind.ValueType(kind),
        partitions=named,
        message="seek",
        delivery_epoch=delivery_epoch,
    )


def test_what_was_sought_later_is_no_failure_any_more() -> None:
    core = core_with(P0, delivery_epoch=4)
    core.on_fetch_failure(messages.failure_of(failing(P0, delivery_epoch=7)))
    core.on_seek(P0, 0, 7)
    assert core.next_error() is None
    core.on_fetch_failure(messages.failure_of(failing(P0, delivery_epoch=9)))
    assert isinstance(core.next_error(), errors.NoOffsetForPartition)
    assert core.next_error() is None


def test_what_is_gone_is_no_failure_any_more() -> None:
    core = core_with(P0, delivery_epoch=4)
    core.on_fetch_failure(messages.failure_of(failing(P1, delivery_epoch=7)))
    assert core.next_error() is None
    core.on_fetch_failure(messages.failure_of(failing(P0, delivery_epoch=7)))
    core.on_disconnect("the sidecar is away")
    assert core.next_error() is None


def test_every_kind_has_its_exception() -> None:
    named = {kind for kind in pb.PartitionErrorKind.values() if kind}
    assert messages.FAILURES.keys() == named
    unknown = messages.failure_of(failing(P0, delivery_epoch=1, kind=99)).error
    assert str(unknown) == "orders[0]: seek"


def test_a_message_names_no_more_than_twenty_partitions() -> None:
    many = [rota.TopicPartition("orders", number) for number in range(25)]
    said = str(messages.failure_of(failing(*many, delivery_epoch=1)).error)
    assert said.endswith("orders[19] and 5 more: seek")


def test_what_kafka_does_not_raise_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        with Group() as group:
            engine = Engine(
                Options(sidecar="memory"), MemoryTransport(group._sidecar), system_clocks().monotonic_s
            )
            await engine.on_partition_error(
                failing(P0, delivery_epoch=1, kind=pb.PARTITION_ERROR_KIND_UNKNOWN_TOPIC)
            )
            assert engine.core.next_error() is None

    asyncio.run(story())
    assert [(each.levelname, each.message) for each in caplog.records] == [("WARNING", "orders[0]: seek")]
