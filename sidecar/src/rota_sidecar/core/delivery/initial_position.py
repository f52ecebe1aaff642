"""
The initial position of a partition: the committed offset; without one, or outside of the log, the position of the
settings.

A partition counts as one that appeared later, and starts at its first record, when this sidecar commits by itself,
had others of the topic before, and never had this one.
"""

from collections.abc import Iterable

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import Reset
from rota_sidecar.core.delivery.core import Core, InGroup, OutOfGroup, Timer
from rota_sidecar.core.delivery.errors import TRANSIENT, Error, name_of
from rota_sidecar.core.delivery.partition import (
    Edge,
    FetchingCommitted,
    FetchSession,
    PartitionProblem,
    PartitionState,
    ResolvingOffset,
    Revoking,
    Running,
    Stopped,
    Subject,
)
from rota_sidecar.core.ledger.commit_points import CommitMetadata, CommitPoint, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Partition

EDGES = {Reset.EARLIEST: Edge.START, Reset.LATEST: Edge.END}
REMEDY = "seek, or reset the offsets of the group"
KINDS = {
    pb.GROUP_AUTHORIZATION_FAILED: do.ErrorKind.GROUP_AUTHORIZATION,
    pb.TOPIC_AUTHORIZATION_FAILED: do.ErrorKind.TOPIC_AUTHORIZATION,
}
NO_COMMIT = PartitionProblem("nothing is committed", do.ErrorKind.NO_OFFSET)
COMMIT_VANISHED = PartitionProblem("what was committed has vanished", do.ErrorKind.NO_OFFSET)
NOT_THERE = "it does not exist: create the topic, or leave it out of the group's subscription"


def assigned(core: Core, event: on.Assigned) -> None:
    """The member has these from now on."""
    core.tenure = event.tenure
    if event.is_manual or isinstance(core.membership, OutOfGroup):
        core.membership = InGroup()
    known = frozenset(core.known_partitions)
    for partition in sorted(event.partitions):
        known_partitions = core.known_partitions.setdefault(partition.topic, set())
        appeared_later = (
            core.commits_by_itself and partition.topic in known and partition not in known_partitions
        )
        known_partitions.add(partition)
        partition_state = PartitionState(partition, event.tenure, event.is_manual, appeared_later)
        core.partition_states[partition] = partition_state
        core.touch(partition_state)


def is_due(core: Core, state: FetchingCommitted | ResolvingOffset) -> bool:
    """Return true if the lookup is to be sent now."""
    return state.request is None and core.now_ms >= state.retry_ms


def request_offsets(core: Core, partition_states: Iterable[PartitionState]) -> None:
    """Look up, in as few requests as can be, what is to be known of these."""
    fetches: dict[bool, list[PartitionState]] = {}
    lookups: list[PartitionState] = []
    for partition_state in partition_states:
        match partition_state.state:
            case FetchingCommitted() as state if is_due(core, state):
                fetches.setdefault(partition_state.is_manual, []).append(partition_state)
            case ResolvingOffset() as state if is_due(core, state):
                lookups.append(partition_state)
            case _:
                pass
    for is_manual, found in fetches.items():
        core.actions.append(do.FetchCommitted(_begin_request(core, found), _names(found), is_manual))
    if lookups:
        core.actions.append(do.ListOffsets(_begin_request(core, lookups), _names(lookups)))


def _names(partition_states: Iterable[PartitionState]) -> frozenset[Partition]:
    return frozenset(partition_state.partition for partition_state in partition_states)


def _begin_request(core: Core, partition_states: Iterable[PartitionState]) -> int:
    request = core.number()
    for partition_state in partition_states:
        assert isinstance(partition_state.state, FetchingCommitted | ResolvingOffset)
        partition_state.state.request = request
    return request


def _retry_later(
    core: Core, partition_state: PartitionState, state: FetchingCommitted | ResolvingOffset
) -> None:
    state.request = None
    state.retry_ms = core.retry_at(Timer.BEGIN, partition_state.partition, state.attempt)
    state.attempt += 1


# ---------------------------------------------------------------------------------------------- what is committed


