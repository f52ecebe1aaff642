"""
Calls of the sidecar that need no attachment, for two processes of a query: the source's runner plans batches with them, the
driver's Python looks whether a plan still counts, and commits.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Self

import grpc

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from rota_spark.core.plan import Partition

# Seconds in which the sidecar answers what it knows, or asks its engine once.
WITHIN_S = 10.0
# Seconds in which a commit is durable, over a restart of the coordinator.
COMMIT_S = 300.0
# The engine or the sidecar cannot be asked at this moment.
AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class SidecarAway(Exception):
    """The sidecar, or its engine, does not answer now: the next attempt may succeed."""


class NotCommitted(Exception):
    """The sidecar refused a commit; the message says why."""


class SidecarCalls:
    """A connection to one sidecar; used by several threads."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self._stub = ConsumerStub(self.channel)

    def assignment(self) -> tuple[frozenset[Partition], pb.Tenure]:
        """Return the member's partitions that are not paused, and the tenure of its present generation."""
        found = self._ask(self._stub.Assignment, pb.AssignmentRequest())
        return frozenset(_names(found.partitions)) - frozenset(_names(found.paused)), found.tenure

    def positions(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the next offset to read; partitions that are not this member's, and unknown positions, are left out."""
        found = self._ask(self._stub.Position, pb.PositionRequest(partitions=_messages(partitions)))
        return _offsets(found.offsets)

    def are_known(self, partitions: Collection[Partition]) -> bool:
        """Return False while the sidecar looks up one of these positions; a partition that is not this member's is known."""
        found = self._ask(self._stub.Position, pb.PositionRequest(partitions=_messages(partitions)))
        return all(each.offset >= 0 or each.error_code != codes.NONE for each in found.offsets)

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the end offsets; partitions whose topic is gone are left out."""
        found = self._ask(self._stub.EndOffsets, pb.EndOffsetsRequest(partitions=_messages(partitions)))
        return _offsets(found.offsets)

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Set positions. Raises NotCommitted if a partition is no longer this member's; the positions of the others are set."""
        answer = self._ask(self._stub.Seek, pb.SeekRequest(offsets=_messages_of(offsets)))
        if answer.error_code != codes.NONE:
            raise NotCommitted(answer.message or codes.ErrorCode.Name(answer.error_code))

    def commit(self, offsets: Mapping[Partition, int], tenure: int) -> None:
        """Commit durably under the number of a tenure. Raises NotCommitted, SidecarAway."""
        request = pb.CommitRequest(offsets=_messages_of(offsets), tenure=pb.Tenure(number=tenure))
        answer = self._ask(self._stub.Commit, request, COMMIT_S)
        if answer.error_code != codes.NONE:
            raise NotCommitted(answer.message or codes.ErrorCode.Name(answer.error_code))

    def _ask(self, call, request, within_s: float = WITHIN_S):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        try:
            return call(request, timeout=within_s)
        except grpc.RpcError as error:
            if error.code() in AWAY:
                raise SidecarAway(error.details()) from error
            raise

    def close(self) -> None:
        """Close the connection."""
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def partition_message(partition: Partition) -> pb.TopicPartition:
    """Return the contract's name of a partition."""
    return pb.TopicPartition(topic=partition[0], partition=partition[1])


def _messages(partitions: Iterable[Partition]) -> list[pb.TopicPartition]:
    return [partition_message(each) for each in sorted(partitions)]


def _messages_of(offsets: Mapping[Partition, int]) -> list[pb.PartitionOffset]:
    return [
        pb.PartitionOffset(partition=partition_message(each), offset=offset)
        for each, offset in sorted(offsets.items())
    ]


def _names(partitions: Iterable[pb.TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]


def _offsets(found: Iterable[pb.PartitionOffset]) -> dict[Partition, int]:
    return {
        (each.partition.topic, each.partition.partition): each.offset
        for each in found
        if each.error_code == codes.NONE and each.offset >= 0
    }
