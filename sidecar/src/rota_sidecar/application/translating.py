"""Translates between messages of the Consumer service and the delivery core's events and actions. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.commit_points import parse_commit_metadata
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition, Tenure

Error: TypeAlias = coordinator_pb2.ErrorCode.ValueType
# Name, labels and value of a metric.
Sample: TypeAlias = tuple[str, Mapping[str, str], float]
NONE = coordinator_pb2.NONE
NO_OFFSET = -1

VERDICTS: Mapping[int, Verdict] = {
    pb.ACK: Verdict.ACK,
    pb.RETRY: Verdict.RETRY,
    pb.DEAD_LETTER: Verdict.DEAD_LETTER,
    pb.SKIP: Verdict.SKIP,
}
ORDERINGS: Mapping[Ordering, pb.Ordering.ValueType] = {
    Ordering.PARTITION: pb.ORDERING_PARTITION,
    Ordering.KEY: pb.ORDERING_KEY,
    Ordering.UNORDERED: pb.ORDERING_UNORDERED,
}
KINDS: Mapping[do.Kind, pb.RebalanceEventKind.ValueType] = {
    do.Kind.ASSIGNED: pb.ASSIGNED,
    do.Kind.REVOKING: pb.REVOKING,
    do.Kind.REVOKED: pb.REVOKED,
    do.Kind.LOST: pb.LOST,
}

ERROR_KINDS: Mapping[do.ErrorKind, pb.PartitionErrorKind.ValueType] = {
    do.ErrorKind.NO_OFFSET: pb.PARTITION_ERROR_KIND_NO_OFFSET,
    do.ErrorKind.OFFSET_OUT_OF_RANGE: pb.PARTITION_ERROR_KIND_OFFSET_OUT_OF_RANGE,
    do.ErrorKind.UNKNOWN_TOPIC: pb.PARTITION_ERROR_KIND_UNKNOWN_TOPIC,
    do.ErrorKind.TOPIC_AUTHORIZATION: pb.PARTITION_ERROR_KIND_TOPIC_AUTHORIZATION,
    do.ErrorKind.GROUP_AUTHORIZATION: pb.PARTITION_ERROR_KIND_GROUP_AUTHORIZATION,
    do.ErrorKind.CORRUPT_RECORD: pb.PARTITION_ERROR_KIND_CORRUPT_RECORD,
}

# ------------------------------------------------------------------------------------------------ from the application


def partition_of(message: pb.TopicPartition) -> Partition:
    """Convert a partition for the core."""
    return Partition(message.topic, message.partition)


def partitions_of(messages: Iterable[pb.TopicPartition]) -> frozenset[Partition]:
    """Convert partitions for the core."""
    return frozenset(map(partition_of, messages))


def judged_of(messages: Iterable[pb.DeliverRequest.Judgement]) -> on.Judged:
    """Convert verdicts."""
    return on.Judged([judgement_of(message) for message in messages])


def judgement_of(message: pb.DeliverRequest.Judgement) -> on.Judgement:
    """Convert a verdict."""
    return on.Judgement(
        message.delivery_epoch,
        partition_of(message.partition),
        message.offset,
        message.last_offset if message.HasField("last_offset") else message.offset,
        VERDICTS[message.verdict],
        message.retry_after_ms if message.HasField("retry_after_ms") else None,
        message.reason,
    )


def reported_of(message: pb.AttachRequest.Report) -> on.Reported:
    """Convert the positions of an application that reads records itself."""
    return on.Reported(
        [
            on.ReportedPosition(
                partition_of(each.partition),
                each.tenure_number,
                each.position,
                each.timestamp_ms if each.HasField("timestamp_ms") else None,
                each.timestamp_only,
            )
            for each in message.positions
        ],
        progress_of(message.progress) if message.HasField("progress") else None,
    )


def progress_of(message: pb.AttachRequest.Report.Progress) -> on.QueryProgress:
    """Convert the progress of a streaming query."""
    return on.QueryProgress(
        message.input_rows, message.processed_rows_per_second, message.batch_duration_ms / 1000
    )


def asked_of(messages: Iterable[pb.PartitionOffset]) -> Mapping[Partition, on.RequestedOffset]:
    """Convert offsets to commit."""
    return {
        partition_of(each.partition): on.RequestedOffset(
            each.offset, each.metadata, each.leader_epoch if each.HasField("leader_epoch") else -1
        )
        for each in messages
    }


# ------------------------------------------------------------------------------------------------ to the application


def partition_to(partition: Partition) -> pb.TopicPartition:
    """Convert a partition for the application."""
    return pb.TopicPartition(topic=partition.topic, partition=partition.number)


def partitions_to(partitions: Iterable[Partition]) -> list[pb.TopicPartition]:
    """Convert partitions, sorted."""
    return [partition_to(partition) for partition in sorted(partitions)]


def tenure_to(tenure: Tenure) -> pb.Tenure:
    """Convert a tenure for the application."""
    return pb.Tenure(
        member_id=tenure.member_id,
        generation_id=tenure.generation,
        incarnation=tenure.incarnation,
        number=tenure.number,
    )


def attached_to(session: int, config: DeliveryConfig, frames_socket: str) -> pb.AttachResponse:
    """Build the first message of Attach: the session, the group's settings, and the socket that serves Deliver in frames."""
    return pb.AttachResponse(
        attached=pb.AttachResponse.Attached(
            session=session,
            group_id=config.group_id,
            ordering=ORDERINGS[config.rules.ordering],
            concurrency=config.concurrency,
            processing_timeout_ms=config.processing_timeout_ms,
            commit_mode=config.commit_mode.value,
            frames_socket=frames_socket,
        )
    )


