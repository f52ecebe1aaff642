"""
Validation of requests to the log: lengths, counts and number ranges. Independent of the caller; see `validate_group`.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from google.protobuf.message import Message

from rota_coordinator.rpc.validate_group import (
    PARTITIONS_MAX,
    TOPIC_ID_LENGTHS,
    first_error,
    validate_count,
    validate_length,
)
from rota_coordinator.runtime.overload import MESSAGE_BYTES_MAX
from rota_proto.log.columns import CODEC
from rota_proto.log.compression import decompressed_size
from rota_proto.log.v1 import log_pb2 as pb

TOPICS_MAX = 1_000
BATCHES_MAX = 10_000
CODECS_MAX = 100
# Of the batches of a Produce: compression must not cause more work and memory than a message without it.
DECOMPRESSED_BYTES_MAX = MESSAGE_BYTES_MAX


class PartitionOfRequest(Protocol):
    """A partition in a request."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...


def validate(request: Message) -> str:
    """Return the error message for an invalid request; empty when it is valid."""
    match request:
        case pb.ProduceRequest():
            return validate_partitions(request.partitions) or validate_produce(request)
        case pb.FetchRequest():
            return validate_partitions(request.partitions) or validate_fetch(request)
        case pb.ListOffsetsRequest():
            return validate_partitions(request.partitions) or validate_list_offsets(request)
        case pb.DeleteRecordsRequest():
            return validate_partitions(request.partitions) or first_error(
                f"before_offset must be at least -1 (the high watermark), not {each.before_offset}"
                for each in request.partitions
                if each.before_offset < -1
            )
        case pb.InitProducerRequest() | pb.EndTransactionRequest() | pb.AddOffsetsToTransactionRequest():
            return validate_producer(request)
        case _:
            return validate_topics(request)


def validate_topics(request: Message) -> str:
    """Validate requests that name topics."""
    match request:
        case pb.CreateTopicsRequest() | pb.CreatePartitionsRequest() | pb.AlterTopicsRequest():
            names: Iterable[str] = [topic.name for topic in request.topics]
        case pb.DeleteTopicsRequest() | pb.DescribeTopicsRequest():
            names = request.names
        case _:
            return ""
    names = list(names)
    return validate_count("topics", names, TOPICS_MAX) or first_error(
        validate_length("a topic's name", name) for name in names
    )


def validate_partitions(named: Collection[PartitionOfRequest]) -> str:
    """Validate topic names, partition numbers and their count."""
    return validate_count("partitions", named, PARTITIONS_MAX) or first_error(
        validate_length("a topic's name", each.topic)
        or ("" if each.index >= 0 else f"partition {each.index}: must be at least 0")
        for each in named
    )


def validate_topic_ids(named: Iterable[pb.ProduceRequest.Partition | pb.FetchRequest.Partition]) -> str:
    """Validate the lengths of topic ids."""
    return first_error(
        f"topic_id has {len(each.topic_id)} bytes; expected 16, or 0 to skip the check"
        for each in named
        if len(each.topic_id) not in TOPIC_ID_LENGTHS
    )


def validate_produce(request: pb.ProduceRequest) -> str:
    """Validate the acks and the batches of a Produce."""
    batches = [batch for partition in request.partitions for batch in partition.batches]
    return (
        validate_length("transactional_id", request.transactional_id)
        or ("" if request.acks in pb.Acks.values() else f"unknown acks {request.acks}")
        or validate_topic_ids(request.partitions)
        or validate_count("batches", batches, BATCHES_MAX)
        or first_error(map(validate_batch, batches))
        or validate_decompressed_size(batches)
    )


def validate_decompressed_size(batches: Sequence[pb.RecordBatch]) -> str:
    """
    Validate the decompressed bytes that the batches of a Produce state.

    A batch that states more than the limit is rejected by itself, and never decompressed. Without a compressed one the limit of
    the message holds, and no payload is copied out of it.
    """
    if all(batch.codec == CODEC for batch in batches):
        return ""
    sizes = (decompressed_size(batch.codec, batch.payload) for batch in batches)
    size = sum(each for each in sizes if each <= DECOMPRESSED_BYTES_MAX)
    if size <= DECOMPRESSED_BYTES_MAX:
        return ""
    return (
        f"the batches have {size:,} bytes decompressed, at most {DECOMPRESSED_BYTES_MAX:,} are allowed in a request; send "
        "smaller batches, or fewer of them"
    )


def validate_batch(batch: pb.RecordBatch) -> str:
    """Validate one batch."""
    if batch.count < 1:
        return f"a batch has {batch.count} records; expected at least 1"
    if batch.control:
        return "control batches are written by the log only; omit control"
    if batch.max_timestamp_ms < batch.base_timestamp_ms:
        return f"max_timestamp_ms is {batch.max_timestamp_ms}, before base_timestamp_ms {batch.base_timestamp_ms}"
    if batch.producer_id < -1 or (
        batch.producer_id >= 0 and min(batch.producer_epoch, batch.base_sequence) < 0
    ):
        return (
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}, sequence {batch.base_sequence}: "
            "must be at least 0; a producer_id of -1 means no producer"
        )
    return ""


def validate_fetch(request: pb.FetchRequest) -> str:
    """Validate the offsets and limits of a Fetch."""
    numbers = {
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "max_wait_ms": request.max_wait_ms,
        "offset": min((each.offset for each in request.partitions), default=0),
        "max_bytes of a partition": min((each.max_bytes for each in request.partitions), default=0),
    }
    return (
        first_error(f"{name} must be at least 0, not {value}" for name, value in numbers.items() if value < 0)
        or validate_topic_ids(request.partitions)
        or validate_count("accepted_codecs", request.accepted_codecs, CODECS_MAX)
        or validate_isolation_level(request.isolation_level)
    )


def validate_list_offsets(request: pb.ListOffsetsRequest) -> str:
    """Validate the timestamps of a ListOffsets."""
    return validate_isolation_level(request.isolation_level) or first_error(
        f"timestamp_ms must be at least -2 (-1: log end, -2: log start), not {each.timestamp_ms}"
        for each in request.partitions
        if each.timestamp_ms < -2
    )


def validate_isolation_level(level: int) -> str:
    """Validate the isolation level."""
    return "" if level in pb.IsolationLevel.values() else f"unknown isolation level {level}"


def validate_producer(
    request: pb.InitProducerRequest | pb.EndTransactionRequest | pb.AddOffsetsToTransactionRequest,
) -> str:
    """Validate the producer of a transaction."""
    error = validate_length("transactional_id", request.transactional_id)
    if error or isinstance(request, pb.InitProducerRequest):
        return error
    if not request.transactional_id:
        return "transactional_id must not be empty"
    if min(request.producer_id, request.producer_epoch) < 0:
        return f"producer {request.producer_id} at epoch {request.producer_epoch}: both must be at least 0"
    if isinstance(request, pb.EndTransactionRequest):
        return ""
    if request.generation_id < -1:
        return f"generation_id must be at least -1 (no generation), not {request.generation_id}"
    return first_error(
        validate_length(name, getattr(request, name))
        for name in ("group_id", "member_id", "group_instance_id")
    )
