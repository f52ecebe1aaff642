"""Records put into Rota's own log and counted there, and what a group has committed, for tests."""

from collections.abc import Mapping, Sequence

import grpc

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.columns import Columns, pack, unpack
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1.log_pb2_grpc import LogStub

WITHIN_S = 60
AT_MS = 1_700_000_000_000
ALL_MS = -2


def batch(values: Sequence[str], *, keys: Sequence[str] | None = None, at_ms: int = AT_MS) -> pb.RecordBatch:
    """Records of one time."""
    columns = Columns(
        values=[value.encode() for value in values],
        keys=None if keys is None else [key.encode() for key in keys],
    )
    return pb.RecordBatch(
        base_timestamp_ms=at_ms,
        max_timestamp_ms=at_ms,
        count=len(values),
        payload=pack(columns, len(values), at_ms),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


def produce(address: str, topic: str, partition: int, *batches: pb.RecordBatch) -> int:
    """Append them; the offset of the first record."""
    part = pb.ProduceRequest.Partition(topic=topic, index=partition, batches=batches)
    with grpc.insecure_channel(address) as channel:
        made = LogStub(channel).Produce(pb.ProduceRequest(partitions=[part]), timeout=WITHIN_S)
    assert made.partitions[0].error_code == codes.NONE
    return made.partitions[0].base_offset


def fill(address: str, topic: str, partitions: int, records: int) -> None:
    """So many records into each partition; the value of each is its offset."""
    for partition in range(partitions):
        produce(address, topic, partition, batch([str(offset) for offset in range(records)]))


def values_in(address: str, topic: str, partition: int = 0) -> list[str]:
    """All that the partition holds."""
    wanted = pb.FetchRequest.Partition(topic=topic, index=partition, offset=0, max_bytes=4 << 20)
    request = pb.FetchRequest(partitions=[wanted], max_bytes=4 << 20)
    with grpc.insecure_channel(address) as channel:
        found = LogStub(channel).Fetch(request, timeout=WITHIN_S).partitions[0]
    return [
        (value or b"").decode()
        for each in found.batches
        for value in unpack(each.payload, each.count, each.base_timestamp_ms).values or ()
    ]


def committed(address: str, group: str) -> Mapping[tuple[str, int], int]:
    """Committed offsets of the group."""
    request = codes.FetchOffsetsRequest(group_id=group, all=True)
    with grpc.insecure_channel(address) as channel:
        found = CoordinatorStub(channel).FetchOffsets(request, timeout=WITHIN_S)
    return {
        (topic.name, each.index): each.offset
        for topic in found.topics
        for each in topic.partitions
        if each.offset >= 0
    }


def delete_records(address: str, topic: str, partition: int, before: int) -> None:
    """Let the partition begin there."""
    part = pb.DeleteRecordsRequest.Partition(topic=topic, index=partition, before_offset=before)
    with grpc.insecure_channel(address) as channel:
        done = LogStub(channel).DeleteRecords(pb.DeleteRecordsRequest(partitions=[part]), timeout=WITHIN_S)
    assert done.partitions[0].error_code == codes.NONE
