"""
Commits: which offsets, and when. Called by `delivery` for each partition that an event touched.

One commit is under way at a time: offsets that become due meanwhile are sent together in the next one, so that no commit
overtakes another.
"""

from collections import deque
from collections.abc import Iterator, Mapping

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.config import CommitMode
from rota_sidecar.core.delivery.core import Commit, Core, Sent, Timer
from rota_sidecar.core.delivery.errors import FENCED, TRANSIENT, Error, name_of
from rota_sidecar.core.delivery.partition import PartitionState, PendingCommit, Revoking, Subject
from rota_sidecar.core.ledger.commit_points import CommitPoint, parse_commit_metadata
from rota_sidecar.core.member.partitions import Offset, Partition


def own_point(core: Core, partition_state: PartitionState) -> CommitPoint | None:
    """Return the point that the sidecar commits by itself; None: it commits nothing for this partition."""
    fetch_session = partition_state.fetch_session
    if fetch_session is None or not core.commits_by_itself:
        return None
    match partition_state.state:
        case Revoking(refused=True) | Revoking(released=True):
            return None
        case Revoking(is_finished=True):
            return fetch_session.ledger.close()
        case _:
            is_quiet = core.application is None or core.draining is not None
            return (
                fetch_session.ledger.close()
                if is_quiet and fetch_session.is_replaceable
                else fetch_session.ledger.point
            )


def is_durable(partition_state: PartitionState, point: CommitPoint) -> bool:
    """Return True if this point is committed; metadata is compared by its content."""
    durable = partition_state.durable
    if durable is None or durable.offset != point.offset:
        return False
    return durable.metadata == point.metadata or parse_commit_metadata(
        durable.metadata
    ) == parse_commit_metadata(point.metadata)


def has_settled(core: Core, partition_state: PartitionState) -> bool:
    """Return True if nothing is left to commit, and no commit is under way."""
    point = own_point(core, partition_state)
    is_done = point is None or is_durable(partition_state, point)
    return is_done and not partition_state.pending_commits and not core.is_committing(partition_state)


# ---------------------------------------------------------------------------------------------- due commits


def consider(core: Core, partition_state: PartitionState) -> None:
    """Schedule the partition's next commit: now, or at the end of the commit interval."""
    partition, point = partition_state.partition, own_point(core, partition_state)
    if partition_state.pending_commits:
        _commit_soon(core, partition_state)
    elif point is None or core.is_committing(partition_state):
        return
    elif is_durable(partition_state, point):
        core.changed.pop(partition, None)
        _confirm_commit(partition_state, point)
    elif _is_urgent(core, partition_state, point):
        _commit_soon(core, partition_state)
    else:
        core.changed[partition] = None
        core.timers.setdefault((Timer.COMMIT, None), core.now_ms + core.config.commit_interval_ms)


def accepted_again(core: Core) -> None:
    """Retry now the commits that failed during a rebalance or without a coordinator: the next one would refuse them again."""
    for partition_state in core.partition_states.values():
        if partition_state.commit_attempts:
            _end_backoff(core, partition_state)
            backoff_over(core, partition_state)


def backoff_over(core: Core, partition_state: PartitionState) -> None:
    """Commit what failed to be committed."""
    _commit_soon(core, partition_state)
    core.touch(partition_state)


def _end_backoff(core: Core, partition_state: PartitionState) -> None:
    partition_state.commit_attempts, partition_state.commit_retry_ms = 0, 0
    core.timers.pop((Timer.COMMIT_AGAIN, partition_state.partition), None)


def _commit_soon(core: Core, partition_state: PartitionState) -> None:
    if core.now_ms >= partition_state.commit_retry_ms:
        core.due[partition_state.partition] = None


def _confirm_commit(partition_state: PartitionState, point: CommitPoint) -> None:
    """Confirm the point to a ledger that waits for its commit: an earlier ledger has committed the same point."""
    fetch_session = partition_state.running
    if fetch_session is not None:
        fetch_session.begins = False
        if fetch_session.ledger.awaits_commit and point == fetch_session.ledger.point:
            fetch_session.ledger.committed(point)


