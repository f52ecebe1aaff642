"""Dead letters: a record that has failed for good is done when it lies in its topic, and not before."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core, Timer
from rota_sidecar.core.delivery.partition import Book, Place, Subject


def write(core: Core, place: Place, book: Book) -> None:
    """Write those that are due, also while the partition is let go."""
    if core.now_ms < book.dead_letter_retry_ms:
        return
    # Those that were due before there was another topic, or none any more, go somewhere too.
    topic = book.dead_letter_topic = core.config.dead_letter_topic or book.dead_letter_topic
    # Some that could not be written may have been decided about in another way meanwhile.
    book.dead_letters_wait = False
    for due in book.ledger.dead_letters():
        dead_letter = core.number()
        core.dead_letters[dead_letter] = (book.number, due.offset)
        book.dead_letters.add(due.offset)
        core.actions.append(
            do.WriteDeadLetter(dead_letter, topic, place.partition, due.piece, due.reason, due.deliveries)
        )


def written(core: Core, event: on.DeadLetterWritten) -> None:
    """It is in its topic; or not, and goes again."""
    number, offset = core.dead_letters.pop(event.dead_letter, (0, 0))
    place = core.books.get(number)
    if place is None or (book := place.book) is None:
        return
    core.touch(place)
    book.dead_letters.discard(offset)
    if event.problem:
        book.ledger.dead_letter_failed(offset)
        book.dead_letters_wait = True
        if core.now_ms >= book.dead_letter_retry_ms:
            book.dead_letter_retry_ms = core.retry_at(
                Timer.DEAD_LETTERS, place.partition, book.dead_letter_attempts
            )
            book.dead_letter_attempts += 1
        topic = book.dead_letter_topic
        core.complain(
            place,
            Subject.DEAD_LETTERS,
            f"dead letters cannot be written to {topic}, which is tried again and again: {event.problem}",
        )
        return
    book.ledger.dead_letter_written(offset)
    core.recount(book)
    book.dead_letter_attempts = 0
    place.said.pop(Subject.DEAD_LETTERS, None)
