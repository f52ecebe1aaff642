"""A consumer and its sidecar on the wire: how it attaches, loses it, comes back and goes."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.connection import background
from rota.consumer import messages
from rota.consumer.listeners import Partitions
from rota.consumer.transport import GrpcTransport, SidecarListener
from rota.testing import unary_calls
from rota.testing.partition import StoredRecord
from rota.testing.sidecar import MemorySidecar
from rota_proto.coordinator.v1.coordinator_pb2 import UNKNOWN_SERVER_ERROR
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from tests.sdk.consumer.fake_sidecar import FakeSidecar, Withheld, serving

pytestmark = pytest.mark.process

P0 = rota.TopicPartition("orders", 0)
WAIT_MS = 10_000
Served = tuple[str, FakeSidecar]


@pytest.fixture
def memory() -> MemorySidecar:
    made = MemorySidecar("billing")
    made.make_topic("orders", 1)
    return made


@pytest.fixture
def served(tmp_path: Path, memory: MemorySidecar) -> Iterator[Served]:
    with serving(tmp_path, memory) as found:
        yield found


def fill(memory: MemorySidecar, count: int, size: int = 1) -> None:
    for number in range(count):
        memory.append(P0, StoredRecord(b"%d" % number, b"x" * size, 0, ()))


def read(consumer: rota.Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        polled = consumer.poll(timeout_ms=WAIT_MS)
        assert polled, f"{len(offsets)} of {count} records came"
        offsets += [record.offset for records in polled.values() for record in records]
    return offsets


def poll_until(consumer: rota.Consumer, holds: Callable[[], bool]) -> None:
    for _ in range(100):
        if holds():
            return
        consumer.poll(timeout_ms=100)
    pytest.fail("it did not come about")


def poll_on(consumer: rota.Consumer) -> None:
    for _ in range(100):
        consumer.poll(timeout_ms=100)


class Listener(rota.RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.calls.append("assigned")

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self.calls.append("lost")


def test_records_come_and_are_committed_and_the_goodbye_is_clean(
    served: Served, memory: MemorySidecar
) -> None:
    address, sidecar = served
    fill(memory, 1_000)
    with rota.Consumer("orders", sidecar=address) as consumer:
        assert read(consumer, 1_000) == list(range(1_000))
    assert memory.committed() == {P0: 1_000}
    assert sidecar.clean == [True]


def test_what_a_commit_without_an_answer_has_said_is_not_said_again(
    served: Served, memory: MemorySidecar
) -> None:
    address, sidecar = served
    fill(memory, 4)
    withheld = sidecar.withheld["Commit"] = Withheld()
    settings: Any = {"sidecar": address, "enable_auto_commit": False, "max_poll_records": 2}
    with rota.Consumer("orders", **settings) as consumer:
        assert read(consumer, 2) == [0, 1]
        consumer.commit_async()
        assert withheld.came.wait(WAIT_MS / 1000)
        assert read(consumer, 2) == [2, 3]
        withheld.release()


def test_what_a_commit_that_failed_was_to_say_is_said_all_the_same(
    served: Served, memory: MemorySidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = served
    fill(memory, 2)
    ask = unary_calls.answer

    def failing(sidecar: MemorySidecar, call: str, request: Any) -> Any:  # noqa: ANN401  one of many calls
        refused = pb.CommitResponse(error_code=UNKNOWN_SERVER_ERROR)
        return refused if call == "Commit" else ask(sidecar, call, request)

    monkeypatch.setattr(unary_calls, "answer", failing)
    failures: list[object] = []
    with rota.Consumer("orders", sidecar=address, enable_auto_commit=False) as consumer:
        assert read(consumer, 2) == [0, 1]
        consumer.commit_async(callback=lambda _, error: failures.append(error))
        while not failures or not memory.partition(P0).is_done:
            consumer.poll(timeout_ms=100)


def test_the_sidecar_is_found_by_its_variable(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SIDECAR", served[0])
    with rota.Consumer("orders") as consumer:
        assert consumer.partitions_for_topic("orders") == {0}
        assert consumer.topics(timeout_ms=60_000) == {"orders"}


def test_a_consumer_comes_back_to_a_sidecar_that_was_away(
    tmp_path: Path, served: Served, memory: MemorySidecar
) -> None:
    address, sidecar = served
    fill(memory, 4)
    listener = Listener()
    with rota.Consumer(sidecar=address, max_poll_records=2) as consumer:
        consumer.subscribe("orders", listener=listener)
        assert read(consumer, 2) == [0, 1]
        consumer.commit()
        background().run(sidecar.stop())
        # It may have had the others already, and gives them out until it hears that the sidecar is away.
        poll_until(consumer, lambda: "lost" in listener.calls)
        background().run(sidecar.start(address))
        assert read(consumer, 2) == [2, 3]
        assert listener.calls == ["assigned", "lost", "assigned"]
    assert sidecar.clean == [False, True]


def test_a_second_application_is_refused_because_of_the_first(served: Served) -> None:
    address, _ = served
    with rota.Consumer("orders", sidecar=address) as first:
        first.poll(timeout_ms=100)
        second = rota.Consumer("orders", sidecar=address, default_api_timeout_ms=300)
        with pytest.raises(errors.Disconnected, match="there is an application already"):
            poll_on(second)
        second.close()


def test_no_sidecar_is_an_error_once_there_was_time_to_come(tmp_path: Path) -> None:
    consumer = rota.Consumer("orders", sidecar=f"unix:{tmp_path / 'nobody'}", default_api_timeout_ms=200)
    with pytest.raises(errors.Disconnected, match="cannot be reached"):
        poll_on(consumer)
    consumer.close()


def test_the_sidecar_of_another_group_is_refused(served: Served) -> None:
    message = "member of group 'billing', but group_id is 'other'"
    consumer = rota.Consumer("orders", sidecar=served[0], group_id="other")
    with pytest.raises(errors.SidecarFailed, match=message):
        consumer.poll(timeout_ms=WAIT_MS)
    consumer.close()


def test_a_consumer_refuses_a_sidecar_that_delivers_in_no_order(
    served: Served, memory: MemorySidecar
) -> None:
    memory.ordering = pb.ORDERING_UNORDERED
    consumer = rota.Consumer("orders", sidecar=served[0])
    with pytest.raises(errors.SidecarFailed, match="needs partition order"):
        consumer.poll(timeout_ms=WAIT_MS)
    consumer.close()


def test_large_records_wait_at_the_sidecar_until_there_is_room(served: Served, memory: MemorySidecar) -> None:
    fill(memory, 50, size=100_000)
    with rota.Consumer("orders", sidecar=served[0], buffer_memory=300_000, max_poll_records=1) as consumer:
        assert read(consumer, 1) == [0]
        # One message may go beyond the limit, and nothing after it.
        assert consumer._engine.core.buffer.size <= 300_000 + (1 << 20) + 100_100
        assert read(consumer, 49) == list(range(1, 50))


def test_an_asynchronous_consumer_does_the_same(served: Served, memory: MemorySidecar) -> None:
    fill(memory, 5)
    calls: list[str] = []

    class AsyncListener:
        async def on_partitions_assigned(self, partitions: Partitions) -> None:
            await asyncio.sleep(0)
            calls.append("assigned")

        def on_partitions_revoked(self, partitions: Partitions) -> None:
            calls.append("revoked")

        def on_partitions_lost(self, partitions: Partitions) -> None:
            calls.append("lost")

    async def use() -> list[int]:
        seen: list[int] = []
        async with rota.AsyncConsumer(
            "orders", listener=AsyncListener(), sidecar=served[0], consumer_timeout_ms=500
        ) as consumer:
            async for record in consumer:
                seen.append(record.offset)
            await consumer.seek(P0, 3)
            assert await consumer.position(P0) == 3
            polled: dict[rota.TopicPartition, list[rota.Record[Any, Any]]] = {}
            while not polled:
                polled = await consumer.poll(timeout_ms=WAIT_MS)
            seen += [record.offset for record in polled[P0]]
            await consumer.commit()
            assert await consumer.committed(P0) == 5
        return seen

    assert asyncio.run(use()) == [0, 1, 2, 3, 4, 3, 4]
    assert calls == ["assigned", "revoked"]


def test_a_poll_that_is_cancelled_loses_no_record(served: Served, memory: MemorySidecar) -> None:
    async def use() -> list[int]:
        async with rota.AsyncConsumer("orders", sidecar=served[0]) as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(timeout_ms=WAIT_MS), 0.2)
            fill(memory, 3)
            seen: list[int] = []
            while len(seen) < 3:
                polled = await consumer.poll(timeout_ms=WAIT_MS)
                seen += [record.offset for records in polled.values() for record in records]
            return seen

    assert asyncio.run(use()) == [0, 1, 2]


def test_consumers_of_several_threads_do_not_meet(tmp_path: Path) -> None:
    seen: dict[str, list[int]] = {}

    def consume(name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        memory = MemorySidecar(name)
        memory.make_topic("orders", 1)
        fill(memory, 100)
        with serving(folder, memory) as (address, _), rota.Consumer("orders", sidecar=address) as consumer:
            seen[name] = read(consumer, 100)

    threads = [threading.Thread(target=consume, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {name: list(range(100)) for name in "abc"}


class Deaf(SidecarListener):
    """A listener that ignores all events."""

    @override
    async def on_event(self, event: pb.AttachResponse.Event) -> None:
        """Ignore the event."""

    @override
    async def on_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        """The same."""

    @override
    async def on_committed(self, committed: pb.AttachResponse.Committed) -> None:
        """The same."""

    @override
    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        """The same."""


def test_whoever_gives_up_sending_does_not_end_the_attachment(served: Served) -> None:
    address, sidecar = served

    async def story() -> None:
        link = GrpcTransport(address)
        attachment = await link.attach(pb.AttachRequest.Hello(client_id="billing"), Deaf())
        sending = asyncio.create_task(attachment.send(messages.credit(1)))
        # From here on it is being written.
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        await attachment.send(messages.credit(1))
        await attachment.detach()
        await link.close()

    background().run(story(), WAIT_MS / 1000)
    assert sidecar.clean == [True]


def test_a_seek_of_what_is_lost_waits_for_the_event_that_says_so(
    served: Served, memory: MemorySidecar
) -> None:
    address, sidecar = served
    fill(memory, 4)
    with rota.Consumer("orders", sidecar=address, enable_auto_commit=False) as consumer:
        assert read(consumer, 4) == [0, 1, 2, 3]
        wire, events = sidecar.wire, list[pb.AttachResponse.Event]()
        assert wire is not None
        ask, send_event, answered = unary_calls.answer, wire.send_event, threading.Event()

        def answer(sidecar: MemorySidecar, call: str, request: Any) -> Any:  # noqa: ANN401  one of many calls
            reply = ask(sidecar, call, request)
            if call == "Seek":
                assert reply.error_code
                answered.set()
            return reply

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(unary_calls, "answer", answer)
            patch.setattr(wire, "send_event", events.append)
            memory.lose([P0], "the session has ended")
            seeking = threading.Thread(target=consumer.seek, args=(P0, 1), daemon=True)
            seeking.start()
            assert answered.wait(WAIT_MS / 1000)
        for event in events:
            send_event(event)
        seeking.join(WAIT_MS / 1000)
        assert not seeking.is_alive()
        assert consumer.position(P0) == 1
        assert consumer.poll(timeout_ms=100) == {}
        assert consumer.assignment() == set()
