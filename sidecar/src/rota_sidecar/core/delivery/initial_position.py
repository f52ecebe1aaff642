"""
Initial position of a partition: the committed offset; without one, or outside of the log, the position of the settings.

`delivery` calls `assigned` for a new partition; the outcomes of FetchCommitted and ListOffsets lead to its first fetch
session. A partition that this sidecar never owned, of a topic of which it owned others, was created later and starts at
its first record, if the sidecar commits by itself.
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
COMMIT_VANISHED = PartitionProblem("the committed offset has vanished", do.ErrorKind.NO_OFFSET)
NOT_THERE = "it does not exist: create the topic, or remove it from the group's subscription"


def assigned(core: Core, event: on.Assigned) -> None:
    """Add newly assigned partitions; their committed offsets are fetched next."""
    core.tenure = event.tenure
    if event.is_manual or isinstance(core.membership, OutOfGroup):
        core.membership = InGroup()
    known_topics = frozenset(core.known_partitions)
    for partition in sorted(event.partitions):
        known_partitions = core.known_partitions.setdefault(partition.topic, set())
        appeared_later = (
            core.commits_by_itself and partition.topic in known_topics and partition not in known_partitions
        )
        known_partitions.add(partition)
        partition_state = PartitionState(partition, event.tenure, event.is_manual, appeared_later)
        core.partition_states[partition] = partition_state
        core.touch(partition_state)


def is_due(core: Core, state: FetchingCommitted | ResolvingOffset) -> bool:
    """Return True if the lookup is to be sent now."""
    return state.request is None and core.now_ms >= state.retry_ms


def request_offsets(core: Core, partition_states: Iterable[PartitionState]) -> None:
    """Send the due lookups of these partitions, in one request of each kind."""
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


# ---------------------------------------------------------------------------------------------- committed offsets


def found(core: Core, event: on.CommittedFetched) -> None:
    """Handle the outcome of FetchCommitted: start at the committed offset, or schedule another fetch."""
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
    """Return True if a commit is under way or pending: it decides the position, and the fetched offset is older."""
    return bool(partition_state.pending_commits) or core.is_committing(partition_state)


def _report_failed_fetch(core: Core, partition_state: PartitionState, error: Error) -> None:
    if error not in TRANSIENT:
        core.report_problem(
            partition_state,
            Subject.BEGINNING,
            f"committed offsets of group {core.config.group_id} cannot be fetched: the coordinator answers "
            f"{name_of(error)}; the sidecar keeps retrying, correct the cause",
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
    """Start at the position of the settings, or stop; `fetch_session` is the former one, whose verdicts are still committed."""
    if reset is Reset.NONE:
        message = f"group {core.config.group_id} has no position to read from: {why.message}; {REMEDY}"
        core.report_problem(partition_state, Subject.BEGINNING, message, why.kind)
        if fetch_session is None:
            core.drop_fetch_session(partition_state)
        partition_state.state = Stopped(message, fetch_session)
        core.dequeue(partition_state)
    else:
        list_offsets(core, partition_state, EDGES[reset])


# ---------------------------------------------------------------------------------------------- start and end of the log


def list_offsets(
    core: Core, partition_state: PartitionState, edge: Edge, seek_request: int | None = None
) -> None:
    """Start at an edge of the log once its offset is known; records in flight are void."""
    core.drop_fetch_session(partition_state)
    core.answer_lookup(partition_state)
    partition_state.state = ResolvingOffset(edge, seek_request)
    core.touch(partition_state)


def offsets_listed(core: Core, event: on.OffsetsListed) -> None:
    """Handle the outcome of ListOffsets: start the partitions that waited for it, or schedule another one."""
    for partition_state in list(core.partition_states.values()):
        match partition_state.state:
            case ResolvingOffset(request=event.request) as state:
                bounds = event.bounds.get(partition_state.partition)
                if bounds is None:
                    core.report_problem(
                        partition_state,
                        Subject.BEGINNING,
                        f"the start and end offsets cannot be listed: {event.problem or NOT_THERE}",
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
    """Return the error kind of a partition without bounds; without a problem, the partition does not exist."""
    if event.refused:
        return do.ErrorKind.TOPIC_AUTHORIZATION
    return None if event.problem else do.ErrorKind.UNKNOWN_TOPIC


def _begin_at_edge(
    core: Core, partition_state: PartitionState, state: ResolvingOffset, bounds: on.Bounds
) -> None:
    partition_state.bounds = bounds
    offset = bounds.start if state.edge is Edge.START else bounds.end
    open_fetch_session(core, partition_state, offset, begins=True)


# ---------------------------------------------------------------------------------------------- fetch sessions


def open_fetch_session(
    core: Core,
    partition_state: PartitionState,
    offset: int,
    *,
    commit_metadata: CommitMetadata | None = None,
    begins: bool = False,
) -> None:
    """Read from `offset` under a new delivery epoch; records in flight are void."""
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
    """Read from the offset of a seek; during a revocation, the next owner starts there."""
    partition_state.reported = partition_state.reported_time = None
    going = partition_state.state if isinstance(partition_state.state, Revoking) else None
    open_fetch_session(core, partition_state, offset, begins=True)
    if going is not None:
        going.fetch_session, partition_state.state = partition_state.fetch_session, going


def renew(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Replace the fetch session by one under the present terms, at the same position."""
    point = fetch_session.ledger.close()
    open_fetch_session(
        core,
        partition_state,
        point.offset,
        commit_metadata=parse_commit_metadata(point.metadata),
        begins=fetch_session.begins,
    )


