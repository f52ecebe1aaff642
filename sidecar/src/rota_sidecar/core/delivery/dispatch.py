"""
Dispatch: which partition is next, and how many of its records, by credit, lanes, priorities, round robin and rate.

`delivery` queues each touched partition with `queue`, then calls `dispatch_ready` once per round of a step.
"""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.core import Core, InGroup, Timer
from rota_sidecar.core.delivery.partition import FetchSession, PartitionState
from rota_sidecar.core.ledger.batches import Ordering

# Limit of records that a partition dispatches in one turn of the round robin.
TURN_RECORDS_MAX = 1_000
# The token bucket of the rate limit holds the tokens of 1/RATE_SPAN seconds.
RATE_SPAN = 10


def queue(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Add the partition to the dispatch queues, or remove it, by the state of its ledger."""
    partition, ledger = partition_state.partition, fetch_session.ledger
    if ledger.wants_alone:
        core.isolated_partitions.setdefault(partition, partition_state)
    else:
        core.isolated_partitions.pop(partition, None)
    if ledger.waiting and not ledger.stopped:
        core.dispatch_queue.setdefault(partition, partition_state)
    else:
        core.dispatch_queue.pop(partition, None)
    _wake_for_retries(core, partition_state, fetch_session)


def _wake_for_retries(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    wake_ms = fetch_session.ledger.wake_ms
    if wake_ms is not None and wake_ms > core.now_ms:
        core.timers[Timer.RETRY, partition_state.partition] = wake_ms
    else:
        core.timers.pop((Timer.RETRY, partition_state.partition), None)


def _is_open(core: Core) -> bool:
    return (
        core.application is not None
        and isinstance(core.membership, InGroup)
        and core.draining is None
        and not core.config.suspended
        and not core.traits.reads_itself
    )


def _takes_part(core: Core, partition_state: PartitionState) -> FetchSession | None:
    """Return the fetch session if its records may be dispatched; each change of this touches the partition."""
    fetch_session = partition_state.running
    if (
        fetch_session is None
        or not partition_state.acknowledged
        or partition_state.paused
        or fetch_session.terms != core.terms
    ):
        return None
    return fetch_session


def dispatch_ready(core: Core) -> None:
    """Dispatch as many records as credit, lanes and rate allow."""
    if not _is_open(core):
        return
    isolated = _first_isolated(core)
    if isolated is not None:
        partition_state, fetch_session = isolated
        # An isolated record waits until no other record is in flight.
        if (
            core.in_flight == fetch_session.in_flight
            and not partition_state.paused
            and not fetch_session.ledger.awaits_commit
        ):
            _dispatch(core, partition_state, fetch_session, _budget(core), alone=True)
        return
    while core.dispatch_queue and _budget(core) > 0:
        before = len(core.dispatch_queue)
        given = [_dispatch_from(core, partition_state) for partition_state in _candidates(core)]
        # After partitions have left the queue, partitions of a lower priority may be candidates.
        if not any(given) and len(core.dispatch_queue) == before:
            return


def _first_isolated(core: Core) -> tuple[PartitionState, FetchSession] | None:
    """Return the first partition with an isolated record; the others wait, also while its commit is awaited."""
    for partition_state in core.isolated_partitions.values():
        fetch_session = partition_state.running
        if fetch_session is not None and (fetch_session.in_flight or _takes_part(core, partition_state)):
            return partition_state, fetch_session
    return None


def _candidates(core: Core) -> list[PartitionState]:
    """Return the queued partitions of the highest priority."""
    priorities = core.config.priorities
    if not priorities:
        return list(core.dispatch_queue.values())
    by_priority: dict[int, list[PartitionState]] = {}
    for partition, partition_state in core.dispatch_queue.items():
        by_priority.setdefault(priorities.get(partition.topic, 0), []).append(partition_state)
    return by_priority[max(by_priority)]


def _dispatch_from(core: Core, partition_state: PartitionState) -> bool:
    """Dispatch records of this partition; return True if there were any."""
    budget = _budget(core)
    fetch_session = _takes_part(core, partition_state)
    if fetch_session is None or fetch_session.ledger.awaits_commit:
        del core.dispatch_queue[partition_state.partition]
        return False
    if budget <= 0 or not _has_lane(core, partition_state, fetch_session):
        return False
    # The partition moves to the end of the queue, or leaves it until it is touched.
    del core.dispatch_queue[partition_state.partition]
    given = _dispatch(core, partition_state, fetch_session, min(budget, TURN_RECORDS_MAX), alone=False)
    if given and fetch_session.ledger.waiting:
        core.dispatch_queue[partition_state.partition] = partition_state
    return given


def _has_lane(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> bool:
    if core.lanes < core.config.concurrency:
        return True
    if fetch_session.terms.rules.ordering is not Ordering.PARTITION or not fetch_session.lanes:
        return False
    # The first partition of the queue has waited longest. While it has no lane, the others get no further records on the lanes
    # that they have: it would wait until they have no records left.
    first = _candidates(core)[0] if core.config.priorities else next(iter(core.dispatch_queue.values()))
    return first is partition_state or (first.running is not None and first.running.lanes > 0)


def _dispatch(
    core: Core, partition_state: PartitionState, fetch_session: FetchSession, records_max: int, *, alone: bool
) -> bool:
    ledger, lanes_max = fetch_session.ledger, max(core.config.concurrency - core.lanes, 0)
    if records_max <= 0:
        return False
    awaited, wanted = ledger.awaits_commit, ledger.wants_alone
    dispatches = ledger.take(records_max, lanes_max, core.now_ms, alone=alone)
    for dispatch in dispatches:
        core.actions.append(
            do.Deliver(fetch_session.number, partition_state.partition, partition_state.tenure, dispatch)
        )
    _spend(core, sum(dispatch.count for dispatch in dispatches))
    core.recount(fetch_session)
    if dispatches:
        core.watch_progress()
    may_read_on = bool(dispatches) and fetch_session.fetches_at is None
    if may_read_on or (ledger.awaits_commit, ledger.wants_alone) != (awaited, wanted):
        # The buffer may have room for a fetch, or a commit may be due before the next dispatch.
        core.touch(partition_state)
    else:
        _wake_for_retries(core, partition_state, fetch_session)
    return bool(dispatches)


# ---------------------------------------------------------------------------------------------- credit and rate


def _budget(core: Core) -> int:
    """Return the number of records that may be dispatched now, by credit and rate."""
    assert core.application is not None
    credit, rate = core.application.credit, core.config.rate_max
    if not rate or not credit:
        return credit
    most = max(rate / RATE_SPAN, 1)
    core.tokens = min(most, core.tokens + rate * (core.now_ms - core.tokens_ms) / 1000)
    core.tokens_ms = core.now_ms
    if core.tokens < 1:
        core.timers[Timer.RATE, None] = core.now_ms + 1 + int((most - core.tokens) * 1000 / rate)
    return min(credit, int(core.tokens))


def _spend(core: Core, records: int) -> None:
    assert core.application is not None
    core.application.credit -= records
    if core.config.rate_max:
        core.tokens -= records


def credit(core: Core, records: int) -> None:
    """Add to the number of records that the application accepts."""
    if core.application is not None:
        core.application.credit += max(records, 0)
