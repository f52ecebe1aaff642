"""Conversion between the sidecar's protobuf messages and the values of this package."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rota import errors
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.core import FetchFailure, FinishedRange, Rebalance, RebalanceKind, Tenure
from rota.consumer.options import Options
from rota.log_reader import Records
from rota.offsets import OffsetAndMetadata
from rota.records import TopicPartition
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

KINDS = {
    pb.ASSIGNED: RebalanceKind.ASSIGNED,
    pb.REVOKING: RebalanceKind.REVOKING,
    pb.REVOKED: RebalanceKind.REVOKED,
    pb.LOST: RebalanceKind.LOST,
}
FAILURES: Mapping[int, type[errors.RotaError]] = {
    pb.PARTITION_ERROR_KIND_NO_OFFSET: errors.NoOffsetForPartition,
    pb.PARTITION_ERROR_KIND_OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    pb.PARTITION_ERROR_KIND_UNKNOWN_TOPIC: errors.UnknownTopicOrPartition,
    pb.PARTITION_ERROR_KIND_TOPIC_AUTHORIZATION: errors.TopicAuthorizationFailed,
    pb.PARTITION_ERROR_KIND_GROUP_AUTHORIZATION: errors.GroupAuthorizationFailed,
    pb.PARTITION_ERROR_KIND_CORRUPT_RECORD: errors.CorruptMessage,
}
# Kafka's consumer raises these from `poll`; for an unknown topic it logs a warning, and continues once the
# topic exists.
RAISED = FAILURES.keys() - {pb.PARTITION_ERROR_KIND_UNKNOWN_TOPIC}
# Maximum number of partitions that a message names.
SHOWN_MAX = 20


def partition_of(partition: pb.TopicPartition) -> TopicPartition:
    """Convert a partition."""
    return TopicPartition(partition.topic, partition.partition)


def tenure_of(tenure: pb.Tenure) -> Tenure:
    """Convert a tenure."""
    return Tenure(tenure.number, tenure.member_id, tenure.generation_id, tenure.incarnation)


def rebalance_of(event: pb.AttachResponse.Event, now_s: float) -> Rebalance:
    """Convert a rebalance event; its deadline becomes a time of the consumer's clock."""
    return Rebalance(
        event.event_id,
        KINDS[event.kind],
        tuple(partition_of(each) for each in event.partitions),
        tenure_of(event.tenure) if event.HasField("tenure") else None,
        now_s + event.deadline_ms / 1000 if event.kind == pb.REVOKING else None,
        event.reason,
    )


def failure_of(error: pb.AttachResponse.PartitionError) -> FetchFailure:
    """Convert a partition error to an exception that names the partitions and the remedy."""
    partitions = tuple(partition_of(each) for each in error.partitions)
    shown = ", ".join(f"{each.topic}[{each.partition}]" for each in partitions[:SHOWN_MAX])
    more = f" and {len(partitions) - SHOWN_MAX} more" if len(partitions) > SHOWN_MAX else ""
    kind = FAILURES.get(error.kind, errors.RotaError)
    exception = kind.with_message(f"{shown}{more}: {error.message}")
    exception.partitions = partitions
    return FetchFailure(exception, partitions, error.delivery_epoch)


def hello(options: Options) -> pb.AttachRequest.Hello:
    """Build the first message of an attachment. Automatic commits are for the interceptors' `on_commit`."""
    return pb.AttachRequest.Hello(
        client_id=options.client_id,
        commits_itself=not options.enable_auto_commit,
        takes_errors=True,
        takes_commits=bool(options.interceptors),
    )


def committed_offsets(
    committed: pb.AttachResponse.Committed,
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Convert the offsets of an automatic commit."""
    return {partition_of(each.partition): OffsetAndMetadata(each.offset) for each in committed.offsets}


def slices_of(part: pb.PartitionRecords) -> Iterator[BatchSlice]:
    """Convert records to one slice per batch."""
    topic_partition = partition_of(part.partition)
    for batch in part.batches:
        records = Records(topic_partition.topic, topic_partition.partition, batch, part.first_offset)
        batch_slice = BatchSlice(
            topic_partition,
            part.delivery_epoch,
            records,
            range(records.base_offset, records.next_offset),
            size=len(batch.payload),
        )
        batch_slice.turn, batch_slice.deliveries = part.turn, part.deliveries
        yield batch_slice


def partitions(given: Iterable[tuple[str, int]]) -> Sequence[pb.TopicPartition]:
    """Build the partitions of a request."""
    return [pb.TopicPartition(topic=topic, partition=partition) for topic, partition in given]


def offsets(given: Mapping[TopicPartition, OffsetAndMetadata]) -> Sequence[pb.PartitionOffset]:
    """Build the offsets of a request."""
    return [
        pb.PartitionOffset(
            partition=pb.TopicPartition(topic=topic, partition=partition),
            offset=each.offset,
            metadata=each.metadata,
            leader_epoch=each.leader_epoch if each.leader_epoch >= 0 else None,
        )
        for (topic, partition), each in given.items()
    ]


def acknowledged(finished: Sequence[FinishedRange]) -> pb.DeliverRequest:
    """Build the ACK verdict on finished records."""
    return pb.DeliverRequest(
        judgements=pb.DeliverRequest.Judgements(
            judgements=[
                pb.DeliverRequest.Judgement(
                    partition=pb.TopicPartition(
                        topic=each.partition.topic, partition=each.partition.partition
                    ),
                    delivery_epoch=each.delivery_epoch,
                    offset=each.first,
                    last_offset=each.last,
                    verdict=pb.ACK,
                )
                for each in finished
            ]
        )
    )


def credit(records: int) -> pb.DeliverRequest:
    """Build a grant of credit, in records."""
    return pb.DeliverRequest(credit=pb.DeliverRequest.Credit(records=records))


def check_settings(settings: pb.AttachResponse.Attached, group_id: str) -> None:
    """Raise SidecarFailed for a sidecar of another group than this one, if given, or without partition order."""
    if group_id and settings.group_id != group_id:
        raise errors.SidecarFailed(
            f"the sidecar is a member of group {settings.group_id!r}, but group_id is {group_id!r}: omit group_id, "
            "or use the sidecar of that group"
        )
    if settings.ordering not in (pb.ORDERING_PARTITION, pb.ORDERING_UNSPECIFIED):
        raise errors.SidecarFailed(
            f"the sidecar delivers with {pb.Ordering.Name(settings.ordering)}, but a consumer needs partition order: set the "
            "group's ordering to 'partition', or use @rota.handler"
        )


def acknowledgement(event_id: int) -> pb.DeliverRequest:
    """Build the acknowledgement of an event; records in flight of revoked partitions count as not begun."""
    return pb.DeliverRequest(acknowledge=pb.AttachRequest.Acknowledge(event_id=event_id))


def check(code: int, where: str, message: str = "") -> None:
    """Raise the error of a response, if it has one."""
    if code:
        error = errors.error_of(code, where)
        raise type(error).with_message(f"{where}: {message}") if message else error


def check_each(offsets: Iterable[pb.PartitionOffset], message: str = "") -> None:
    """Raise the first partition's error of a response, if there is one."""
    for each in offsets:
        check(each.error_code, f"{each.partition.topic}[{each.partition.partition}]", message)
