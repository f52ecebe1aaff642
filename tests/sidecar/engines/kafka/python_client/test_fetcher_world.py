"""
The core of the fetches in a drawn world: leaders move, brokers and descriptions fail, answers come in any order.

Every record is delivered once and in order, no partition is in two requests, and memory stays within its limits.
"""

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.delivery.events import Read
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.metadata import NO_LEADER, Described, Leader, Metadata
from rota_sidecar.engines.kafka.python_client.fetcher import Fetcher, Part, PartitionFetch, Plan
from rota_sidecar.engines.kafka.python_client.record_set import Decoded
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.kafka.tracks import AHEAD_BYTES_MAX, AHEAD_BYTES_TOTAL_MAX
from rota_sidecar.engines.records import FetchRequest

TOPIC, TOPIC_ID = "orders", b"o" * 16
PARTITIONS, END = 4, 300
NODES = (1, 2, 3)
BATCH_BYTES_MAX = AHEAD_BYTES_MAX
STEPS_MAX = 20_000
NOT_LEADER_OR_FOLLOWER = 6
TRANSIENT = (pb.OFFSET_NOT_AVAILABLE, pb.KAFKA_STORAGE_ERROR, pb.UNKNOWN_TOPIC_ID, -1)


class World:
    """A cluster, and one reader that requests all records of each partition."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.fetcher = Fetcher()
        self.now_ms = 0
        self.epochs = 0
        self.leaders = [Leader(NODES[0], 0)] * PARTITIONS
        # Faults become rarer, so that every run ends.
        self.faults = 400
        self.plans: list[Plan] = []
        self.descriptions: list[list[str]] = []
        self.taken = [0] * PARTITIONS
        self.delivery_epochs = [0] * PARTITIONS
        self.is_requested = [False] * PARTITIONS

    def has_fault(self) -> bool:
        if not self.faults or self.drawn.random() < 0.7:
            return False
        self.faults -= 1
        return True

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            self.request, self.pass_results, self.describe, self.answer_description, self.send, self.answer, self.wait,
            self.move_leader,
        ]  # fmt: skip
        for _ in range(STEPS_MAX):
            if self.taken == [END] * PARTITIONS:
                return
            self.drawn.choice(steps)()
        raise AssertionError(f"the reader is stuck at {self.taken}")

    # The reader

    def request(self) -> None:
        number = self.drawn.randrange(PARTITIONS)
        if self.taken[number] >= END or self.is_requested[number]:
            return
        if not self.delivery_epochs[number] or self.has_fault():
            # Another delivery epoch goes on where the one before stopped.
            if self.delivery_epochs[number] and self.drawn.random() < 0.5:
                self.fetcher.stop(self.delivery_epochs[number])
            self.epochs += 1
            self.delivery_epochs[number] = self.epochs
        self.is_requested[number] = True
        request = FetchRequest(
            self.delivery_epochs[number],
            Partition(TOPIC, number),
            self.taken[number],
            self.drawn.choice([1, 1 << 20]),
        )
        self.fetcher.set_request(request)

    def pass_results(self) -> None:
        for result in self.fetcher.results():
            assert isinstance(result, Read), result
            number = self.delivery_epochs.index(result.delivery_epoch)
            assert self.is_requested[number]
            self.is_requested[number] = False
            for batch in result.batches:
                assert batch.first == self.taken[number]
                self.taken[number] = batch.end
            assert result.next_offset == self.taken[number]
            assert 0 <= result.next_offset <= result.bounds.end <= END

    # The cluster

    def move_leader(self) -> None:
        if self.has_fault():
            number = self.drawn.randrange(PARTITIONS)
            node = self.drawn.choice((*NODES, NO_LEADER))
            self.leaders[number] = Leader(node, self.leaders[number].epoch + 1)
        elif not self.faults:
            self.leaders = [
                Leader(NODES[0], each.epoch + 1) if each.node == NO_LEADER else each for each in self.leaders
            ]

    def wait(self) -> None:
        self.now_ms += self.drawn.choice([1, 100, 500])

    def describe(self) -> None:
        names = list(self.fetcher.topics_to_describe(self.now_ms))
        if names:
            self.descriptions.append(names)

    def answer_description(self) -> None:
        if not self.descriptions:
            return
        names = self.descriptions.pop(self.drawn.randrange(len(self.descriptions)))
        if self.has_fault():
            self.fetcher.describe_failed(names, self.now_ms + 300)
            return
        topic = Topic(PARTITIONS, (), TOPIC_ID)
        addresses = {node: Address(f"kafka-{node}", 9092) for node in NODES}
        described = Described(TOPIC, 0, is_internal=False, topic=topic, leaders=list(self.leaders))
        self.fetcher.described(names, Metadata((described,), "", addresses), self.now_ms)

    def send(self) -> None:
        for node, fetches in self.fetcher.ready(self.now_ms).items():
            self.plans.append(self.fetcher.begin(node, fetches))
        in_flight = [fetch for plan in self.plans for fetch in plan.fetches]
        assert len(in_flight) == len(set(in_flight))
        held = [fetch.track.ahead_bytes for fetch in in_flight]
        assert sum(held) <= AHEAD_BYTES_TOTAL_MAX + PARTITIONS * BATCH_BYTES_MAX

    def answer(self) -> None:
        if not self.plans:
            return
        plan = self.plans.pop(self.drawn.randrange(len(self.plans)))
        if self.has_fault():
            self.fetcher.fetch_failed(plan, self.now_ms + 300)
            return
        parts = {
            (TOPIC_ID, fetch.partition.number): self.part(plan.node, fetch, offset)
            for fetch, offset in zip(plan.fetches, plan.offsets, strict=True)
            if not self.has_fault()
        }
        self.fetcher.fetched(plan, parts, self.now_ms)

    def part(self, node: int, fetch: PartitionFetch, offset: int) -> Part:
        leader = self.leaders[fetch.partition.number]
        if leader.node != node:
            return Part(NOT_LEADER_OR_FOLLOWER, -1, -1)
        if leader.epoch != fetch.leader_epoch:
            return Part(pb.FENCED_LEADER_EPOCH, -1, -1)
        if self.has_fault():
            return Part(self.drawn.choice(TRANSIENT), -1, -1)
        if self.has_fault():
            return Part(0, 0, END)
        batches, at = list[Batch](), offset
        for _ in range(self.drawn.randrange(3)):
            count = min(self.drawn.randrange(1, 30), END - at)
            if count > 0:
                batches.append(Batch(at, count, self.drawn.randrange(1, BATCH_BYTES_MAX // 3), None))
                at += count
        return Part(0, 0, END, decoded=Decoded(batches, at, leader.epoch))


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32))
def test_every_record_is_delivered_once_and_in_order(seed: int) -> None:
    World(seed).run()
