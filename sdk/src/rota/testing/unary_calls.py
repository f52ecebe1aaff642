"""The unary calls of `rota.sidecar.v1.Consumer`, served from a sidecar in memory. `rota.testing.link` calls `answer`."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rota import errors
from rota.records import TopicPartition
from rota.testing.partition import MemoryPartition
from rota.testing.sidecar import MemorySidecar
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

START, END = -2, -1


def answer(sidecar: MemorySidecar, call: str, request: Any) -> Any:  # noqa: ANN401  one of many calls
    """Serve one call by its name, then dispatch what it made ready. Raises one of `rota.errors`."""
    with sidecar.lock:
        response = CALLS[call](sidecar, request)
        sidecar.pump()
        return response


def _place(partition: pb.TopicPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def subscribe(sidecar: MemorySidecar, request: pb.SubscribeRequest) -> pb.SubscribeResponse:
    """Want other topics."""
    if request.pattern:
        matches = re.compile(request.pattern).fullmatch
        sidecar.subscribed = lambda topic: matches(topic) is not None
    else:
        names = set(request.topics)
        sidecar.subscribed = lambda topic: topic in names
    sidecar.by_hand = False
    sidecar.rebalance()
    return pb.SubscribeResponse()


def assign(sidecar: MemorySidecar, request: pb.AssignRequest) -> pb.AssignResponse:
    """Read these outside of the group."""
    sidecar.subscribed = lambda topic: False
    sidecar.by_hand = True
    places = [_place(each) for each in request.partitions]
    try:
        for place in places:
            sidecar.partition(place)
    except errors.UnknownTopicOrPartition:
        return pb.AssignResponse(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
    for place in list(sidecar.held):
        if place not in places:
            del sidecar.held[place]
    sidecar.take([place for place in places if place not in sidecar.held])
    return pb.AssignResponse()


def commit(sidecar: MemorySidecar, request: pb.CommitRequest) -> pb.CommitResponse:
    """Durable at once."""
    outcome = pb.CommitResponse()
    wanted = request.offsets or [
        pb.PartitionOffset(
            partition=pb.TopicPartition(topic=place.topic, partition=place.partition), offset=at
        )
        for place, at in ((place, each.position) for place, each in sidecar.held.items())
    ]
    for each in wanted:
        partition = sidecar.held.get(_place(each.partition))
        late = partition is not None and request.tenure.number not in (0, partition.tenure)
        code = codes.ILLEGAL_GENERATION if partition is None or late else codes.NONE
        if partition is not None and not late:
            partition.committed = (each.offset, each.metadata)
            partition.settle_below(each.offset)
            if partition.error:
                sidecar.read_from(partition, each.offset)
        outcome.offsets.add(partition=each.partition, offset=each.offset, error_code=code)
        outcome.error_code = outcome.error_code or code
    return outcome


def seek(sidecar: MemorySidecar, request: pb.SeekRequest) -> pb.SeekResponse:
    """What is in hand is void."""
    void = sidecar.last_ledger
    for each in request.offsets:
        partition = sidecar.held.get(_place(each.partition))
        if partition is None:
            return pb.SeekResponse(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION, message="it is not assigned")
        ends = {START: partition.start, END: len(partition.log)}
        sidecar.read_from(partition, ends.get(each.offset, each.offset))
    return pb.SeekResponse(voided_delivery_epoch=void)


def pause(sidecar: MemorySidecar, request: pb.PauseRequest) -> pb.PauseResponse:
    """Hand out nothing of these."""
    for each in _held(sidecar, request.partitions):
        each.is_paused = True
    return pb.PauseResponse()


def resume(sidecar: MemorySidecar, request: pb.ResumeRequest) -> pb.ResumeResponse:
    """Go on with these."""
    for each in _held(sidecar, request.partitions):
        each.is_paused = False
    return pb.ResumeResponse()


def _held(sidecar: MemorySidecar, partitions: Iterable[pb.TopicPartition]) -> list[MemoryPartition]:
    return [sidecar.held[_place(each)] for each in partitions if _place(each) in sidecar.held]


def position(sidecar: MemorySidecar, request: pb.PositionRequest) -> pb.PositionResponse:
    """The offset of the first record without a verdict: those that were dispatched may still be on their way."""
    return pb.PositionResponse(
        offsets=[
            pb.PartitionOffset(partition=each, offset=held.position)
            for each in request.partitions
            if (held := sidecar.held.get(_place(each))) is not None
        ]
    )


def committed(sidecar: MemorySidecar, request: pb.CommittedRequest) -> pb.CommittedResponse:
    """What the group has committed."""
    response = pb.CommittedResponse()
    for each in request.partitions:
        offset, metadata = sidecar.partition(_place(each)).committed or (-1, "")
        response.offsets.add(partition=each, offset=offset, metadata=metadata)
    return response


def assignment(sidecar: MemorySidecar, request: pb.AssignmentRequest) -> pb.AssignmentResponse:
    """What the member has."""
    return pb.AssignmentResponse(
        partitions=[pb.TopicPartition(topic=each[0], partition=each[1]) for each in sidecar.held],
        tenure=sidecar.present_tenure(),
    )


def offsets_for_times(
    sidecar: MemorySidecar, request: pb.OffsetsForTimesRequest
) -> pb.OffsetsForTimesResponse:
    """The first records at or after times."""
    response = pb.OffsetsForTimesResponse()
    for each in request.times:
        partition = sidecar.partition(_place(each.partition))
        log, there = partition.log, range(partition.start, len(partition.log))
        found = next((at for at in there if log[at].timestamp_ms >= each.timestamp_ms), -1)
        time = log[found].timestamp_ms if found >= 0 else -1
        response.offsets.add(partition=each.partition, offset=found, timestamp_ms=time)
    return response


def beginning_offsets(
    sidecar: MemorySidecar, request: pb.BeginningOffsetsRequest
) -> pb.BeginningOffsetsResponse:
    """The first records that were not deleted."""
    return pb.BeginningOffsetsResponse(
        offsets=[
            pb.PartitionOffset(partition=each, offset=sidecar.partition(_place(each)).start)
            for each in request.partitions
        ]
    )


def end_offsets(sidecar: MemorySidecar, request: pb.EndOffsetsRequest) -> pb.EndOffsetsResponse:
    """Behind the last records."""
    return pb.EndOffsetsResponse(
        offsets=[
            pb.PartitionOffset(partition=each, offset=len(sidecar.partition(_place(each)).log))
            for each in request.partitions
        ]
    )


def partitions(sidecar: MemorySidecar, request: pb.PartitionsRequest) -> pb.PartitionsResponse:
    """Of a topic."""
    row = sidecar.topics.get(request.topic)
    if row is None:
        return pb.PartitionsResponse(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
    return pb.PartitionsResponse(partitions=range(len(row)))


CALLS: Mapping[str, Callable[[MemorySidecar, Any], Any]] = {
    "Subscribe": subscribe,
    "Assign": assign,
    "Commit": commit,
    "Seek": seek,
    "Pause": pause,
    "Resume": resume,
    "Position": position,
    "Committed": committed,
    "Assignment": assignment,
    "OffsetsForTimes": offsets_for_times,
    "BeginningOffsets": beginning_offsets,
    "EndOffsets": end_offsets,
    "Partitions": partitions,
}