def found(core: Core, event: on.CommittedFetched) -> None:
    """Start at the committed offset, or schedule another lookup."""
    for partition_state in list(core.partition_states.values()):
        match partition_state.state:
            case FetchingCommitted(request=event.request) as state:
                stored = event.offsets.get(partition_state.partition)
                error = event.error or (pb.UNKNOWN_SERVER_ERROR if stored is None else stored.error)
                if error != pb.NONE or stored is None:
                    _report_failed_fetch(core, partition_state, error)
                    _retry_later(core, partition_state, state)
                elif _is_being_decided(core, partition_state):
                    _retry_later(core, partition_state, state)
                else:
                    _begin(core, partition_state, stored)
            case _:
                pass


def _is_being_decided(core: Core, partition_state: PartitionState) -> bool:
    """Return true if a commit is under way or pending: it decides the position, and the fetched offset is older."""
    return bool(partition_state.pending_commits) or core.is_committing(partition_state)


def _report_failed_fetch(core: Core, partition_state: PartitionState, error: Error) -> None:
    if error not in TRANSIENT:
        core.report_problem(
            partition_state,
            Subject.BEGINNING,
            f"what group {core.config.group_id} has committed cannot be read, the coordinator says "
            f"{name_of(error)}: it is tried again and again, mend what that names",
            KINDS.get(error),
        )


def _begin(core: Core, partition_state: PartitionState, stored: on.Stored) -> None:
    partition_state.problems.pop(Subject.BEGINNING, None)
    if stored.offset >= 0:
        partition_state.durable = CommitPoint(stored.offset, stored.metadata)
        partition_state.committed = stored.offset
        core.last_committed[partition_state.partition] = stored.offset
        open_fetch_session(
            core, partition_state, stored.offset, commit_metadata=parse_commit_metadata(stored.metadata)
        )
    elif partition_state.partition in core.last_committed:
        _begin_by_policy(core, partition_state, core.config.on_offset_expired, COMMIT_VANISHED)
    elif partition_state.appeared_later:
        list_offsets(core, partition_state, Edge.START)
    else:
        _begin_by_policy(core, partition_state, core.config.initial_offset, NO_COMMIT)


def _begin_by_policy(
    core: Core,
    partition_state: PartitionState,
    reset: Reset,
    why: PartitionProblem,
    fetch_session: FetchSession | None = None,
) -> None:
    """Start at the position of the settings; `fetch_session` is the one before, if any."""
    if reset is Reset.NONE:
        message = f"group {core.config.group_id} does not know where to read on: {why.message}; {REMEDY}"
        core.report_problem(partition_state, Subject.BEGINNING, message, why.kind)
        if fetch_session is None:
            core.drop_fetch_session(partition_state)
        partition_state.state = Stopped(message, fetch_session)
        core.dequeue(partition_state)
    else:
        list_offsets(core, partition_state, EDGES[reset])


# ---------------------------------------------------------------------------------------------- the ends of the log


def list_offsets(
    core: Core, partition_state: PartitionState, edge: Edge, seek_request: int | None = None
) -> None:
    """Begin at an end of the log, as soon as it is known where that is; what was in hand is void."""
    core.drop_fetch_session(partition_state)
    core.answer_lookup(partition_state)
    partition_state.state = ResolvingOffset(edge, seek_request)
    core.touch(partition_state)


def offsets_listed(core: Core, event: on.OffsetsListed) -> None:
    """Start the partitions that waited for the ends of their logs."""
    for partition_state in list(core.partition_states.values()):
        match partition_state.state:
            case ResolvingOffset(request=event.request) as state:
                bounds = event.bounds.get(partition_state.partition)
                if bounds is None:
                    core.report_problem(
                        partition_state,
                        Subject.BEGINNING,
                        f"the ends of the log cannot be looked up: {event.problem or NOT_THERE}",
                        _kind_of(event),
                    )
                    _retry_later(core, partition_state, state)
                elif state.seek_request is None and _is_being_decided(core, partition_state):
                    _retry_later(core, partition_state, state)
                else:
                    _begin_at_edge(core, partition_state, state, bounds)
            case _:
                pass


def _kind_of(event: on.OffsetsListed) -> do.ErrorKind | None:
    """Of a partition without an answer: where nothing went wrong, it does not exist."""
    if event.refused:
        return do.ErrorKind.TOPIC_AUTHORIZATION
    return None if event.problem else do.ErrorKind.UNKNOWN_TOPIC


def _begin_at_edge(
    core: Core, partition_state: PartitionState, state: ResolvingOffset, bounds: on.Bounds
) -> None:
    partition_state.bounds = bounds
    offset = bounds.start if state.edge is Edge.START else bounds.end
    open_fetch_session(core, partition_state, offset, begins=True)


