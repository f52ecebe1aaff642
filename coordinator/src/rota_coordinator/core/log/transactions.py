"""
Producers and their transactions: fencing, begin, end and timeout.

Called by `log`, and by `appends` for batches of transactions. Every transaction has its own producer epoch,
so a delayed request of an earlier transaction is recognized by its epoch alone.

    no transaction  -- first batch or first group -->  open
    open            -- end, timeout, InitProducer -->  no transaction, next epoch
"""

from collections.abc import Iterator

from rota_coordinator.core.group.config import GROUP_ID_LENGTH_MAX
from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.batch import NO_PRODUCER, NO_SEQUENCE, Control, Header, Row
from rota_coordinator.core.log.config import NAME_LENGTH_MAX
from rota_coordinator.core.log.effects import Effects, Ending
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.producers import Identity, Outcome, Transaction, TransactionalProducer, ended
from rota_coordinator.core.log.state import State
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import (
    GroupAdded,
    LogEvent,
    ProducerRegistered,
    TransactionBegun,
)
from rota_proto.log.v1 import log_pb2 as pb

NO_IDENTITY = Identity(NO_PRODUCER, -1)
MemberOfGroup = GroupAdded | pb.AddOffsetsToTransactionRequest | codes.TxnCommitOffsetsRequest


def init_producer(
    state: State, request: pb.InitProducerRequest, now_ms: WallMs, effects: Effects
) -> pb.InitProducerResponse:
    """Handle InitProducer: fence the previous producer of the transactional id and abort its open transaction."""
    error = init_error(state, request)
    if error:
        return init_reply(NO_IDENTITY, error)
    if not request.transactional_id:
        return init_reply(Identity(state.allocate_producer_id(effects), 0))
    known = state.producers.transactional.get(request.transactional_id)
    if known is None:
        made = ProducerRegistered(
            transactional_id=request.transactional_id,
            producer_id=state.allocate_producer_id(effects),
            transaction_timeout_ms=request.transaction_timeout_ms,
            at_ms=now_ms,
        )
    else:
        made = successor(state, known, now_ms, effects)
        made.transaction_timeout_ms = request.transaction_timeout_ms
    if known is not None and known.open is not None:
        abort_fenced(state, known, made, now_ms, effects)
    else:
        state.write(LogEvent(producer_registered=made), effects)
    return init_reply(Identity(made.producer_id, made.producer_epoch))


def init_error(state: State, request: pb.InitProducerRequest) -> codes.ErrorCode.ValueType:
    """Return the error of a producer that cannot be initialized; NONE if it can."""
    transactional_id = request.transactional_id
    if not transactional_id:
        return codes.NONE
    if len(transactional_id) > NAME_LENGTH_MAX:
        return codes.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= state.config.transaction_timeout_max_ms:
        return codes.INVALID_TRANSACTION_TIMEOUT
    known = state.producers.transactional
    if transactional_id not in known and len(known) >= state.config.transactional_ids_max:
        return codes.POLICY_VIOLATION
    return codes.NONE


def init_reply(identity: Identity, error: codes.ErrorCode.ValueType = codes.NONE) -> pb.InitProducerResponse:
    """Return the response to InitProducer."""
    return pb.InitProducerResponse(
        error_code=error, producer_id=identity.producer_id, producer_epoch=identity.epoch
    )


def identify(
    state: State, transactional_id: str, identity: Identity
) -> TransactionalProducer | codes.ErrorCode.ValueType:
    """Return the producer of the transactional id when the identity is its present one, else the error."""
    if not transactional_id:
        return codes.INVALID_REQUEST
    known = state.producers.transactional.get(transactional_id)
    if known is None or known.identity.producer_id != identity.producer_id:
        return codes.INVALID_PRODUCER_ID_MAPPING
    if known.identity.epoch != identity.epoch:
        return codes.PRODUCER_FENCED
    return known


def batch_error(state: State, transactional_id: str, header: Header) -> codes.ErrorCode.ValueType:
    """Return the error of a batch that its producer may not write now; NONE if it may."""
    producers = state.producers
    if header.transactional != bool(transactional_id):
        return codes.INVALID_TXN_STATE
    if not header.transactional:
        if producers.is_transactional(header.producer_id):
            return codes.INVALID_TXN_STATE
        # An id that is not assigned yet; a later producer would be mistaken for this one.
        return codes.UNKNOWN_PRODUCER_ID if header.producer_id >= producers.next_producer_id else codes.NONE
    found = identify(state, transactional_id, Identity(header.producer_id, header.producer_epoch))
    if isinstance(found, TransactionalProducer):
        return codes.NONE
    # Kafka answers a fenced Produce with this error.
    return codes.INVALID_PRODUCER_EPOCH if found == codes.PRODUCER_FENCED else found


