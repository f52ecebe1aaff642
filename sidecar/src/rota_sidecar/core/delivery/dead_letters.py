"""Dead letters: a record that failed permanently is done when its dead letter is durable, and not before."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core, Timer
from rota_sidecar.core.delivery.partition import FetchSession, PartitionState, Subject


def write(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    """Write the dead letters that are due, also during a revocation."""
    if core.now_ms < fetch_session.dead_letter_retry_ms:
        return
    # Dead letters that are due when the setting is removed go to the former topic.
    topic = fetch_session.dead_letter_topic = core.config.dead_letter_topic or fetch_session.dead_letter_topic
    # A record whose dead letter could not be written may have been settled by a commit or a skip since.
    fetch_session.dead_letters_wait = False
    for due in fetch_session.ledger.dead_letters():
        dead_letter = core.number()
        core.dead_letters[dead_letter] = (fetch_session.number, due.offset)
        fetch_session.dead_letters.add(due.offset)
        core.actions.append(
            do.WriteDeadLetter(
                dead_letter, topic, partition_state.partition, due.batch_slice, due.reason, due.deliveries
            )
        )


def written(core: Core, event: on.DeadLetterWritten) -> None:
    """Handle the outcome of a write: complete the record, or schedule another attempt."""
    number, offset = core.dead_letters.pop(event.dead_letter, (0, 0))
    partition_state = core.fetch_sessions.get(number)
    if partition_state is None or (fetch_session := partition_state.fetch_session) is None:
        return
    core.touch(partition_state)
    fetch_session.dead_letters.discard(offset)
    if event.problem:
        fetch_session.ledger.dead_letter_failed(offset)
        fetch_session.dead_letters_wait = True
        if core.now_ms >= fetch_session.dead_letter_retry_ms:
            fetch_session.dead_letter_retry_ms = core.retry_at(
                Timer.DEAD_LETTERS, partition_state.partition, fetch_session.dead_letter_attempts
            )
            fetch_session.dead_letter_attempts += 1
        topic = fetch_session.dead_letter_topic
        core.report_problem(
            partition_state,
            Subject.DEAD_LETTERS,
            f"dead letters cannot be written to {topic}, retrying: {event.problem}",
        )
        return
    fetch_session.ledger.dead_letter_written(offset)
    core.recount(fetch_session)
    fetch_session.dead_letter_attempts = 0
    partition_state.problems.pop(Subject.DEAD_LETTERS, None)
