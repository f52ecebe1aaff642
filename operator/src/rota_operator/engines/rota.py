"""Engine adapter for Rota's coordinators and embedded log."""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import grpc
import grpc.aio
from typing_extensions import override

from rota_operator.engines.coordinators import CALL_S, GroupCoordinator, ask_coordinator, await_answer
from rota_operator.engines.port import Groups, IndexedRecords, Range, Unavailable
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
from rota_proto.log.columns import MalformedPayload, unpack
from rota_proto.log.compression import CODECS, decompress
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub

END, START = -1, -2
# Pause before a watch of a group is reopened; the coordinator is on this machine.
RETRY_WATCH_S = 0.2
# A group that moves between coordinators keeps its description for this long, while its new coordinator is being found; other
# views expire after as long.
MOVE_S_MAX = 5.0
FIND_INTERVAL_S = 0.1
# Partitions in one request, and bytes in one fetch response: each partition returns at least one batch while
# there is room.
PARTITIONS_MAX = 1_000
# Partitions in one request for committed offsets, and names of topics in one request for their descriptions.
OFFSETS_MAX, TOPICS_MAX = 10_000, 1_000
FETCH_BYTES_MAX = 1 << 20

T = TypeVar("T")


class WatchEnd(NamedTuple):
    """End of a stream of descriptions."""

    problem: CoordinatorProblem = NO_ANSWER
    was_described: bool = False
    # Another coordinator owns the group.
    is_moved: bool = False
    # Its token has expired; the next call has the next one.
    is_expired: bool = False


