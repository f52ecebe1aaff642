"""Between member, deliveries and application: who subscribes, who picks by hand, who is attached; and what breaks."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
import pytest
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from rota_sidecar.application.port import Application, AttachedAlready
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.delivery.driver import DeliveryDriver
from tests.support.coordinator import Coordinator
from tests.support.coordinator import serving as coordinating
from tests.support.records import committed, fill
from tests.support.sidecar import Deliverer, delivering

if TYPE_CHECKING:
    from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerAsyncStub

WITHIN_S = 60
RECORDS = 5


class Somebody(Application):
    """An application that remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[do.AssignmentEvent] = []

    @override
    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        self.events.append(event)

    @override
    def report(self, error: do.PartitionError) -> None:
        raise AssertionError("no partition stands still")

    @override
    def on_commit(self, committed: do.OffsetsCommitted) -> None:
        raise AssertionError("it takes no commits")

    @override
    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        raise AssertionError("there are no records")

    @override
    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        raise AssertionError("it said nothing")

    @override
    def close(self, reason: str) -> None:
        raise AssertionError("nobody ends it")


def alone(story: Callable[[DeliveryDriver], Coroutine[Any, Any, None]]) -> None:
    """Deliveries without anything beside them."""

    async def run() -> None:
        await story(DeliveryDriver(DeliveryConfig("g"), (), 100))

    asyncio.run(run())


def attach(deliveries: DeliveryDriver, application: Application) -> int:
    return deliveries.attach(application, commits_itself=False, reads_itself=False, takes_many=True)


def test_one_application_is_attached_at_a_time() -> None:
    async def story(deliveries: DeliveryDriver) -> None:
        session = attach(deliveries, Somebody())
        with pytest.raises(AttachedAlready, match="an application is already attached"):
            attach(deliveries, Somebody())
        deliveries.detach(session + 1, clean=True)
        assert deliveries.is_attached, "that was somebody else's"
        deliveries.detach(session, clean=True)
        deliveries.detach(session, clean=False)
        assert attach(deliveries, Somebody()) > session

    alone(story)


