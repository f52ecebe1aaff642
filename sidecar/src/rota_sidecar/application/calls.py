"""
The application's unary calls, without gRPC: each one calls the delivery driver and builds the response.

Used by `service`, after `validation_interceptor` has validated the request. Raises Refusal, Unreachable and Refused, which
the interceptor turns into gRPC statuses. `within_s` is the time limit of a call in seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from rota_proto.coordinator.v1 import coordinator_pb2
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.attachment import Attachment
from rota_sidecar.application.port import Deliveries
from rota_sidecar.application.refusals import Refusal
from rota_sidecar.application.translating import (
    Error,
    asked_of,
    committed_to,
    error_of,
    offset_to,
    partition_of,
    partitions_of,
    partitions_to,
    stored_to,
    tenure_to,
)
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition, Tenure

UNKNOWN = coordinator_pb2.UNKNOWN_TOPIC_OR_PARTITION
NOT_OURS = coordinator_pb2.ILLEGAL_GENERATION
NONE = coordinator_pb2.NONE


class Calls:
    """The unary calls of one service. Stateless: the delivery driver holds the state."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    # -------------------------------------------------------------------------------------------- subscription and records

    async def subscribe(self, request: pb.SubscribeRequest, within_s: float) -> pb.SubscribeResponse:
        """Subscribe to other topics, or to none."""
        async with time_limit(within_s):
            await self._deliveries.subscribe(list(request.topics), request.pattern)
        return pb.SubscribeResponse()

    async def assign(self, request: pb.AssignRequest, within_s: float) -> pb.AssignResponse:
        """Assign partitions manually."""
        async with time_limit(within_s):
            await self._deliveries.assign(partitions_of(request.partitions))
        return pb.AssignResponse()

    async def poll(self, attachment: Attachment, request: pb.PollRequest, within_s: float) -> pb.PollResponse:
        """Return records as soon as there are any; none after the time limit."""
        wait_s = min(request.max_wait_ms / 1000, within_s)
        attachment.begin("Poll")
        polling = asyncio.create_task(attachment.poll(request.max_records, wait_s))
        ends: set[asyncio.Future[Any]] = {polling, attachment.ended}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                return pb.PollResponse(partitions=polling.result())
            raise attachment.ended.result() or Refusal(
                grpc.StatusCode.ABORTED, "the application said goodbye"
            )
        finally:
            polling.cancel()
            attachment.finish()

    # -------------------------------------------------------------------------------------------- what is done

    async def commit(self, request: pb.CommitRequest, within_s: float) -> pb.CommitResponse:
        """Commit offsets; returns after they are stored durably."""
        asked = asked_of(request.offsets)
        event = on.CommitRequested(0, asked or None, request.tenure.number)
        return committed_to(await self._ask(event, within_s), asked)

    async def seek(
        self, attachment: Attachment | None, request: pb.SeekRequest, within_s: float
    ) -> pb.SeekResponse:
        """Seek, and drop unsent records of the partitions."""
        offsets = {partition_of(each.partition): each.offset for each in request.offsets}
        answer = await self._ask(on.SeekRequested(0, offsets), within_s)
        if attachment is not None:
            failed = {partition for partition, error in (answer.errors or {}).items() if error}
            attachment.drop_void(frozenset(offsets.keys() - failed), answer.delivery_epoch)
        return pb.SeekResponse(
            error_code=error_of(answer), message=answer.message, voided_delivery_epoch=answer.delivery_epoch
        )

    async def pause(self, request: pb.PauseRequest, within_s: float) -> pb.PauseResponse:
        """Pause partitions."""
        answer = await self._ask(on.PauseRequested(0, partitions_of(request.partitions)), within_s)
        return pb.PauseResponse(error_code=error_of(answer), message=answer.message)

    async def resume(self, request: pb.ResumeRequest, within_s: float) -> pb.ResumeResponse:
        """Resume partitions."""
        answer = await self._ask(on.ResumeRequested(0, partitions_of(request.partitions)), within_s)
        return pb.ResumeResponse(error_code=error_of(answer), message=answer.message)

    # -------------------------------------------------------------------------------------------- state of the sidecar

    def position(self, request: pb.PositionRequest) -> pb.PositionResponse:
        """Return the offset of the first record of each partition without a verdict; -1 without an error: not known yet."""
        held, positions = self._deliveries.held, self._deliveries.positions
        return pb.PositionResponse(
            offsets=[
                offset_to(each, positions.get(each), NONE if each in held else NOT_OURS)
                for each in map(partition_of, request.partitions)
            ]
        )

    def assignment(self, attachment: Attachment | None) -> pb.AssignmentResponse:
        """Return the assigned and the paused partitions, and the newest tenure."""
        held = self._deliveries.held
        tenures: list[Tenure] = [*held.values()]
        if attachment is not None and attachment.tenure is not None:
            tenures.append(attachment.tenure)
        newest = max(tenures, key=lambda tenure: tenure.number, default=None)
        return pb.AssignmentResponse(
            partitions=partitions_to(held),
            paused=partitions_to(self._deliveries.paused),
            tenure=None if newest is None else tenure_to(newest),
        )

    # -------------------------------------------------------------------------------------------- lookups at the backend

    async def committed(self, request: pb.CommittedRequest, within_s: float) -> pb.CommittedResponse:
        """Return the committed offsets of the group, of all its members."""
        partitions = named(request.partitions)
        if not partitions:
            return pb.CommittedResponse()
        found = await self._deliveries.committed(partitions, within_s)
        nothing = on.Stored(-1, "")
        return pb.CommittedResponse(
            offsets=[stored_to(each, found.get(each, nothing)) for each in partitions]
        )

    async def beginning_offsets(
        self, request: pb.BeginningOffsetsRequest, within_s: float
    ) -> pb.BeginningOffsetsResponse:
        """Return the log start offsets."""
        partitions = named(request.partitions)
        bounds = await self._bounds(partitions, within_s)
        starts = {each: found.start for each, found in bounds.items()}
        return pb.BeginningOffsetsResponse(offsets=listed(partitions, starts, UNKNOWN))

    async def end_offsets(self, request: pb.EndOffsetsRequest, within_s: float) -> pb.EndOffsetsResponse:
        """Return the end offsets: with read_committed, the last stable offsets."""
        partitions = named(request.partitions)
        bounds = await self._bounds(partitions, within_s)
        ends = {each: found.end for each, found in bounds.items()}
        return pb.EndOffsetsResponse(offsets=listed(partitions, ends, UNKNOWN))

    async def offsets_for_times(
        self, request: pb.OffsetsForTimesRequest, within_s: float
    ) -> pb.OffsetsForTimesResponse:
        """Return the offsets of the first records at or after timestamps; -1 if there is none."""
        times = {partition_of(each.partition): each.timestamp_ms for each in request.times}
        found = await self._deliveries.records.at_times(times, within_s) if times else {}
        return pb.OffsetsForTimesResponse(
            offsets=[
                offset_to(each, found[each].offset, NONE, found[each].timestamp_ms)
                if each in found
                else offset_to(each, None, NONE)
                for each in times
            ]
        )

    async def partitions(self, request: pb.PartitionsRequest, within_s: float) -> pb.PartitionsResponse:
        """Return the partitions of a topic."""
        count = await self._deliveries.partitions_of(request.topic, within_s)
        if count is None:
            return pb.PartitionsResponse(error_code=UNKNOWN)
        return pb.PartitionsResponse(partitions=range(count))

    async def topics(self, within_s: float) -> pb.TopicsResponse:
        """Return the topics that the sidecar may describe."""
        return pb.TopicsResponse(topics=sorted(await self._deliveries.topics(within_s)))

    async def _bounds(
        self, partitions: Sequence[Partition], within_s: float
    ) -> Mapping[Partition, on.Bounds]:
        return await self._deliveries.records.bounds(partitions, within_s) if partitions else {}

    async def _ask(self, asked: on.ApplicationRequest, within_s: float) -> do.Answer:
        async with time_limit(within_s):
            return await self._deliveries.ask(asked)


@asynccontextmanager
async def time_limit(within_s: float) -> AsyncIterator[None]:
    """Limit the time of a request, which may still take effect later. Raises a Refusal."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        message = f"no answer within {within_s:.3g} s; the request may still take effect, query the state before a retry"
        raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None


def named(partitions: Sequence[pb.TopicPartition]) -> Sequence[Partition]:
    """Convert partitions; their order stays."""
    return [partition_of(each) for each in partitions]


def listed(
    partitions: Sequence[Partition], offsets: Mapping[Partition, int], missing: Error
) -> list[pb.PartitionOffset]:
    """Return the offset of each partition, or the error `missing`."""
    return [offset_to(each, offsets.get(each), missing) for each in partitions]