def _is_urgent(core: Core, partition_state: PartitionState, point: CommitPoint) -> bool:
    fetch_session, durable = partition_state.fetch_session, partition_state.durable
    if fetch_session is None:
        return False
    if isinstance(partition_state.state, Revoking):
        return partition_state.state.is_finished
    uncommitted = 0 if durable is None else point.offset - durable.offset
    return (
        fetch_session.begins
        or (fetch_session.has_read and bool(fetch_session.expired))
        or core.config.commit_mode is CommitMode.SYNC
        or core.draining is not None
        or (core.application is not None and fetch_session.ledger.awaits_commit)
        or uncommitted >= core.config.rules.in_flight_max
    )


def interval_over(core: Core) -> None:
    """Handle the end of the commit interval: commit all changed partitions."""
    for partition in core.changed:
        if (partition_state := core.partition_states.get(partition)) is not None:
            _commit_soon(core, partition_state)
            core.touch(partition_state)
    core.changed.clear()


# ---------------------------------------------------------------------------------------------- sending


def send(core: Core) -> None:
    """Send one commit with all due partitions, unless one is under way."""
    if core.under_way is not None or not core.due:
        return
    due, core.due = core.due, {}
    sent: dict[Partition, Sent] = {}
    is_manual: bool | None = None
    for partition in due:
        partition_state = core.partition_states.get(partition)
        if partition_state is None:
            continue
        if is_manual not in (None, partition_state.is_manual):
            core.due[partition] = None
        elif (one := _to_send(core, partition_state)) is not None:
            is_manual = partition_state.is_manual
            sent[partition] = one
    if sent:
        request = core.number()
        core.under_way = Commit(request, sent)
        offsets = {partition: one.offset for partition, one in sent.items()}
        core.actions.append(do.Commit(request, offsets, bool(is_manual)))


def _to_send(core: Core, partition_state: PartitionState) -> Sent | None:
    pending_commits = tuple(_next_pending_commits(partition_state))
    point = own_point(core, partition_state)
    if not pending_commits:
        return (
            None
            if point is None or is_durable(partition_state, point)
            else _sent(partition_state, point, pending_commits)
        )
    requested = pending_commits[-1].offset
    if requested is not None:
        metadata = requested.metadata
        if not metadata and point is not None and point.offset == requested.offset:
            # Without it, the ledger would have to commit its metadata again.
            metadata = point.metadata
        return _sent(
            partition_state, CommitPoint(requested.offset, metadata), pending_commits, requested.leader_epoch
        )
    if partition_state.fetch_session is None:
        _answer_pending_commits(core, partition_state, pending_commits, pb.NONE)
        return None
    point = point or partition_state.fetch_session.ledger.point
    if is_durable(partition_state, point):
        _answer_pending_commits(core, partition_state, pending_commits, pb.NONE, point.offset)
        # The ledger may wait for this commit.
        core.touch(partition_state)
        return None
    return _sent(partition_state, point, pending_commits)


def _next_pending_commits(partition_state: PartitionState) -> Iterator[PendingCommit]:
    """Yield and remove the pending commits that one commit fulfils: up to and including the first that seeks."""
    while partition_state.pending_commits:
        pending_commit = partition_state.pending_commits.popleft()
        yield pending_commit
        if pending_commit.seeks:
            return


def _sent(
    partition_state: PartitionState,
    point: CommitPoint,
    pending_commits: tuple[PendingCommit, ...],
    leader_epoch: int = -1,
) -> Sent:
    offset = Offset(partition_state.tenure.number, point.offset, leader_epoch, point.metadata)
    return Sent(partition_state, partition_state.fetch_session, offset, pending_commits)


def _answer_pending_commits(
    core: Core,
    partition_state: PartitionState,
    pending_commits: tuple[PendingCommit, ...],
    error: Error,
    offset: int | None = None,
) -> None:
    for pending_commit in pending_commits:
        core.answer(pending_commit.request, partition_state.partition, error, offset)


# ---------------------------------------------------------------------------------------------- outcomes


