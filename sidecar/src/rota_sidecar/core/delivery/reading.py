"""
Prefetch: one fetch per fetch session, while its buffer has room.

`delivery` calls `fetch_if_room` for each touched partition, `read` and `failed` for the outcomes.
"""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Core, Timer
from rota_sidecar.core.delivery.partition import FetchSession, PartitionState, Subject

# Prefetch limit in bytes that each partition has, however many there are.
SHARE_MIN_BYTES = 16 << 10
# Errors that the application is notified of. OUT_OF_RANGE is reported when the partition stops.
KINDS = {
    on.FetchError.UNKNOWN_TOPIC: do.ErrorKind.UNKNOWN_TOPIC,
    on.FetchError.DENIED: do.ErrorKind.TOPIC_AUTHORIZATION,
    on.FetchError.CORRUPT: do.ErrorKind.CORRUPT_RECORD,
}


def share_bytes(core: Core) -> int:
    """Return the prefetch limit of each partition in bytes: its share of the total, within its own limit."""
    config = core.config
    share = config.ahead_bytes_total_max // max(len(core.partition_states), 1)
    return min(config.ahead_bytes_max, max(share, SHARE_MIN_BYTES))


def may_read(core: Core) -> bool:
    """Return True if records are to be fetched at all."""
    return not core.config.suspended and core.draining is None and not core.traits.reads_itself


def fetch_if_room(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Fetch, unless a fetch is under way or more than half of the prefetch limit is buffered."""
    if fetch_session.fetches_at is not None or fetch_session.expired or fetch_session.poison is not None:
        return
    if core.now_ms < fetch_session.fetch_retry_ms:
        return
    if not may_read(core):
        return
    ledger, share = fetch_session.ledger, share_bytes(core)
    room = share - ledger.buffered_bytes
    if room > share // 2:
        fetch_session.fetches_at = ledger.position
        core.actions.append(do.Fetch(fetch_session.number, partition_state.partition, ledger.position, room))


def _fetched(core: Core, delivery_epoch: int) -> tuple[PartitionState, FetchSession] | None:
    """Return the partition and session whose fetch has ended; None: the session no longer waits for it."""
    partition_state = core.fetch_sessions.get(delivery_epoch)
    if (
        partition_state is None
        or (fetch_session := partition_state.running) is None
        or fetch_session.fetches_at is None
    ):
        return None
    core.touch(partition_state)
    return partition_state, fetch_session


def read(core: Core, event: on.Read) -> None:
    """Handle a successful fetch: append its batches, and update position and bounds."""
    match _fetched(core, event.delivery_epoch):
        case None:
            return
        case partition_state, fetch_session:
            fetch_session.fetches_at, fetch_session.has_read = None, True
            partition_state.bounds = event.bounds
            partition_state.problems.pop(Subject.READING, None)
            fetch_session.fetch_attempts, fetch_session.unreadable = 0, ""
            # A commit beyond these records has settled them meanwhile.
            if event.next_offset > fetch_session.ledger.position:
                fetch_session.ledger.fetched(event.batches, event.next_offset)


def failed(core: Core, event: on.ReadFailed) -> None:
    """Handle a failed fetch: retry, expire the position, or write an unreadable batch as a dead letter."""
    match _fetched(core, event.delivery_epoch):
        case None:
            return
        case partition_state, fetch_session:
            is_meant, fetch_session.fetches_at = (
                fetch_session.fetches_at == fetch_session.ledger.position,
                None,
            )
            # The position has moved otherwise: the error concerns records that were skipped.
            if is_meant:
                _react(core, partition_state, fetch_session, event)


def fail_poison(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Fail an unreadable batch permanently, once all records before it are done."""
    poison = fetch_session.poison
    if poison is not None and fetch_session.ledger.first_unresolved is None:
        fetch_session.poison, fetch_session.unreadable = None, ""
        fetch_session.ledger.fail_unreadable(poison.batch, poison.next_offset, poison.reason, core.now_ms)
        core.touch(partition_state)


def _react(
    core: Core, partition_state: PartitionState, fetch_session: FetchSession, event: on.ReadFailed
) -> None:
    match event.fetch_error:
        case on.FetchError.CORRUPT if (
            event.unreadable is not None and fetch_session.terms.rules.has_dead_letters
        ):
            fetch_session.poison, fetch_session.unreadable = event.unreadable, event.unreadable.reason
            topic = core.config.dead_letter_topic
            message = f"{event.unreadable.reason}: its bytes are written to dead-letter topic {topic}, and reading continues after it"
            core.report_problem(partition_state, Subject.READING, message)
        case on.FetchError.OUT_OF_RANGE:
            fetch_session.expired = event.message
        case on.FetchError.OTHER_TOPIC:
            # Offsets of the deleted topic must not be committed for the new one.
            initial_position.begin_in_other_topic(core, partition_state, event.message)
        case (
            on.FetchError.UNKNOWN_TOPIC
            | on.FetchError.DENIED
            | on.FetchError.UNREACHABLE
            | on.FetchError.CORRUPT
        ):
            if event.fetch_error is on.FetchError.CORRUPT:
                fetch_session.unreadable = event.message
            core.report_problem(
                partition_state,
                Subject.READING,
                f"records cannot be fetched, retrying: {event.message}",
                KINDS.get(event.fetch_error),
            )
            fetch_session.fetch_retry_ms = core.retry_at(
                Timer.READ, partition_state.partition, fetch_session.fetch_attempts
            )
            fetch_session.fetch_attempts += 1
