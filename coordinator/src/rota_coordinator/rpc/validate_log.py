"""What no request to the log may be, whoever sends it; see `wellformed`. Asked by `gate` for every call."""

from collections.abc import Collection, Iterable
from typing import Protocol

from google.protobuf.message import Message

from rota_coordinator.rpc.validate_group import PARTITIONS_MAX, TOPIC_ID_LENGTHS, first, number_of, text
from rota_proto.log.v1 import log_pb2 as pb

TOPICS_MAX = 1_000
BATCHES_MAX = 10_000


class Named(Protocol):
    """A partition in a request."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...


def fault(request: Message) -> str:
    """What is wrong with a request, in a sentence for its sender; empty when nothing is."""
    match request:
        case pb.ProduceRequest():
            return partitions(request.partitions) or producing(request)
        case pb.FetchRequest():
            return partitions(request.partitions) or fetching(request)
        case pb.ListOffsetsRequest():
            return partitions(request.partitions) or looking_up(request)
        case pb.DeleteRecordsRequest():
            return partitions(request.partitions) or first(
                f"before_offset is {each.before_offset}; -1 stands for the high watermark"
                for each in request.partitions
                if each.before_offset < -1
            )
        case pb.InitProducerRequest() | pb.EndTransactionRequest() | pb.AddOffsetsToTransactionRequest():
            return about_a_producer(request)
        case _:
            return about_topics(request)


def about_topics(request: Message) -> str:
    """What is asked about topics as a whole."""
    match request:
        case pb.CreateTopicsRequest() | pb.CreatePartitionsRequest():
            names: Iterable[str] = [topic.name for topic in request.topics]
        case pb.DeleteTopicsRequest() | pb.DescribeTopicsRequest():
            names = request.names
        case _:
            return ""
    names = list(names)
    return number_of("topics", names, TOPICS_MAX) or first(text("a topic's name", name) for name in names)


def partitions(named: Collection[Named]) -> str:
    """Partitions that exist in no topic, or are too many."""
    return number_of("partitions", named, PARTITIONS_MAX) or first(
        text("a topic's name", each.topic)
        or ("" if each.index >= 0 else f"partition {each.index}: a partition's number is not negative")
        for each in named
    )


def topic_ids(named: Iterable[pb.ProduceRequest.Partition | pb.FetchRequest.Partition]) -> str:
    """Ids that no topic can have."""
    return first(
        f"topic_id has {len(each.topic_id)} bytes; it has 16, or none when it is not checked"
        for each in named
        if len(each.topic_id) not in TOPIC_ID_LENGTHS
    )


def producing(request: pb.ProduceRequest) -> str:
    """Batches that cannot be."""
    batches = [batch for partition in request.partitions for batch in partition.batches]
    return (
        text("transactional_id", request.transactional_id)
        or ("" if request.acks in pb.Acks.values() else f"{request.acks} is no kind of acks")
        or topic_ids(request.partitions)
        or number_of("batches", batches, BATCHES_MAX)
        or first(map(batch_fault, batches))
    )


def batch_fault(batch: pb.RecordBatch) -> str:
    """One batch."""
    if batch.count < 1:
        return f"a batch has {batch.count} records; it has one at least"
    if batch.control:
        return "only the log itself writes markers; leave control out"
    if batch.max_timestamp_ms < batch.base_timestamp_ms:
        return f"max_timestamp_ms is {batch.max_timestamp_ms}, before base_timestamp_ms {batch.base_timestamp_ms}"
    if batch.producer_id < -1 or (
        batch.producer_id >= 0 and min(batch.producer_epoch, batch.base_sequence) < 0
    ):
        return (
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}, sequence {batch.base_sequence}: "
            "a producer has no negative numbers; -1 as producer_id stands for none"
        )
    return ""


def fetching(request: pb.FetchRequest) -> str:
    """Offsets and bounds of a fetch."""
    numbers = {
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "max_wait_ms": request.max_wait_ms,
        "offset": min((each.offset for each in request.partitions), default=0),
        "max_bytes of a partition": min((each.max_bytes for each in request.partitions), default=0),
    }
    return (
        first(f"{name} is {value}; it cannot be negative" for name, value in numbers.items() if value < 0)
        or topic_ids(request.partitions)
        or isolation(request.isolation_level)
    )


def looking_up(request: pb.ListOffsetsRequest) -> str:
    """Times before all time."""
    return isolation(request.isolation_level) or first(
        f"timestamp_ms is {each.timestamp_ms}; -1 stands for the end, -2 for the start"
        for each in request.partitions
        if each.timestamp_ms < -2
    )


def isolation(level: int) -> str:
    """A level that nobody knows."""
    return "" if level in pb.IsolationLevel.values() else f"{level} is no isolation level"


def about_a_producer(
    request: pb.InitProducerRequest | pb.EndTransactionRequest | pb.AddOffsetsToTransactionRequest,
) -> str:
    """Who produces, in which transaction."""
    wrong = text("transactional_id", request.transactional_id)
    if wrong or isinstance(request, pb.InitProducerRequest):
        return wrong
    if not request.transactional_id:
        return "transactional_id is empty; a transaction belongs to one"
    if min(request.producer_id, request.producer_epoch) < 0:
        return f"producer {request.producer_id} at epoch {request.producer_epoch}: neither can be negative"
    if isinstance(request, pb.EndTransactionRequest):
        return ""
    if request.generation_id < -1:
        return f"generation_id is {request.generation_id}; -1 stands for none"
    return first(
        text(name, getattr(request, name)) for name in ("group_id", "member_id", "group_instance_id")
    )
