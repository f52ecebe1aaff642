"""Requests of the topic log to a group: end a producer's transaction, and delete offsets of a deleted topic."""

from rota_coordinator.core.group.commit import refusal
from rota_coordinator.core.group.effects import Effects
from rota_coordinator.core.group.offsets import Offsets, removed
from rota_coordinator.core.group.state import Group
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import ProducerEnded, Record


def membership_error(group: Group | None, member: pb.TxnCommitOffsetsRequest) -> pb.ErrorCode.ValueType:
    """
    Return the error that keeps a member from committing its transaction with this group's offsets; NONE if it may.

    The same was checked when the offsets were added; its partitions may have moved to another member since.
    """
    if group is None:
        return pb.ILLEGAL_GENERATION if member.generation_id >= 0 else pb.NONE
    return refusal(group, member, now_ms=MonotonicMs(0))


def end(offsets: Offsets, effects: Effects, group_id: str, ended: ProducerEnded) -> None:
    """Commit or drop the offsets of the producer's transaction."""
    if ended.producer_id in offsets.pending:
        record = Record(producer_ended=ended)
        record.producer_ended.group_id = group_id
        offsets.write(record, effects)


def forget_topic(offsets: Offsets, effects: Effects, group_id: str, topic: str) -> None:
    """Delete the offsets of a deleted topic; they would be wrong for a later topic of the same name."""
    held = [partition for pending in offsets.pending.values() for partition in pending]
    for partition in dict.fromkeys((*offsets.committed, *held)):
        if partition.topic == topic:
            offsets.write(removed(group_id, partition), effects)