def begin_at_committed(core: Core, partition_state: PartitionState) -> None:
    """Start again at the committed offset: uncommitted verdicts of a detached application are void."""
    partition_state.reported = partition_state.reported_time = None
    if isinstance(partition_state.state, Running):
        core.drop_fetch_session(partition_state)
        partition_state.state = FetchingCommitted()
        core.touch(partition_state)


# ---------------------------------------------------------------------------------------------- expired offsets


def expire(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Leave a position that is no longer in the log. Called once no record is in flight."""
    if fetch_session.has_read and core.commits_by_itself and not fetch_session.unreadable:
        # It was there before. A log that was restored from a backup ends below, and the group's offsets are those of the backup: they
        # are fetched under the member's generation, which such a group refuses. If they are outside of the log too, it is an expiry.
        begin_at_committed(core, partition_state)
        return
    core.last_committed.pop(partition_state.partition, None)
    if fetch_session.unreadable:
        # An operator deleted records that could not be read. The rest is read, whatever the settings say.
        list_offsets(core, partition_state, Edge.START)
        return
    reset = core.config.on_offset_expired
    if reset is not Reset.NONE:
        core.report_problem(
            partition_state,
            Subject.READING,
            f"group {core.config.group_id} continues at the {reset.value} record, as configured for expired offsets: "
            f"{fetch_session.expired}",
        )
    _begin_by_policy(
        core,
        partition_state,
        reset,
        PartitionProblem(fetch_session.expired, do.ErrorKind.OFFSET_OUT_OF_RANGE),
        fetch_session,
    )


def begin_in_other_topic(core: Core, partition_state: PartitionState, why: str) -> None:
    """Start by the settings in a topic that was deleted and created again under the same name."""
    partition_state.durable = None
    problem = PartitionProblem(why, do.ErrorKind.OFFSET_OUT_OF_RANGE)
    _begin_by_policy(core, partition_state, core.config.on_offset_expired, problem)


def retry_stopped(core: Core) -> None:
    """Try again to start stopped partitions, after a change of the settings."""
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
    """Start at an offset that the application committed while the position was unknown."""
    match partition_state.state:
        case FetchingCommitted() | ResolvingOffset(seek_request=None) | Stopped(fetch_session=None):
            # Pending commits of higher offsets are verdicts too.
            later = [
                pending_commit.offset.offset
                for pending_commit in partition_state.pending_commits
                if pending_commit.offset is not None and not pending_commit.seeks
            ]
            open_fetch_session(core, partition_state, max([offset, *later]))
        case ResolvingOffset() | Running() | Stopped() | Revoking():
            return