def begin(state: State, known: TransactionalProducer, now_ms: WallMs, effects: Effects) -> Transaction:
    """Return the open transaction, beginning one if none is open."""
    if known.open is None:
        begun = TransactionBegun(transactional_id=known.transactional_id, at_ms=now_ms)
        state.write(LogEvent(transaction_begun=begun), effects)
    assert known.open is not None
    return known.open


def add_offsets(
    state: State, request: pb.AddOffsetsToTransactionRequest, now_ms: WallMs, effects: Effects
) -> pb.AddOffsetsToTransactionResponse:
    """Handle AddOffsetsToTransaction."""
    identity = Identity(request.producer_id, request.producer_epoch)
    found = identify(state, request.transactional_id, identity)
    if not isinstance(found, TransactionalProducer):
        return pb.AddOffsetsToTransactionResponse(error_code=found)
    error = add_offsets_error(state, found, request)
    if not error and (found.open is None or request.group_id not in found.open.groups):
        begin(state, found, now_ms, effects)
        state.write(LogEvent(group_added=to_group_added(request)), effects)
    return pb.AddOffsetsToTransactionResponse(error_code=error)


def add_offsets_error(
    state: State, known: TransactionalProducer, request: pb.AddOffsetsToTransactionRequest
) -> codes.ErrorCode.ValueType:
    """Return the error of a group that cannot be part of the transaction; NONE if it can."""
    if not 0 < len(request.group_id) <= GROUP_ID_LENGTH_MAX:
        return codes.INVALID_GROUP_ID
    groups = {} if known.open is None else known.open.groups
    if request.group_id in groups:
        return membership_error(groups[request.group_id], request)
    if len(groups) >= state.config.transaction_groups_max:
        return codes.TRANSACTION_ABORTABLE
    return codes.NONE


def to_group_added(request: pb.AddOffsetsToTransactionRequest) -> GroupAdded:
    """Return the event that adds the group to the transaction."""
    added = GroupAdded(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
    )
    if request.HasField("group_instance_id"):
        added.group_instance_id = request.group_instance_id
    return added


def membership_error(added: MemberOfGroup, request: MemberOfGroup) -> codes.ErrorCode.ValueType:
    """
    Return the error of a request that names another member than the added one; NONE if it is the same.

    The end of the transaction checks that one member with its group, so all offsets of the group in a transaction
    come from one member in one generation.
    """
    if added.group_instance_id != request.group_instance_id:
        return codes.FENCED_INSTANCE_ID
    if added.member_id != request.member_id:
        return codes.UNKNOWN_MEMBER_ID
    if added.generation_id != request.generation_id:
        return codes.ILLEGAL_GENERATION
    return codes.NONE


def txn_offsets_error(state: State, request: codes.TxnCommitOffsetsRequest) -> codes.ErrorCode.ValueType:
    """Return the error of offsets that cannot be part of the producer's transaction; NONE if they can."""
    identity = Identity(request.producer_id, request.producer_epoch)
    found = identify(state, request.transactional_id, identity)
    if not isinstance(found, TransactionalProducer):
        return found
    if found.open is None or request.group_id not in found.open.groups:
        return codes.INVALID_TXN_STATE
    return membership_error(found.open.groups[request.group_id], request)


def end(
    state: State,
    request: pb.EndTransactionRequest,
    refused: codes.ErrorCode.ValueType,
    now_ms: WallMs,
    effects: Effects,
) -> pb.EndTransactionResponse:
    """Handle EndTransaction. `refused` is the error of one of its groups; it turns a commit into an abort."""
    asked = Identity(request.producer_id, request.producer_epoch)
    known = state.producers.transactional.get(request.transactional_id)
    if known is not None and known.ended is not None and known.ended.identity == asked:
        # A retry after a lost response; it succeeds only when the outcome is the requested one.
        as_asked = known.ended.committed == request.commit
        return end_reply(known.identity, codes.NONE if as_asked else codes.INVALID_TXN_STATE)
    found = identify(state, request.transactional_id, asked)
    if not isinstance(found, TransactionalProducer):
        return end_reply(NO_IDENTITY, found)
    if found.open is None and request.commit:
        return end_reply(found.identity, codes.INVALID_TXN_STATE)
    error = refused if request.commit else codes.NONE
    # As in Kafka, an abort without an open transaction bumps the epoch: a delayed batch would begin a new transaction.
    finish(state, found, Outcome(asked, request.commit and not error), now_ms, effects)
    return end_reply(found.identity, error)


