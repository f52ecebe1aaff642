"""
The application's calls that are one request and one answer, as far as they are about deliveries and not about gRPC.

Used by `service`, after `gate` has seen that the request is well formed. Raises Refusal, Unreachable and Refused, which
`gate` puts into gRPC's words.
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
    """Behind each of them the deliveries decide."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries

    # -------------------------------------------------------------------------------------------- what is wanted

    async def subscribe(self, request: pb.SubscribeRequest, within_s: float) -> pb.SubscribeResponse:
        """Other topics, or none."""
        async with time_limit(within_s):
            await self._deliveries.subscribe(list(request.topics), request.pattern)
        return pb.SubscribeResponse()

    async def assign(self, request: pb.AssignRequest, within_s: float) -> pb.AssignResponse:
        """These partitions, outside of the group's assignment."""
        async with time_limit(within_s):
            await self._deliveries.assign(partitions_of(request.partitions))
        return pb.AssignResponse()

    async def poll(self, attachment: Attachment, request: pb.PollRequest, within_s: float) -> pb.PollResponse:
        """Records, as soon as there are any."""
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
        """Durably, before it answers."""
        asked = asked_of(request.offsets)
        event = on.CommitRequested(0, asked or None, request.tenure.number)
        return committed_to(await self._ask(event, within_s), asked)

    async def seek(
        self, attachment: Attachment | None, request: pb.SeekRequest, within_s: float
    ) -> pb.SeekResponse:
        """Read on from elsewhere."""
        offsets = {partition_of(each.partition): each.offset for each in request.offsets}
        answer = await self._ask(on.SeekRequested(0, offsets), within_s)
        if attachment is not None:
            failed = {partition for partition, error in (answer.errors or {}).items() if error}
            attachment.drop_void(frozenset(offsets.keys() - failed), answer.delivery_epoch)
        return pb.SeekResponse(
            error_code=error_of(answer), message=answer.message, voided_delivery_epoch=answer.delivery_epoch
        )

    async def pause(self, request: pb.PauseRequest, within_s: float) -> pb.PauseResponse:
        """Hand out nothing of these."""
        answer = await self._ask(on.PauseRequested(0, partitions_of(request.partitions)), within_s)
        return pb.PauseResponse(error_code=error_of(answer), message=answer.message)

    async def resume(self, request: pb.ResumeRequest, within_s: float) -> pb.ResumeResponse:
        """Go on with these."""
        answer = await self._ask(on.ResumeRequested(0, partitions_of(request.partitions)), within_s)
        return pb.ResumeResponse(error_code=error_of(answer), message=answer.message)

    # -------------------------------------------------------------------------------------------- what is known here

    def position(self, request: pb.PositionRequest) -> pb.PositionResponse:
        """The offset of the first record of each without a verdict; -1 without an error: not known yet."""
        held, positions = self._deliveries.held, self._deliveries.positions
        return pb.PositionResponse(
            offsets=[
                offset_to(each, positions.get(each), NONE if each in held else NOT_OURS)
                for each in map(partition_of, request.partitions)
            ]
        )

    def assignment(self, attachment: Attachment | None) -> pb.AssignmentResponse:
        """What is assigned, and what of it is paused."""
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

    # -------------------------------------------------------------------------------------------- what engines know

    async def committed(self, request: pb.CommittedRequest, within_s: float) -> pb.CommittedResponse:
        """What is committed, by whom ever."""
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
        """The first records."""
        partitions = named(request.partitions)
        bounds = await self._bounds(partitions, within_s)
        starts = {each: found.start for each, found in bounds.items()}
        return pb.BeginningOffsetsResponse(offsets=listed(partitions, starts, UNKNOWN))

    async def end_offsets(self, request: pb.EndOffsetsRequest, within_s: float) -> pb.EndOffsetsResponse:
        """Behind the last records that readers may see."""
        partitions = named(request.partitions)
        bounds = await self._bounds(partitions, within_s)
        ends = {each: found.end for each, found in bounds.items()}
        return pb.EndOffsetsResponse(offsets=listed(partitions, ends, UNKNOWN))

    async def offsets_for_times(
        self, request: pb.OffsetsForTimesRequest, within_s: float
    ) -> pb.OffsetsForTimesResponse:
        """The first records at or after points in time; -1 where there is none."""
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
        """Of one topic."""
        count = await self._deliveries.partitions_of(request.topic, within_s)
        if count is None:
            return pb.PartitionsResponse(error_code=UNKNOWN)
        return pb.PartitionsResponse(partitions=range(count))

    async def _bounds(
        self, partitions: Sequence[Partition], within_s: float
    ) -> Mapping[Partition, on.Bounds]:
        return await self._deliveries.records.bounds(partitions, within_s) if partitions else {}

    async def _ask(self, asked: on.ApplicationRequest, within_s: float) -> do.Answer:
        async with time_limit(within_s):
            return await self._deliveries.ask(asked)


@asynccontextmanager
async def time_limit(within_s: float) -> AsyncIterator[None]:
    """What takes longer is waited for no more; it may still be done. Raises a Refusal."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        message = f"no answer within {within_s:.3g} s: it may be done later, ask for what there is then"
        raise Refusal(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None


def named(partitions: Sequence[pb.TopicPartition]) -> Sequence[Partition]:
    """In the order in which they were asked about."""
    return [partition_of(each) for each in partitions]


def listed(
    partitions: Sequence[Partition], offsets: Mapping[Partition, int], missing: Error
) -> list[pb.PartitionOffset]:
    """The offset of each, or this error."""
    return [offset_to(each, offsets.get(each), missing) for each in partitions]