class RotaGroups(Groups):
    """Committed offsets of groups on Rota's coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    @override
    async def committed(
        self, group_id: str, partitions: Collection[Partition], *, only_these: bool = False
    ) -> Mapping[Partition, int]:
        if not only_these and len(partitions) <= OFFSETS_MAX:
            return await self._fetch(pb.FetchOffsetsRequest(group_id=group_id, all=True))
        found: dict[Partition, int] = {}
        for some in batched(partitions, OFFSETS_MAX):
            topics = [
                pb.TopicPartitions(name=topic, partitions=numbers)
                for topic, numbers in numbers_by_topic(some).items()
            ]
            found |= await self._fetch(pb.FetchOffsetsRequest(group_id=group_id, topics=topics))
        return found

    async def _fetch(self, request: pb.FetchOffsetsRequest) -> Mapping[Partition, int]:
        answer = await ask_coordinator(
            self._coordinator,
            lambda channel, metadata: CoordinatorStub(channel).FetchOffsets(
                request, timeout=CALL_S, metadata=metadata
            ),
            lambda answer: answer.error_code,
        )
        _raise_on_error(answer.error_code, f"group {request.group_id}")
        return {
            Partition(topic.name, each.index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if each.offset >= 0 and not each.error_code
        }


async def watch_group(
    coordinator: GroupCoordinator,
    group_id: str,
    on_description: Callable[[Description], None],
    on_unavailable: Callable[[str, CoordinatorProblem], None],
    retry_s: float = RETRY_WATCH_S,
) -> None:
    """
    Stream the descriptions of one group from its coordinator until cancelled, and reconnect whenever the stream ends.

    `on_unavailable` is called with the group id and the reason after each end: what was described before may be outdated. The next
    stream is opened `retry_s` seconds later. It is not called after the token of the last stream has expired, nor while the group's
    coordinator is found within MOVE_S_MAX, because another one than that of the last stream owns it.
    """
    clock = asyncio.get_running_loop().time
    # When the last description ended, at first now, and whether the group is being looked for since.
    described_s, is_moving = clock(), False
    while True:
        end = await _watch_once(coordinator, group_id, on_description)
        if end.is_expired:
            continue
        if end.was_described:
            described_s, is_moving = clock(), False
        if end.is_moved:
            is_moving = True
            await _find_again(coordinator)
        else:
            coordinator.forget()
        # The first answer may still name the former coordinator, which is away by then.
        if is_moving and clock() - described_s < MOVE_S_MAX:
            await asyncio.sleep(FIND_INTERVAL_S)
            continue
        is_moving = False
        on_unavailable(group_id, end.problem)
        await asyncio.sleep(retry_s)


async def _watch_once(
    coordinator: GroupCoordinator, group_id: str, on_description: Callable[[Description], None]
) -> WatchEnd:
    """Stream descriptions until the stream ends, and return why."""
    was_admitted = was_described = False
    code, problem = pb.NONE, NO_ANSWER
    try:
        request = WatchGroupRequest(group_id=group_id)
        stub = AdminStub(coordinator.channel)
        async for response in stub.WatchGroup(request, metadata=coordinator.metadata):
            was_admitted, code = True, response.group.error_code
            if code == pb.NONE:
                was_described = True
                on_description(description_of(response))
            elif code == pb.NOT_COORDINATOR:
                # An older coordinator leaves the stream open.
                break
            else:
                problem = problem_of_response(code)
    except grpc.aio.AioRpcError as error:
        if was_admitted and error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return WatchEnd(is_expired=True)
        return WatchEnd(problem_of_call(error.code().name, error.details() or ""), was_described)
    except asyncio.CancelledError:
        # gRPC cancels the streams of a channel that is closed, because another call has found the group elsewhere.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return WatchEnd(was_described=was_described, is_moved=True)
    return WatchEnd(problem, was_described, is_moved=code == pb.NOT_COORDINATOR)


async def _find_again(coordinator: GroupCoordinator) -> None:
    try:
        await coordinator.find()
    except Unavailable:
        # Moving, or the configured server does not answer: the next stream says so.
        coordinator.forget()


class RotaRecords(IndexedRecords):
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
        described = await self._described(() if pattern else topics)
        return [
            Partition(topic.name, number)
            for topic in described
            if topic.name in topics or re.fullmatch(pattern, topic.name)
            for number in range(topic.partitions)
        ]

    @override
    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        # The start first: records that are deleted between the two calls must not put it after the end.
        starts = await self._at(partitions, START)
        ends = await self._at(partitions, END)
        return {each: Range(start, ends[each]) for each, start in starts.items() if each in ends}

    @override
    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        return await self._at(partitions, at_ms)

    @override
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        described = await self._described(topics) if topics else ()
        return {topic.name: topic.topic_id.hex() for topic in described}

    async def _described(self, topics: Collection[str]) -> Sequence[log_pb2.DescribeTopicsResponse.Topic]:
        """Describe topics, as far as they exist; without names, all."""
        found: list[log_pb2.DescribeTopicsResponse.Topic] = []
        for names in batched(sorted(topics), TOPICS_MAX) if topics else ((),):
            request = log_pb2.DescribeTopicsRequest(names=names)
            answer = await await_answer(self._stub.DescribeTopics(request, timeout=CALL_S))
            found += (topic for topic in answer.topics if not topic.error_code)
        return found

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
            accepted_codecs=CODECS,
        )
        answer = await await_answer(self._stub.Fetch(request, timeout=CALL_S))
        return answer.partitions

    def _readable_end(self, part: log_pb2.FetchResponse.Partition) -> int:
        if self._isolation == log_pb2.ISOLATION_LEVEL_READ_COMMITTED:
            return part.last_stable_offset
        return part.high_watermark


def _timestamp(batch: log_pb2.RecordBatch, offset: int) -> int:
    """Timestamp in ms of the record at the offset, or of the batch's first one when that lies behind it."""
    if batch.max_timestamp_ms == batch.base_timestamp_ms:
        return batch.base_timestamp_ms
    try:
        payload = decompress(batch.codec, batch.payload)
        times = unpack(payload, batch.count, batch.base_timestamp_ms).timestamps_ms
    except MalformedPayload:
        return batch.base_timestamp_ms
    return batch.base_timestamp_ms if times is None else times[max(0, offset - batch.base_offset)]


def batched(every: Collection[T], size_max: int = PARTITIONS_MAX) -> Iterator[Sequence[T]]:
    """Split partitions or topics into chunks, one request each."""
    left = iter(every)
    while some := list(islice(left, size_max)):
        yield some


def numbers_by_topic(partitions: Collection[Partition]) -> Mapping[str, Sequence[int]]:
    """Return the numbers of partitions by topic."""
    found: dict[str, list[int]] = {}
    for each in partitions:
        found.setdefault(each.topic, []).append(each.number)
    return found


def _raise_on_error(code: pb.ErrorCode.ValueType, about: str) -> None:
    if code:
        raise Unavailable(f"cannot fetch the offsets of {about} ({pb.ErrorCode.Name(code)})")