def end_reply(identity: Identity, error: codes.ErrorCode.ValueType) -> pb.EndTransactionResponse:
    """Return the response to EndTransaction, with the identity that the producer uses next."""
    return pb.EndTransactionResponse(
        error_code=error, producer_id=identity.producer_id, producer_epoch=identity.epoch
    )


def finish(
    state: State, known: TransactionalProducer, outcome: Outcome, now_ms: WallMs, effects: Effects
) -> None:
    """End the transaction on behalf of its producer, which continues with the next epoch."""
    write_markers(state, known, outcome, now_ms, effects)
    made = successor(state, known, now_ms, effects)
    state.write(LogEvent(transaction_ended=ended(known.transactional_id, outcome)), effects)
    state.write(LogEvent(producer_registered=made), effects)


def abort_fenced(
    state: State, known: TransactionalProducer, made: ProducerRegistered, now_ms: WallMs, effects: Effects
) -> None:
    """Abort the producer's transaction and fence the producer, in one write; called on a timeout or on InitProducer."""
    outcome = Outcome(known.identity, committed=False)
    write_markers(state, known, outcome, now_ms, effects)
    state.write(LogEvent(producer_registered=made), effects)
    state.write(LogEvent(transaction_ended=ended(known.transactional_id, outcome)), effects)


def write_markers(
    state: State, known: TransactionalProducer, outcome: Outcome, now_ms: WallMs, effects: Effects
) -> None:
    """Write the end of a transaction to each of its partitions and groups: one marker per partition."""
    identity = outcome.identity
    for partition in state.partitions_of(identity.producer_id):
        state.append(marker(partition, outcome, now_ms), effects)
    groups = () if known.open is None else known.open.groups
    effects.endings += [Ending(group_id, *identity, outcome.committed) for group_id in groups]


def marker(partition: Partition, outcome: Outcome, now_ms: WallMs) -> Row:
    """Return the row of the transaction marker in one partition."""
    header = Header(
        base_offset=partition.end,
        count=1,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=outcome.identity.producer_id,
        producer_epoch=outcome.identity.epoch,
        base_sequence=NO_SEQUENCE,
        transactional=True,
        control=Control.COMMIT if outcome.committed else Control.ABORT,
    )
    return Row(partition.log_id, header, now_ms, codec=0, payload=b"")


def successor(
    state: State, known: TransactionalProducer, now_ms: WallMs, effects: Effects
) -> ProducerRegistered:
    """Return the next identity: the same producer id with the next epoch, or a new id after the last epoch."""
    made = known.made()
    made.at_ms = now_ms
    if made.producer_epoch < state.config.epoch_max:
        made.producer_epoch += 1
    else:
        made.producer_id, made.producer_epoch = state.allocate_producer_id(effects), 0
    return made


def expire(state: State, now_ms: WallMs, effects: Effects) -> None:
    """Abort transactions beyond their timeout, and remove transactional ids beyond their expiration."""
    monotonic_ms = state.wall.monotonic(now_ms)
    for known in list(state.producers.open.values()):
        assert known.deadline_ms is not None
        if known.deadline_ms <= monotonic_ms:
            abort_fenced(state, known, successor(state, known, now_ms, effects), now_ms, effects)
    for known in list(unused(state, now_ms)):
        forgotten = ProducerRegistered(transactional_id=known.transactional_id, producer_id=NO_PRODUCER)
        state.write(LogEvent(producer_registered=forgotten), effects)


def unused(state: State, now_ms: WallMs) -> Iterator[TransactionalProducer]:
    """Yield the transactional ids beyond their expiration, the least recently used first."""
    for known in state.producers.transactional.values():
        if known.open is None:
            if known.used_at_ms + state.config.producers_expire_ms > now_ms:
                return
            yield known


def wake_at_ms(state: State) -> int | None:
    """Return the wall-clock time of the next `expire`, as the wall clock is set now; None: nothing expires."""
    producers, ahead_ms = state.producers, state.wall.ahead_ms
    due = [known.deadline_ms + ahead_ms for known in producers.open.values() if known.deadline_ms is not None]
    idle = next((known for known in producers.transactional.values() if known.open is None), None)
    if idle is not None:
        due.append(idle.used_at_ms + state.config.producers_expire_ms)
    return min(due, default=None)