def test_what_nobody_expected_ends_it() -> None:
    async def story(deliveries: DeliveryDriver) -> None:
        deliveries.fail(ValueError("who would have thought"))
        with pytest.raises(ValueError, match="who would have thought"):
            await deliveries.run()

    alone(story)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with coordinating(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture
def topic(coordinator: Coordinator, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for each test, with records in both; a group of the same name."""
    name = str(request.node.name).removeprefix("test_")[:60]
    coordinator.make_topic(name, 2)
    fill(coordinator.address, name, 2, RECORDS)
    return name


class Attached:
    """An application that acknowledges everything, and takes records without a verdict."""

    def __init__(self, stub: "ConsumerAsyncStub") -> None:
        self.stub = stub
        self.events: asyncio.Queue[pb.AttachResponse.Event] = asyncio.Queue()
        self.records: asyncio.Queue[pb.PartitionRecords] = asyncio.Queue()
        self._requests: asyncio.Queue[pb.AttachRequest] = asyncio.Queue()
        self._judgements: asyncio.Queue[pb.DeliverRequest] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        hello = pb.AttachRequest.Hello(client_id="test")
        self._requests.put_nowait(pb.AttachRequest(hello=hello))
        stream = self.stub.Attach(out(self._requests))
        first = await anext(aiter(stream))
        self._tasks.append(asyncio.ensure_future(self._receive(stream)))
        session = pb.DeliverRequest.Hello(session=first.attached.session)
        self._judgements.put_nowait(pb.DeliverRequest(hello=session))
        self._judgements.put_nowait(pb.DeliverRequest(credit=pb.DeliverRequest.Credit(records=100)))
        self._tasks.append(asyncio.ensure_future(self._take(self.stub.Deliver(out(self._judgements)))))

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def next(self, kind: "pb.RebalanceEventKind.ValueType") -> pb.AttachResponse.Event:
        """The next event of that kind about any partition."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                event = await self.events.get()
                if event.kind == kind and event.partitions:
                    return event

    async def judge(self, count: int) -> None:
        """Take so many records, and be done with them."""
        async with asyncio.timeout(WITHIN_S):
            while count > 0:
                part = await self.records.get()
                last = part.batches[-1].base_offset + part.batches[-1].count - 1
                judgement = pb.DeliverRequest.Judgement(
                    partition=part.partition,
                    delivery_epoch=part.delivery_epoch,
                    offset=part.first_offset,
                    last_offset=last,
                    verdict=pb.ACK,
                )
                judgements = pb.DeliverRequest.Judgements(judgements=[judgement])
                self._judgements.put_nowait(pb.DeliverRequest(judgements=judgements))
                count -= last - part.first_offset + 1

    async def _receive(self, stream: AsyncIterable[pb.AttachResponse]) -> None:
        async for response in stream:
            event = response.event
            self.events.put_nowait(event)
            if event.kind != pb.REVOKED:
                acknowledge = pb.AttachRequest.Acknowledge(event_id=event.event_id)
                self._requests.put_nowait(pb.AttachRequest(acknowledge=acknowledge))

    async def _take(self, stream: AsyncIterable[pb.DeliverResponse]) -> None:
        async for response in stream:
            for part in response.partitions:
                self.records.put_nowait(part)


async def out(queue: "asyncio.Queue[Any]") -> AsyncIterator[Any]:
    while True:
        yield await queue.get()


def beside(
    folder: Path, coordinator: Coordinator, group: str, story: Callable[[Attached], Coroutine[Any, Any, None]]
) -> None:
    """A story with an application beside a sidecar that subscribes to nothing by itself."""
    sidecar = Deliverer(folder, f"rota://{coordinator.address}", group, ("--commit-interval-ms=100",))

    async def call() -> None:
        async with grpc.aio.insecure_channel(sidecar.address) as channel:
            app = Attached(ConsumerStub(channel))
            await app.begin()
            try:
                await story(app)
            finally:
                app.end()

    with delivering(sidecar):
        assert "no subscription: set --topics" in sidecar.unready_because
        asyncio.run(call())
        assert sidecar.terminate() == 0


def partition(topic: str, number: int) -> pb.TopicPartition:
    return pb.TopicPartition(topic=topic, partition=number)


@pytest.mark.process
def test_an_application_subscribes_unsubscribes_and_subscribes_again(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(app: Attached) -> None:
        await app.stub.Subscribe(pb.SubscribeRequest(topics=[topic]))
        first = await app.next(pb.ASSIGNED)
        await app.judge(2 * RECORDS)
        await app.stub.Subscribe(pb.SubscribeRequest())
        assert len((await app.next(pb.REVOKED)).partitions) == 2
        assert committed(coordinator.address, topic) == {(topic, 0): RECORDS, (topic, 1): RECORDS}
        assert not (await app.stub.Assignment(pb.AssignmentRequest())).partitions
        stored = await app.stub.Committed(pb.CommittedRequest(partitions=[partition(topic, 0)]))
        assert [each.offset for each in stored.offsets] == [RECORDS], "also without a member"
        await app.stub.Subscribe(pb.SubscribeRequest(pattern=f"{topic}.*"))
        second = await app.next(pb.ASSIGNED)
        assert second.tenure.number > first.tenure.number
        assert app.records.empty()

    beside(tmp_path, coordinator, topic, story)


@pytest.mark.process
def test_partitions_picked_by_hand_are_read_and_committed_without_a_group(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story(app: Attached) -> None:
        await app.stub.Assign(pb.AssignRequest(partitions=[partition(topic, 1)]))
        assigned = await app.next(pb.ASSIGNED)
        assert assigned.tenure.generation_id == -1
        await app.judge(RECORDS)
        async with asyncio.timeout(WITHIN_S):
            # The verdicts come on another stream than the commit.
            while committed(coordinator.address, topic) != {(topic, 1): RECORDS}:
                done = await app.stub.Commit(pb.CommitRequest())
                assert done.error_code == codes.NONE
        await app.stub.Assign(pb.AssignRequest(partitions=[partition(topic, 0)]))
        assert [each.partition for each in (await app.next(pb.REVOKED)).partitions] == [1]
        await app.judge(RECORDS)
        await app.stub.Subscribe(pb.SubscribeRequest(topics=[topic]))
        assert [each.partition for each in (await app.next(pb.REVOKED)).partitions] == [0]
        assert len((await app.next(pb.ASSIGNED)).partitions) == 2
        assert committed(coordinator.address, topic) == {(topic, 0): RECORDS, (topic, 1): RECORDS}

    beside(tmp_path, coordinator, topic, story)


@pytest.mark.process
def test_a_topic_is_looked_up_with_its_ends(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    async def story(app: Attached) -> None:
        found = await app.stub.Partitions(pb.PartitionsRequest(topic=topic))
        assert list(found.partitions) == [0, 1]
        none = await app.stub.Partitions(pb.PartitionsRequest(topic=f"no-{topic}"))
        assert none.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
        assert topic in (await app.stub.Topics(pb.TopicsRequest())).topics
        ends = await app.stub.EndOffsets(pb.EndOffsetsRequest(partitions=[partition(topic, 0)]))
        assert [each.offset for each in ends.offsets] == [RECORDS]

    beside(tmp_path, coordinator, topic, story)
