"""The sidecar's unary calls, with values of this package. Retriable errors are retried until the call's timeout."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from rota.connection import retry_until
from rota.consumer import messages
from rota.consumer.metrics import Metrics, metrics_of
from rota.consumer.sidecars import Subscription
from rota.consumer.transport import Transport
from rota.errors import RotaError, UnknownTopicOrPartition
from rota.offsets import UNKNOWN_EPOCH, OffsetAndMetadata, OffsetAndTimestamp
from rota.records import TopicPartition
from rota_proto.coordinator.v1.coordinator_pb2 import COORDINATOR_LOAD_IN_PROGRESS
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

Partitions = Collection[TopicPartition]


class SidecarClient:
    """Client of one sidecar; `open_transport` opens the transport, and starts the sidecar first if necessary."""

    def __init__(
        self, open_transport: Callable[[], Awaitable[Transport]], clock: Callable[[], float]
    ) -> None:
        self._open = open_transport
        self._clock = clock

    async def _ask(self, call: str, request: Any, within_s: float, *, each: bool = False) -> Any:  # noqa: ANN401  one of many calls
        """Call with retries. With `each`, a partition's error in the response counts as the call's error."""
        deadline_s = self._clock() + within_s

        async def once() -> Any:  # noqa: ANN401  as above
            transport = await self._open()
            response = await transport.ask(call, request, deadline_s - self._clock())
            if "error_code" in response.DESCRIPTOR.fields_by_name:
                messages.check(response.error_code, call, getattr(response, "message", ""))
            if each:
                messages.check_each(response.offsets)
            return response

        return await retry_until(once, deadline_s=deadline_s, clock=self._clock)

    async def subscribe(self, subscription: Subscription, within_s: float) -> None:
        """Change the subscription; an empty one leaves the group."""
        request = pb.SubscribeRequest(topics=subscription.topics, pattern=subscription.pattern)
        await self._ask("Subscribe", request, within_s)

    async def assign(self, partitions: Partitions, within_s: float) -> None:
        """Assign partitions outside of the group's assignment."""
        await self._ask("Assign", pb.AssignRequest(partitions=messages.partitions(partitions)), within_s)

    async def seek(self, offsets: Mapping[TopicPartition, int], within_s: float) -> int:
        """Seek; return the last delivery epoch that is void."""
        wanted = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        response: pb.SeekResponse = await self._ask(
            "Seek", pb.SeekRequest(offsets=messages.offsets(wanted)), within_s
        )
        return response.voided_delivery_epoch

    async def pause(self, partitions: Partitions, within_s: float) -> None:
        """Stop the dispatch of records of these partitions."""
        await self._ask("Pause", pb.PauseRequest(partitions=messages.partitions(partitions)), within_s)

    async def resume(self, partitions: Partitions, within_s: float) -> None:
        """Resume the dispatch of these partitions."""
        await self._ask("Resume", pb.ResumeRequest(partitions=messages.partitions(partitions)), within_s)

    async def positions(self, partitions: Partitions, within_s: float) -> Mapping[TopicPartition, int]:
        """Fetch the offset of each partition's first record without a verdict; unknown ones are left out."""
        response: pb.PositionResponse = await self._ask(
            "Position", pb.PositionRequest(partitions=messages.partitions(partitions)), within_s
        )
        return {
            messages.partition_of(each.partition): each.offset
            for each in response.offsets
            if each.offset >= 0 and not each.error_code
        }

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], tenure: int, within_s: float
    ) -> RotaError | None:
        """
        Commit durably in a tenure; return the first error of a partition. The sidecar retries retriable errors.

        A successful commit is also the verdict on all records before the offsets. Raises if the sidecar did not take the offsets.
        """
        request = pb.CommitRequest(offsets=messages.offsets(offsets), tenure=pb.Tenure(number=tenure))
        transport = await self._open()
        response: pb.CommitResponse = await transport.ask("Commit", request, within_s)
        if not response.offsets or response.error_code == COORDINATOR_LOAD_IN_PROGRESS:
            messages.check(response.error_code, "the commit", response.message)
        try:
            messages.check_each(response.offsets, response.message)
        except RotaError as refused:
            return refused
        return None

    async def committed(
        self, partitions: Partitions, within_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Fetch committed offsets; partitions without a commit are left out."""
        response: pb.CommittedResponse = await self._ask(
            "Committed", pb.CommittedRequest(partitions=messages.partitions(partitions)), within_s, each=True
        )
        return {
            messages.partition_of(each.partition): OffsetAndMetadata(each.offset, each.metadata, _epoch(each))
            for each in response.offsets
            if each.offset >= 0
        }

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int], within_s: float
    ) -> Mapping[TopicPartition, OffsetAndTimestamp]:
        """Look up the first records at or after timestamps; partitions without one are left out."""
        request = pb.OffsetsForTimesRequest(
            times=[
                pb.OffsetsForTimesRequest.Time(
                    partition=pb.TopicPartition(topic=topic, partition=partition), timestamp_ms=time
                )
                for (topic, partition), time in times.items()
            ]
        )
        response: pb.OffsetsForTimesResponse = await self._ask(
            "OffsetsForTimes", request, within_s, each=True
        )
        return {
            messages.partition_of(each.partition): OffsetAndTimestamp(
                each.offset, each.timestamp_ms, _epoch(each)
            )
            for each in response.offsets
            if each.offset >= 0
        }

    async def beginnings(self, partitions: Partitions, within_s: float) -> Mapping[TopicPartition, int]:
        """Fetch the beginning offsets."""
        request = pb.BeginningOffsetsRequest(partitions=messages.partitions(partitions))
        response: pb.BeginningOffsetsResponse = await self._ask(
            "BeginningOffsets", request, within_s, each=True
        )
        return _bounds(response.offsets)

    async def ends(self, partitions: Partitions, within_s: float) -> Mapping[TopicPartition, int]:
        """Fetch the end offsets."""
        request = pb.EndOffsetsRequest(partitions=messages.partitions(partitions))
        response: pb.EndOffsetsResponse = await self._ask("EndOffsets", request, within_s, each=True)
        return _bounds(response.offsets)

    async def partitions_for_topic(self, topic: str, within_s: float) -> set[int] | None:
        """Fetch the partition numbers of a topic; None if it does not exist."""
        try:
            response: pb.PartitionsResponse = await self._ask(
                "Partitions", pb.PartitionsRequest(topic=topic), within_s
            )
        except UnknownTopicOrPartition:
            return None
        return set(response.partitions)

    async def topics(self, within_s: float) -> set[str]:
        """Fetch the topics that the sidecar may describe."""
        response: pb.TopicsResponse = await self._ask("Topics", pb.TopicsRequest(), within_s)
        return set(response.topics)

    async def metrics(self, within_s: float) -> Metrics:
        """Fetch the sidecar's metrics."""
        response: pb.MetricsResponse = await self._ask("Metrics", pb.MetricsRequest(), within_s)
        return metrics_of(response.samples)


def _epoch(offset: pb.PartitionOffset) -> int:
    return offset.leader_epoch if offset.HasField("leader_epoch") else UNKNOWN_EPOCH


def _bounds(offsets: Sequence[pb.PartitionOffset]) -> Mapping[TopicPartition, int]:
    return {messages.partition_of(each.partition): each.offset for each in offsets}
