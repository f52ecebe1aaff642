"""Records in transit while their partition is revoked: events and records come on two streams, and overtake each other."""

import threading
from collections.abc import Callable

import pytest
from typing_extensions import override

import rota
from rota.clocks import system_clocks
from rota.connection import background
from rota.handlers.runner import Runner
from rota.testing import Group
from rota.testing.transport import MemoryTransport
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from tests.sdk.consumer.test_handlers import P0, WITHIN_S, AnyRecord, running_until


class Overtaken(Runner):
    """Keeps records in transit until `arrive`."""

    in_transit: list[pb.DeliverResponse]
    sent: threading.Event

    @override
    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        if self.sent.is_set():
            await super().on_records(delivery)
        else:
            self.in_transit.append(delivery)
            self.sent.set()

    async def arrive(self) -> None:
        for delivery in self.in_transit:
            await super().on_records(delivery)


def overtaken(group: Group) -> tuple[Overtaken, list[bytes]]:
    """A runner whose first records are in transit, and the values that its handler sees."""
    seen: list[bytes] = []

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        seen.append(record.value)

    async def build() -> Overtaken:
        return Overtaken([work], MemoryTransport(group._sidecar), "test", system_clocks().monotonic_s)

    runner = background().run(build())
    runner.in_transit, runner.sent = [], threading.Event()
    return runner, seen


@pytest.mark.parametrize("take", [Group.take_away, Group.lose])
def test_a_record_that_arrives_after_its_partition_was_given_up_is_not_begun(
    take: Callable[[Group, rota.TopicPartition], None],
) -> None:
    with Group(partitions=1) as group:
        group.send("orders", b"a")
        runner, seen = overtaken(group)
        acknowledged = threading.Event()
        passed_on = group._sidecar.acknowledge

        def acknowledge(event_id: int) -> None:
            passed_on(event_id)
            if runner.sent.is_set():
                acknowledged.set()

        group._sidecar.acknowledge = acknowledge  # type: ignore[method-assign]
        running = running_until(runner.sent, runner)
        take(group, P0)
        assert acknowledged.wait(WITHIN_S)
        assert P0 not in group._sidecar.assigned
        background().run(runner.arrive())
        background().loop.call_soon_threadsafe(runner.stop)
        running.join(WITHIN_S)
        assert seen == [], "another member has the partition, and processes the record"


def test_a_partition_that_comes_back_is_processed_in_its_new_tenure_only() -> None:
    with Group(partitions=1) as group:
        group.send("orders", b"a")
        runner, seen = overtaken(group)
        running = running_until(runner.sent, runner)
        runner.is_done = lambda: group.committed == {P0: 2}
        group.take_away(P0)
        group.send("orders", b"b")
        group.give_back(P0)
        background().run(runner.arrive())
        running.join(WITHIN_S)
        assert seen == [b"a", b"b"]