def events_to(change: do.AssignmentEvent, now_ms: int, partitions_max: int) -> Iterator[pb.AttachResponse]:
    """Convert a change of the assignment into events of at most `partitions_max` partitions; the caller sets their ids."""
    remaining = iter(sorted(change.partitions))
    first = True
    while (part := list(islice(remaining, partitions_max))) or first:
        event = pb.AttachResponse.Event(
            kind=KINDS[change.kind], partitions=map(partition_to, part), reason=change.reason
        )
        if change.tenure is not None:
            event.tenure.CopyFrom(tenure_to(change.tenure))
        if change.deadline_ms is not None:
            event.deadline_ms = max(change.deadline_ms - now_ms, 0)
        yield pb.AttachResponse(event=event)
        first = False


def errors_to(error: do.PartitionError, partitions_max: int) -> Iterator[pb.AttachResponse]:
    """Convert an error of partitions into messages of at most `partitions_max` partitions."""
    remaining = iter(sorted(error.partitions))
    while part := list(islice(remaining, partitions_max)):
        yield pb.AttachResponse(
            error=pb.AttachResponse.PartitionError(
                kind=ERROR_KINDS[error.kind],
                partitions=map(partition_to, part),
                message=error.message,
                delivery_epoch=error.delivery_epoch,
            )
        )


def commits_to(committed: do.OffsetsCommitted, partitions_max: int) -> Iterator[pb.AttachResponse]:
    """Convert committed offsets into messages of at most `partitions_max` partitions."""
    remaining = iter(sorted(committed.offsets.items()))
    while part := list(islice(remaining, partitions_max)):
        yield pb.AttachResponse(
            committed=pb.AttachResponse.Committed(
                offsets=[
                    # Without its metadata, which is the sidecar's own.
                    pb.PartitionOffset(partition=partition_to(partition), offset=each.offset)
                    for partition, each in part
                ]
            )
        )


def refusals_to(refusals: Sequence[do.Refuse]) -> pb.DeliverResponse:
    """Convert refused verdicts."""
    return pb.DeliverResponse(
        refusals=[
            pb.DeliverResponse.Refusal(
                partition=partition_to(each.partition),
                delivery_epoch=each.delivery_epoch,
                offset=each.offset,
                message=each.message,
            )
            for each in refusals
        ]
    )


def committed_to(answer: do.Answer, asked: Mapping[Partition, on.RequestedOffset]) -> pb.CommitResponse:
    """Convert the result of a commit, partition by partition."""
    errors, offsets = answer.errors or {}, answer.offsets or {}
    about = sorted({*errors, *offsets, *asked})
    given = {partition: each.offset for partition, each in asked.items()}
    return pb.CommitResponse(
        error_code=error_of(answer),
        message=answer.message,
        offsets=[
            pb.PartitionOffset(
                partition=partition_to(each),
                offset=offsets.get(each, given.get(each, NO_OFFSET)),
                error_code=errors.get(each, answer.error),
            )
            for each in about
        ],
    )


def error_of(answer: do.Answer) -> Error:
    """Return the error of the whole request, or else that of the first failed partition."""
    errors = answer.errors or {}
    return answer.error or next((error for _, error in sorted(errors.items()) if error), NONE)


def stored_to(partition: Partition, stored: on.Stored) -> pb.PartitionOffset:
    """Convert a committed offset. Rota's own commit metadata is omitted."""
    is_ours = parse_commit_metadata(stored.metadata).metadata == stored.metadata
    return pb.PartitionOffset(
        partition=partition_to(partition),
        offset=stored.offset,
        metadata="" if is_ours else stored.metadata,
        error_code=stored.error,
        leader_epoch=stored.leader_epoch if stored.leader_epoch >= 0 else None,
    )


def offset_to(
    partition: Partition, offset: int | None, missing: Error, timestamp_ms: int = 0
) -> pb.PartitionOffset:
    """Convert an offset; None: the error `missing`."""
    return pb.PartitionOffset(
        partition=partition_to(partition),
        offset=NO_OFFSET if offset is None else offset,
        error_code=missing if offset is None else NONE,
        timestamp_ms=timestamp_ms,
    )


def metrics_to(samples: Iterable[Sample]) -> pb.MetricsResponse:
    """Convert samples of metrics."""
    return pb.MetricsResponse(
        samples=[
            pb.MetricsResponse.Sample(name=name, labels=labels, value=value)
            for name, labels, value in samples
        ]
    )
