"""Requests of the application (commit, seek, pause, resume) and of Fleet (offset reset). Each is answered once."""

from collections.abc import Iterable, Mapping

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Core, PendingRequest
from rota_sidecar.core.delivery.errors import Error
from rota_sidecar.core.delivery.partition import (
    Edge,
    FetchSession,
    PartitionState,
    PendingCommit,
    Revoking,
    Running,
    Stopped,
    Subject,
)
from rota_sidecar.core.member.partitions import Partition

# Limit of pending requests.
PENDING_REQUESTS_MAX = 1_000
SEEKS = {-1: Edge.END, -2: Edge.START}


def handle(core: Core, event: on.ApplicationRequest) -> None:
    """Handle a request of the application; refuse it while too many are pending."""
    if len(core.pending_requests) >= PENDING_REQUESTS_MAX:
        message = f"{PENDING_REQUESTS_MAX} requests are pending: retry when some of them are answered"
        core.actions.append(do.Answer(event.request, pb.COORDINATOR_LOAD_IN_PROGRESS, message=message))
        return
    match event:
        case on.CommitRequested():
            _commit(core, event)
        case on.SeekRequested():
            _seek(core, event)
        case on.PauseRequested():
            _pause(core, event.request, event.partitions, paused=True)
        case on.ResumeRequested():
            _pause(core, event.request, event.partitions, paused=False)


def _begin(
    core: Core, request: int, errors: Mapping[Partition, Error], partition_states: Iterable[PartitionState]
) -> None:
    core.pending_requests[request] = PendingRequest(
        {partition_state.partition for partition_state in partition_states}, dict(errors)
    )


def _split(
    core: Core, partitions: Iterable[Partition], error: Error
) -> tuple[list[PartitionState], dict[Partition, Error]]:
    """Split partitions into the owned ones, sorted, and an error for each of the others."""
    partition_states = [
        core.partition_states[partition]
        for partition in sorted(partitions)
        if partition in core.partition_states
    ]
    return partition_states, dict.fromkeys(sorted(set(partitions) - core.partition_states.keys()), error)


# ---------------------------------------------------------------------------------------------- commits


def _commit(core: Core, event: on.CommitRequested) -> None:
    requested = core.partition_states.keys() if event.offsets is None else event.offsets.keys()
    partition_states, errors = _split(core, requested, pb.ILLEGAL_GENERATION)
    mine = [
        partition_state for partition_state in partition_states if _is_mine(partition_state, event.tenure)
    ]
    others = (
        partition_state for partition_state in partition_states if not _is_mine(partition_state, event.tenure)
    )
    errors |= {partition_state.partition: pb.ILLEGAL_GENERATION for partition_state in others}
    if event.offsets is None:
        # A commit without offsets means the partitions of its tenure only.
        errors = {}
    _begin(core, event.request, errors, mine)
    for partition_state in mine:
        offset = None if event.offsets is None else event.offsets[partition_state.partition]
        if offset is not None:
            _settle(core, partition_state, offset.offset)
        partition_state.pending_commits.append(PendingCommit(event.request, offset))
        core.touch(partition_state)
    core.answer_if_known(event.request)


def _is_mine(partition_state: PartitionState, tenure: int) -> bool:
    """Return True if a request under this tenure may commit the partition; 0: any tenure."""
    if isinstance(partition_state.state, Revoking) and partition_state.state.released:
        return False
    return tenure in (0, partition_state.tenure.number)


def _settle(core: Core, partition_state: PartitionState, offset: int) -> None:
    """Apply an offset to commit as the final verdict on all records before it."""
    fetch_session = partition_state.fetch_session
    if fetch_session is None:
        return
    before = fetch_session.ledger.position
    fetch_session.ledger.settle_below(offset, core.now_ms)
    core.recount(fetch_session)
    if isinstance(partition_state.state, Stopped) and fetch_session.ledger.position != before:
        _resume_reading(partition_state, fetch_session)


def _resume_reading(partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Continue a stopped partition at a position that the application has committed."""
    fetch_session.expired = ""
    partition_state.problems.pop(Subject.BEGINNING, None)
    partition_state.state = Running(fetch_session)


def reset(core: Core, event: on.ResetOffsets) -> None:
    """Commit the offsets of a reset and read from them, if the member is in the generation that was planned for."""
    generation = None if core.tenure is None else core.tenure.generation
    if generation != event.generation:
        message = (
            f"the offset reset was planned for generation {event.generation}, but this member is in "
            f"{'none' if generation is None else f'generation {generation}'}: plan it again"
        )
        core.actions.append(do.Answer(event.request, pb.ILLEGAL_GENERATION, message=message))
        return
    partition_states, errors = _split(core, event.offsets, pb.ILLEGAL_GENERATION)
    going = {
        partition_state.partition: pb.ILLEGAL_GENERATION
        for partition_state in partition_states
        if isinstance(partition_state.state, Revoking)
    }
    wrong = {partition: pb.OFFSET_OUT_OF_RANGE for partition, offset in event.offsets.items() if offset < 0}
    errors |= wrong | going
    mine = [
        partition_state for partition_state in partition_states if partition_state.partition not in errors
    ]
    _begin(core, event.request, errors, mine)
    for partition_state in mine:
        offset = on.RequestedOffset(event.offsets[partition_state.partition])
        partition_state.pending_commits.append(PendingCommit(event.request, offset, seeks=True))
        core.touch(partition_state)
    core.answer_if_known(event.request)


# ---------------------------------------------------------------------------------------------- seeks and pauses


def _seek(core: Core, event: on.SeekRequested) -> None:
    partition_states, errors = _split(core, event.offsets, pb.UNKNOWN_TOPIC_OR_PARTITION)
    for partition_state in partition_states:
        offset = event.offsets[partition_state.partition]
        if isinstance(partition_state.state, Revoking) and (
            partition_state.state.released or offset in SEEKS
        ):
            # A seek to a known offset is committed, so that the next owner starts there; the edges are not known.
            errors[partition_state.partition] = pb.ILLEGAL_GENERATION
        elif offset < min(SEEKS):
            errors[partition_state.partition] = pb.OFFSET_OUT_OF_RANGE
    mine = [
        partition_state for partition_state in partition_states if partition_state.partition not in errors
    ]
    _begin(core, event.request, errors, mine)
    # The number is above all present delivery epochs and below those that the seek begins.
    core.pending_requests[event.request].delivery_epoch = core.number()
    for partition_state in mine:
        offset = event.offsets[partition_state.partition]
        if offset >= 0:
            initial_position.seek(core, partition_state, offset)
            core.answer(event.request, partition_state.partition, offset=offset)
        else:
            initial_position.list_offsets(core, partition_state, SEEKS[offset], event.request)
    if event.request in core.pending_requests:
        core.answer_if_known(event.request)


def _pause(core: Core, request: int, partitions: frozenset[Partition], *, paused: bool) -> None:
    partition_states, errors = _split(core, partitions, pb.UNKNOWN_TOPIC_OR_PARTITION)
    for partition_state in partition_states:
        partition_state.paused = paused
        core.touch(partition_state)
    _begin(core, request, errors, ())
    core.answer_if_known(request)
