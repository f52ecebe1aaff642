"""Engine adapter for Rota's coordinator and embedded log, over one gRPC channel."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import grpc
import grpc.aio
from typing_extensions import override

from rota_operator.engines.port import Groups, Range, Records, Unavailable
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description, description_of
from rota_operator.overview.problems import (
    NO_ANSWER,
    CoordinatorProblem,
    problem_of_call,
    problem_of_response,
)
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.columns import CODEC, MalformedPayload, unpack
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub

END, START = -1, -2
CALL_S = 2.0
# Pause before a watch of a group is reopened; the coordinator is on this machine.
RETRY_WATCH_S = 0.2
# Partitions in one request, and bytes in one fetch response: each partition returns at least one batch while
# there is room.
PARTITIONS_MAX = 1_000
FETCH_BYTES_MAX = 1 << 20
Answer = TypeVar("Answer")


class RotaGroups(Groups):
    """Committed offsets of groups on Rota's coordinator."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = CoordinatorStub(channel)

    @override
    async def committed(self, group_id: str, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        request = pb.FetchOffsetsRequest(group_id=group_id, all=True)
        answer = await await_answer(self._stub.FetchOffsets(request, timeout=CALL_S))
        _raise_on_error(answer.error_code, f"group {group_id}")
        return {
            Partition(topic.name, each.index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if each.offset >= 0 and not each.error_code
        }


async def watch_group(
    channel: grpc.aio.Channel,
    group_id: str,
    on_description: Callable[[Description], None],
    on_unavailable: Callable[[str, CoordinatorProblem], None],
    retry_s: float = RETRY_WATCH_S,
) -> None:
    """
    Stream the descriptions of one group from its coordinator until cancelled, and reconnect whenever the stream ends.

    `on_unavailable` is called with the group id and the reason after each end: what was described before may be outdated. The next
    stream is opened `retry_s` seconds later; at once, and without that call, after the token of the last one has expired.
    """
    while True:
        was_admitted, problem = False, NO_ANSWER
        try:
            async for response in AdminStub(channel).WatchGroup(WatchGroupRequest(group_id=group_id)):
                was_admitted = True
                if response.group.error_code == pb.NONE:
                    on_description(description_of(response))
                else:
                    problem = problem_of_response(response.group.error_code)
        except grpc.aio.AioRpcError as error:
            if was_admitted and error.code() is grpc.StatusCode.UNAUTHENTICATED:
                continue
            problem = problem_of_call(error.code().name, error.details() or "")
        on_unavailable(group_id, problem)
        await asyncio.sleep(retry_s)


class RotaRecords(Records):
    """Topics of the embedded log, read at one isolation level."""

    def __init__(self, channel: grpc.aio.Channel, *, read_committed: bool) -> None:
        self._stub = LogStub(channel)
        self._isolation = (
            log_pb2.ISOLATION_LEVEL_READ_COMMITTED
            if read_committed
            else log_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
        )

    @override
    async def partitions(self, topics: Collection[str], pattern: str = "") -> Collection[Partition]:
        if not topics and not pattern:
            return ()
        # An empty list of names requests all topics.
        request = log_pb2.DescribeTopicsRequest(names=() if pattern else sorted(topics))
        answer = await await_answer(self._stub.DescribeTopics(request, timeout=CALL_S))
        return [
            Partition(topic.name, number)
            for topic in answer.topics
            if not topic.error_code and (topic.name in topics or re.fullmatch(pattern, topic.name))
            for number in range(topic.partitions)
        ]

    @override
    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        # The start first: records that are deleted between the two calls must not put it after the end.
        starts = await self._at(partitions, START)
        ends = await self._at(partitions, END)
        return {each: Range(start, ends[each]) for each, start in starts.items() if each in ends}

    async def _at(self, partitions: Collection[Partition], timestamp_ms: int) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for some in batched(partitions):
            request = log_pb2.ListOffsetsRequest(
                partitions=[
                    log_pb2.ListOffsetsRequest.Partition(
                        topic=each.topic, index=each.number, timestamp_ms=timestamp_ms
                    )
                    for each in some
                ],
                isolation_level=self._isolation,
            )
            answer = await await_answer(self._stub.ListOffsets(request, timeout=CALL_S))
            found |= {
                Partition(part.topic, part.index): part.offset
                for part in answer.partitions
                if not part.error_code
            }
        return found

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        found: dict[Partition, int | None] = {}
        left = dict(offsets)
        while left:
            # Partitions that found no room in the last response come first in the next request.
            asked = dict(islice(left.items(), PARTITIONS_MAX))
            progress = False
            for part in await self._fetch(asked):
                here = Partition(part.topic, part.index)
                if part.error_code:
                    del left[here]
                elif part.batches:
                    found[here] = _timestamp(part.batches[0], left.pop(here))
                elif part.next_offset >= self._readable_end(part):
                    found[here] = None
                    del left[here]
                elif part.next_offset > left[here]:
                    left[here] = part.next_offset
                else:
                    continue
                progress = True
            if not progress:
                break
        return found

    async def _fetch(self, offsets: Mapping[Partition, int]) -> Sequence[log_pb2.FetchResponse.Partition]:
        request = log_pb2.FetchRequest(
            partitions=[
                log_pb2.FetchRequest.Partition(
                    topic=each.topic, index=each.number, offset=offset, max_bytes=1
                )
                for each, offset in offsets.items()
            ],
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self._isolation,
        )
        answer = await await_answer(self._stub.Fetch(request, timeout=CALL_S))
        return answer.partitions

    def _readable_end(self, part: log_pb2.FetchResponse.Partition) -> int:
        if self._isolation == log_pb2.ISOLATION_LEVEL_READ_COMMITTED:
            return part.last_stable_offset
        return part.high_watermark


def _timestamp(batch: log_pb2.RecordBatch, offset: int) -> int:
    """Timestamp in ms of the record at the offset, or of the batch's first one when that lies behind it."""
    if batch.max_timestamp_ms == batch.base_timestamp_ms or batch.codec != CODEC:
        return batch.base_timestamp_ms
    try:
        times = unpack(batch.payload, batch.count, batch.base_timestamp_ms).timestamps_ms
    except MalformedPayload:
        return batch.base_timestamp_ms
    return batch.base_timestamp_ms if times is None else times[max(0, offset - batch.base_offset)]


def batched(partitions: Collection[Partition]) -> Iterator[Sequence[Partition]]:
    """Split partitions into chunks of at most PARTITIONS_MAX, one request each."""
    everything = iter(partitions)
    while some := list(islice(everything, PARTITIONS_MAX)):
        yield some


async def await_answer(call: Awaitable[Answer]) -> Answer:
    """Await an RPC. Raises Unavailable."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise Unavailable(f"request to Rota failed ({error.details() or error.code().name})") from None


def _raise_on_error(code: pb.ErrorCode.ValueType, about: str) -> None:
    if code:
        raise Unavailable(f"cannot fetch the offsets of {about} ({pb.ErrorCode.Name(code)})")
