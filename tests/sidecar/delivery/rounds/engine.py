"""Backend interface of the stories: topics, records, and committed offsets of a group. Rota's; Kafka's is in its tests."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import grpc
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.support.coordinator import Coordinator
from tests.support.records import batch, values_in

WITHIN_S = 60
# How long Rota's coordinator lets a partition that goes from one to another in good order be with nobody.
CLEAN_MS = 1_000
# As it is set up by default, but for what it makes the first member of a group wait.
FLAGS = (
    "--group-min-session-timeout-ms=500",
    "--group-initial-rebalance-delay-ms=0",
    "--rebalance-coalesce-ms=250",
)


class Position(NamedTuple):
    """Position of a record in the topic of a story."""

    partition: int
    offset: int


class Engine(Protocol):
    """Used by several threads."""

    # As a sidecar's `--bootstrap-servers`.
    servers: str

    def make_topic(self, name: str, partitions: int) -> None:
        """One that is not there yet."""
        ...

    def produce(self, topic: str, values: Mapping[int, Sequence[str]]) -> Mapping[Position, str]:
        """Append to these partitions; where each value lies, once all are acknowledged."""
        ...

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's committed offsets, by partition."""
        ...

    def values_in(self, topic: str) -> Sequence[str]:
        """All that the first partition holds."""
        ...


class RotaEngine(Engine):
    """One coordinator with its log."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.servers = f"rota://{coordinator.address}"
        self._coordinator = coordinator
        self._channel = grpc.insecure_channel(coordinator.address)

    @override
    def make_topic(self, name: str, partitions: int) -> None:
        self._coordinator.make_topic(name, partitions)

    @override
    def produce(self, topic: str, values: Mapping[int, Sequence[str]]) -> Mapping[Position, str]:
        parts = [
            pb.ProduceRequest.Partition(topic=topic, index=partition, batches=[batch(texts)])
            for partition, texts in values.items()
        ]
        made = LogStub(self._channel).Produce(pb.ProduceRequest(partitions=parts), timeout=WITHIN_S)
        assert all(part.error_code == codes.NONE for part in made.partitions), made
        return {
            Position(part.index, part.base_offset + position): text
            for part in made.partitions
            for position, text in enumerate(values[part.index])
        }

    @override
    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        return committed_at(self._channel, group, topic)

    @override
    def values_in(self, topic: str) -> Sequence[str]:
        return values_in(self._coordinator.address, topic)

    def close(self) -> None:
        """Close the connection; no call follows."""
        self._channel.close()


def committed_at(channel: grpc.Channel, group: str, topic: str) -> Mapping[int, int]:
    """Return the group's committed offsets at Rota's coordinator, by partition."""
    request = codes.FetchOffsetsRequest(group_id=group, all=True)
    found = CoordinatorStub(channel).FetchOffsets(request, timeout=WITHIN_S)
    return {
        each.index: each.offset
        for part in found.topics
        if part.name == topic
        for each in part.partitions
        if each.offset >= 0
    }
