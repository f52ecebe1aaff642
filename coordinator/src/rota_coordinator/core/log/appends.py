"""
Append a producer's batches to one partition: all of them or none. Called by `log` for each partition of a Produce.
"""

from dataclasses import dataclass, field

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log import content, transactions
from rota_coordinator.core.log.batch import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    Control,
    Header,
    Row,
    stored_bytes,
)
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.sequences import (
    Duplicate,
    ProducerHistory,
    Refused,
    check_sequence,
    with_batch,
)
from rota_coordinator.core.log.state import State
from rota_coordinator.core.quotas import Reserve, Usage
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb

NO_OFFSET = -1


@dataclass(slots=True)
class AppendPlan:
    """The rows and producer histories to apply if no batch is rejected."""

    end: int
    # Offset of the first record of the request; for a duplicate, the offset of its first append.
    base_offset: int = NO_OFFSET
    accepted: list[Row] = field(default_factory=list)
    # Histories of the producers, the accepted batches included.
    known: dict[int, ProducerHistory] = field(default_factory=dict)


def append(
    state: State,
    asked: pb.ProduceRequest.Partition,
    transactional_id: str,
    now_ms: WallMs,
    effects: Effects,
    reserve: Reserve,
) -> pb.ProduceResponse.Partition:
    """Append the batches of one partition of a Produce, or return its error."""
    reply = pb.ProduceResponse.Partition(
        topic=asked.topic,
        index=asked.index,
        base_offset=NO_OFFSET,
        log_append_time_ms=-1,
        log_start_offset=-1,
    )
    partition = state.topics.find(asked.topic, asked.index, asked.topic_id)
    if not isinstance(partition, Partition):
        reply.error_code = partition
        return reply
    reply.log_start_offset = partition.start
    plan = plan_append(state, partition, asked, transactional_id, now_ms)
    if not isinstance(plan, Refused):
        plan = charge_quota(state, partition, plan, reserve)
    if isinstance(plan, Refused):
        reply.error_code, reply.error_message = plan.error, plan.message
        return reply
    reply.base_offset = plan.base_offset
    if plan.accepted:
        reply.log_append_time_ms = now_ms
        if transactional_id:
            transactions.begin(state, state.producers.transactional[transactional_id], now_ms, effects)
        for row in plan.accepted:
            state.append(row, effects)
    return reply


def charge_quota(
    state: State, partition: Partition, plan: AppendPlan, reserve: Reserve
) -> AppendPlan | Refused:
    """Return the plan, or the refusal when it exceeds the quota of the topic's creator. Duplicates are not charged."""
    topic = state.topics.get(partition.topic)
    size = sum(map(stored_bytes, plan.accepted))
    message = "" if topic is None or not size else reserve(topic.created_by, Usage(log_bytes=size))
    return Refused(codes.POLICY_VIOLATION, message) if message else plan


def plan_append(
    state: State,
    partition: Partition,
    asked: pb.ProduceRequest.Partition,
    transactional_id: str,
    now_ms: WallMs,
) -> AppendPlan | Refused:
    """Assign offsets to the batches, or return the refusal of the first batch that cannot be appended."""
    plan = AppendPlan(partition.end)
    for batch in asked.batches:
        row = Row(partition.log_id, header_of(batch, plan.end), now_ms, batch.codec, batch.payload)
        header = row.header
        refused = content.validate(row, state.config, needs_keys=partition.retention.compacts)
        if refused is None:
            error = transactions.batch_error(state, transactional_id, header)
            if not error and header.transactional and not state.may_write_to(header.producer_id, row.log_id):
                error = codes.TRANSACTION_ABORTABLE
            refused = Refused(error) if error else assign_offset(plan, partition, row)
        if refused is not None:
            return refused
    return plan if plan.base_offset != NO_OFFSET else Refused(codes.INVALID_RECORD)


def assign_offset(plan: AppendPlan, partition: Partition, row: Row) -> Refused | None:
    """Assign the batch its offset, unless it is a duplicate of an appended batch."""
    header = row.header
    producer_id, offset = header.producer_id, header.base_offset
    if producer_id != NO_PRODUCER:
        known = plan.known.get(producer_id) or partition.sequences.of(producer_id)
        match check_sequence(known, header):
            case Refused() as refused:
                return refused
            case Duplicate(base_offset=offset):
                pass
            case None:
                plan.known[producer_id] = with_batch(known, header)
    if offset == header.base_offset:
        plan.accepted.append(row)
        plan.end = header.next_offset
    if plan.base_offset == NO_OFFSET:
        plan.base_offset = offset
    return None


def header_of(batch: pb.RecordBatch, base_offset: int) -> Header:
    """Return the header of a batch at an offset."""
    idempotent = batch.producer_id != NO_PRODUCER
    return Header(
        base_offset=base_offset,
        count=batch.count,
        base_timestamp_ms=batch.base_timestamp_ms,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch if idempotent else NO_EPOCH,
        base_sequence=batch.base_sequence if idempotent else NO_SEQUENCE,
        transactional=batch.transactional,
        control=Control.COMMIT if batch.control else Control.RECORDS,
    )