def committed(core: Core, event: on.Committed) -> None:
    """Handle the outcome of the commit under way; outcomes of other commits are ignored."""
    if core.under_way is None or core.under_way.request != event.request:
        return
    sent, core.under_way = core.under_way.sent, None
    _notify_application(core, sent, event.errors)
    for partition, one in sent.items():
        error = event.errors.get(partition, pb.UNKNOWN_SERVER_ERROR)
        is_held = core.partition_states.get(partition) is one.partition_state
        if error == pb.NONE:
            _succeeded(core, one, is_held=is_held)
        else:
            _failed(core, one, error, is_held=is_held)
        # A new tenure of the partition may have waited for this outcome too.
        if (partition_state := core.partition_states.get(partition)) is not None:
            core.touch(partition_state)


def _notify_application(
    core: Core, sent: Mapping[Partition, Sent], errors: Mapping[Partition, Error]
) -> None:
    """Notify the application of what was committed without a request of it."""
    if core.application is None or not core.traits.takes_commits:
        return
    offsets = {
        partition: one.offset
        for partition, one in sent.items()
        if not one.pending_commits and errors.get(partition) == pb.NONE
    }
    if offsets:
        core.actions.append(do.OffsetsCommitted(offsets))


def _succeeded(core: Core, one: Sent, *, is_held: bool) -> None:
    partition_state, offset = one.partition_state, one.offset.offset
    core.last_committed[partition_state.partition] = offset
    _answer_pending_commits(core, partition_state, one.pending_commits, pb.NONE, offset)
    if not is_held:
        return
    partition_state.durable = CommitPoint(offset, one.offset.metadata)
    partition_state.committed = offset
    partition_state.problems.pop(Subject.COMMITTING, None)
    _end_backoff(core, partition_state)
    if one.pending_commits and one.pending_commits[-1].seeks:
        _void_pending_commits(core, partition_state)
        initial_position.seek(core, partition_state, offset)
    elif one.fetch_session is None:
        initial_position.committed_by_owner(core, partition_state, offset)
    elif one.fetch_session is partition_state.fetch_session:
        one.fetch_session.begins = False
        one.fetch_session.ledger.committed(partition_state.durable)


def _void_pending_commits(core: Core, partition_state: PartitionState) -> None:
    """Fail the application's pending commits with ILLEGAL_GENERATION: they were made before the reset of the offsets."""
    void = tuple(
        pending_commit for pending_commit in partition_state.pending_commits if not pending_commit.seeks
    )
    partition_state.pending_commits = deque(
        pending_commit for pending_commit in partition_state.pending_commits if pending_commit.seeks
    )
    _answer_pending_commits(core, partition_state, void, pb.ILLEGAL_GENERATION)


def _failed(core: Core, one: Sent, error: Error, *, is_held: bool) -> None:
    partition_state = one.partition_state
    if not is_held:
        answer = pb.ILLEGAL_GENERATION if error in TRANSIENT else error
        _answer_pending_commits(core, partition_state, one.pending_commits, answer)
        return
    # The coordinator may have stored the offset all the same.
    partition_state.durable = None
    partition_state.commit_retry_ms = core.retry_at(
        Timer.COMMIT_AGAIN, partition_state.partition, partition_state.commit_attempts
    )
    partition_state.commit_attempts += 1
    # What became due while this commit was under way waits for the backoff too.
    core.due.pop(partition_state.partition, None)
    if error in TRANSIENT or (error in FENCED and not partition_state.is_manual) or _is_shortened(one, error):
        partition_state.pending_commits.extendleft(reversed(one.pending_commits))
    else:
        _answer_pending_commits(core, partition_state, one.pending_commits, error)
        _refused(core, partition_state, error)


def _is_shortened(one: Sent, error: Error) -> bool:
    """Shorten the metadata of the next commit if the coordinator refused its length; return True if that is possible."""
    if (
        error != pb.OFFSET_METADATA_TOO_LARGE
        or one.fetch_session is None
        or not parse_commit_metadata(one.offset.metadata).completed_ahead
    ):
        return False
    one.fetch_session.ledger.omit_completed_ahead()
    return True


def _refused(core: Core, partition_state: PartitionState, error: Error) -> None:
    core.report_problem(
        partition_state,
        Subject.COMMITTING,
        f"offsets of group {core.config.group_id} cannot be committed: the coordinator answers {name_of(error)}; "
        "the sidecar keeps retrying, correct the cause",
    )
    if isinstance(partition_state.state, Revoking):
        partition_state.state.refused = True