# ---------------------------------------------------------------------------------------------- books


def open_fetch_session(
    core: Core,
    partition_state: PartitionState,
    offset: int,
    *,
    commit_metadata: CommitMetadata | None = None,
    begins: bool = False,
) -> None:
    """Read on from there, with nothing in hand: what was in hand is void."""
    core.drop_fetch_session(partition_state)
    core.answer_lookup(partition_state)
    partition_state.problems.pop(Subject.BEGINNING, None)
    terms = core.terms
    ledger = Ledger(
        offset, terms.rules, (commit_metadata or CommitMetadata()) if terms.has_metadata else None
    )
    fetch_session = FetchSession(core.number(), ledger, terms, begins=begins)
    partition_state.state = Running(fetch_session)
    core.add_fetch_session(partition_state, fetch_session)
    if partition_state.reported is not None:
        ledger.settle_below(partition_state.reported, core.now_ms)
    core.touch(partition_state)


def seek(core: Core, partition_state: PartitionState, offset: int) -> None:
    """The owner wants to read on from there."""
    partition_state.reported = partition_state.reported_ms = None
    going = partition_state.state if isinstance(partition_state.state, Revoking) else None
    open_fetch_session(core, partition_state, offset, begins=True)
    if going is not None:
        # Whoever has it next does; what is in hand counts for nothing.
        going.fetch_session, partition_state.state = partition_state.fetch_session, going


def renew(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Go on where it stands, under the terms of now."""
    point = fetch_session.ledger.close()
    open_fetch_session(
        core,
        partition_state,
        point.offset,
        commit_metadata=parse_commit_metadata(point.metadata),
        begins=fetch_session.begins,
    )


def begin_at_committed(core: Core, partition_state: PartitionState) -> None:
    """Start again at the committed offset: verdicts that were not committed are void with their application."""
    partition_state.reported = partition_state.reported_ms = None
    if isinstance(partition_state.state, Running):
        core.drop_fetch_session(partition_state)
        partition_state.state = FetchingCommitted()
        core.touch(partition_state)


# ---------------------------------------------------------------------------------------------- what is no longer there


def expire(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Leave a position at which the log has no records any more, once no record is in flight."""
    core.last_committed.pop(partition_state.partition, None)
    if fetch_session.unreadable:
        # What could not be read was deleted to get past it; all that is left is read, whatever the settings say.
        list_offsets(core, partition_state, Edge.START)
        return
    reset = core.config.on_offset_expired
    if reset is not Reset.NONE:
        core.report_problem(
            partition_state,
            Subject.READING,
            f"group {core.config.group_id} reads on at the {reset.value} record, as set for offsets that have "
            f"expired: {fetch_session.expired}",
        )
    _begin_by_policy(
        core,
        partition_state,
        reset,
        PartitionProblem(fetch_session.expired, do.ErrorKind.OFFSET_OUT_OF_RANGE),
        fetch_session,
    )


def begin_in_other_topic(core: Core, partition_state: PartitionState, why: str) -> None:
    """A topic was made again under the same name: its records are others."""
    partition_state.durable = None
    problem = PartitionProblem(why, do.ErrorKind.OFFSET_OUT_OF_RANGE)
    _begin_by_policy(core, partition_state, core.config.on_offset_expired, problem)


def retry_stopped(core: Core) -> None:
    """Other settings may know where to begin."""
    for partition_state in core.partition_states.values():
        match partition_state.state:
            case Stopped(fetch_session=None):
                partition_state.state = FetchingCommitted()
                core.touch(partition_state)
            case Stopped(fetch_session=FetchSession() as fetch_session):
                partition_state.state = Running(fetch_session)
                core.touch(partition_state)
            case _:
                pass


def committed_by_owner(core: Core, partition_state: PartitionState, offset: int) -> None:
    """The owner has committed while nobody knew where to begin: there, then."""
    match partition_state.state:
        case FetchingCommitted() | ResolvingOffset(seek_request=None) | Stopped(fetch_session=None):
            # What else it wants to have committed are verdicts too.
            later = [
                pending_commit.offset.offset
                for pending_commit in partition_state.pending_commits
                if pending_commit.offset is not None and not pending_commit.seeks
            ]
            open_fetch_session(core, partition_state, max([offset, *later]))
        case ResolvingOffset() | Running() | Stopped() | Revoking():
            return
