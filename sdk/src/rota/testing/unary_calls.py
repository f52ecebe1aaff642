"""The unary calls of `rota.sidecar.v1.Consumer`, served from a sidecar in memory. `rota.testing.transport` calls `answer`."""

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
        sidecar.dispatch_ready()
        return response


def _topic_partition(partition: pb.TopicPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def subscribe(sidecar: MemorySidecar, request: pb.SubscribeRequest) -> pb.SubscribeResponse:
    """Change the subscription."""
    if request.pattern:
        matches = re.compile(request.pattern).fullmatch
        sidecar.subscribed = lambda topic: matches(topic) is not None
    else:
        names = set(request.topics)
        sidecar.subscribed = lambda topic: topic in names
    sidecar.is_manual = False
    sidecar.rebalance()
    return pb.SubscribeResponse()


def assign(sidecar: MemorySidecar, request: pb.AssignRequest) -> pb.AssignResponse:
    """Assign partitions outside of the group's assignment."""
    sidecar.subscribed = lambda topic: False
    sidecar.is_manual = True
    topic_partitions = [_topic_partition(each) for each in request.partitions]
    try:
        for topic_partition in topic_partitions:
            sidecar.partition(topic_partition)
    except errors.UnknownTopicOrPartition:
        return pb.AssignResponse(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
    for topic_partition in list(sidecar.assigned):
        if topic_partition not in topic_partitions:
            del sidecar.assigned[topic_partition]
    sidecar.assign(
        [topic_partition for topic_partition in topic_partitions if topic_partition not in sidecar.assigned]
    )
    return pb.AssignResponse()


def commit(sidecar: MemorySidecar, request: pb.CommitRequest) -> pb.CommitResponse:
    """Commit; durable at once."""
    outcome = pb.CommitResponse()
    wanted = request.offsets or [
        pb.PartitionOffset(
            partition=pb.TopicPartition(topic=topic_partition.topic, partition=topic_partition.partition),
            offset=at,
        )
        for topic_partition, at in (
            (topic_partition, each.position) for topic_partition, each in sidecar.assigned.items()
        )
    ]
    for each in wanted:
        partition = sidecar.assigned.get(_topic_partition(each.partition))
        late = partition is not None and request.tenure.number not in (0, partition.tenure)
        code = codes.ILLEGAL_GENERATION if partition is None or late else codes.NONE
        if partition is not None and not late:
            partition.committed = (each.offset, each.metadata)
            partition.complete_below(each.offset)
            if partition.error:
                sidecar.read_from(partition, each.offset)
        outcome.offsets.add(partition=each.partition, offset=each.offset, error_code=code)
        outcome.error_code = outcome.error_code or code
    return outcome


def seek(sidecar: MemorySidecar, request: pb.SeekRequest) -> pb.SeekResponse:
    """Seek; records in flight are void."""
    void = sidecar.last_delivery_epoch
    for each in request.offsets:
        partition = sidecar.assigned.get(_topic_partition(each.partition))
        if partition is None:
            return pb.SeekResponse(
                error_code=codes.UNKNOWN_TOPIC_OR_PARTITION, message="the partition is not assigned"
            )
        ends = {START: partition.start, END: len(partition.log)}
        sidecar.read_from(partition, ends.get(each.offset, each.offset))
    return pb.SeekResponse(voided_delivery_epoch=void)


def pause(sidecar: MemorySidecar, request: pb.PauseRequest) -> pb.PauseResponse:
    """Stop the dispatch of partitions."""
    for each in _assigned(sidecar, request.partitions):
        each.is_paused = True
    return pb.PauseResponse()


def resume(sidecar: MemorySidecar, request: pb.ResumeRequest) -> pb.ResumeResponse:
    """Resume the dispatch of partitions."""
    for each in _assigned(sidecar, request.partitions):
        each.is_paused = False
    return pb.ResumeResponse()


def _assigned(sidecar: MemorySidecar, partitions: Iterable[pb.TopicPartition]) -> list[MemoryPartition]:
    return [
        sidecar.assigned[_topic_partition(each)]
        for each in partitions
        if _topic_partition(each) in sidecar.assigned
    ]


def position(sidecar: MemorySidecar, request: pb.PositionRequest) -> pb.PositionResponse:
    """Return the offset of the first record without a verdict: dispatched records may still be in transit."""
    return pb.PositionResponse(
        offsets=[
            pb.PartitionOffset(partition=each, offset=assigned.position)
            for each in request.partitions
            if (assigned := sidecar.assigned.get(_topic_partition(each))) is not None
        ]
    )


def committed(sidecar: MemorySidecar, request: pb.CommittedRequest) -> pb.CommittedResponse:
    """Return the group's committed offsets."""
    response = pb.CommittedResponse()
    for each in request.partitions:
        offset, metadata = sidecar.partition(_topic_partition(each)).committed or (-1, "")
        response.offsets.add(partition=each, offset=offset, metadata=metadata)
    return response


def assignment(sidecar: MemorySidecar, request: pb.AssignmentRequest) -> pb.AssignmentResponse:
    """Return the member's partitions and tenure."""
    return pb.AssignmentResponse(
        partitions=[pb.TopicPartition(topic=each[0], partition=each[1]) for each in sidecar.assigned],
        tenure=sidecar.current_tenure(),
    )


def offsets_for_times(
    sidecar: MemorySidecar, request: pb.OffsetsForTimesRequest
) -> pb.OffsetsForTimesResponse:
    """Look up the first records at or after timestamps."""
    response = pb.OffsetsForTimesResponse()
    for each in request.times:
        partition = sidecar.partition(_topic_partition(each.partition))
        log, there = partition.log, range(partition.start, len(partition.log))
        found = next((at for at in there if log[at].timestamp_ms >= each.timestamp_ms), -1)
        time = log[found].timestamp_ms if found >= 0 else -1
        response.offsets.add(partition=each.partition, offset=found, timestamp_ms=time)
    return response


def beginning_offsets(
    sidecar: MemorySidecar, request: pb.BeginningOffsetsRequest
) -> pb.BeginningOffsetsResponse:
    """Return the log start offsets."""
    return pb.BeginningOffsetsResponse(
        offsets=[
            pb.PartitionOffset(partition=each, offset=sidecar.partition(_topic_partition(each)).start)
            for each in request.partitions
        ]
    )


def end_offsets(sidecar: MemorySidecar, request: pb.EndOffsetsRequest) -> pb.EndOffsetsResponse:
    """Return the log end offsets."""
    return pb.EndOffsetsResponse(
        offsets=[
            pb.PartitionOffset(partition=each, offset=len(sidecar.partition(_topic_partition(each)).log))
            for each in request.partitions
        ]
    )


def partitions(sidecar: MemorySidecar, request: pb.PartitionsRequest) -> pb.PartitionsResponse:
    """Return the partitions of a topic."""
    row = sidecar.topics.get(request.topic)
    if row is None:
        return pb.PartitionsResponse(error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
    return pb.PartitionsResponse(partitions=range(len(row)))


def topics(sidecar: MemorySidecar, request: pb.TopicsRequest) -> pb.TopicsResponse:
    """Return all topics."""
    return pb.TopicsResponse(topics=sorted(sidecar.topics))


def metrics(sidecar: MemorySidecar, request: pb.MetricsRequest) -> pb.MetricsResponse:
    """Return the number of assigned partitions; a sidecar in memory has no other metrics."""
    labels = {"group": sidecar.group_id}
    assigned = pb.MetricsResponse.Sample(
        name="rota_assigned_partitions", labels=labels, value=len(sidecar.assigned)
    )
    return pb.MetricsResponse(samples=[assigned])


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
    "Topics": topics,
    "Metrics": metrics,
}
