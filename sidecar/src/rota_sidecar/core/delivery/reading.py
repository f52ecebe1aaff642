"""Reading ahead: one fetch for each book, as long as there is room."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Core, Timer
from rota_sidecar.core.delivery.partition import Book, Place, Subject

# However many partitions there are, each may read ahead so much.
SHARE_MIN_BYTES = 16 << 10
# Of what the application is told; what is out of range is told when its partition stops.
KINDS = {
    on.Trouble.UNKNOWN_TOPIC: do.ErrorKind.UNKNOWN_TOPIC,
    on.Trouble.DENIED: do.ErrorKind.TOPIC_AUTHORIZATION,
    on.Trouble.CORRUPT: do.ErrorKind.CORRUPT_RECORD,
}


def share_bytes(core: Core) -> int:
    """How much each partition may read ahead, so that all together stay within their bound."""
    config = core.config
    share = config.ahead_bytes_total_max // max(len(core.places), 1)
    return min(config.ahead_bytes_max, max(share, SHARE_MIN_BYTES))


def may_read(core: Core) -> bool:
    """Whether anything is to be read at all."""
    return not core.config.suspended and core.draining is None and not core.traits.reads_itself


def fetch_if_room(core: Core, place: Place, book: Book) -> None:
    """Read on, unless that is under way, or enough was read."""
    if book.fetches_at is not None or book.expired or book.poison is not None:
        return
    if core.now_ms < book.fetch_retry_ms:
        return
    if not may_read(core):
        return
    ledger, share = book.ledger, share_bytes(core)
    room = share - ledger.buffered_bytes
    if room > share // 2:
        book.fetches_at = ledger.position
        core.actions.append(do.Fetch(book.number, place.partition, ledger.position, room))


def _fetched(core: Core, ledger: int) -> tuple[Place, Book] | None:
    """Whose fetch has ended; None = nobody waits for it."""
    place = core.books.get(ledger)
    if place is None or (book := place.running) is None or book.fetches_at is None:
        return None
    core.touch(place)
    return place, book


def read(core: Core, event: on.Read) -> None:
    """Records have come; or only where to read on, or how long the log is."""
    match _fetched(core, event.ledger):
        case None:
            return
        case place, book:
            book.fetches_at = None
            place.bounds = event.bounds
            place.said.pop(Subject.READING, None)
            book.fetch_attempts, book.unreadable = 0, ""
            # An owner that committed further on meanwhile has decided about these.
            if event.next_offset > book.ledger.position:
                book.ledger.fetched(event.batches, event.next_offset)


def failed(core: Core, event: on.ReadFailed) -> None:
    """Nothing has come: it is tried again, or there is nothing to try."""
    match _fetched(core, event.ledger):
        case None:
            return
        case place, book:
            is_meant, book.fetches_at = book.fetches_at == book.ledger.position, None
            # Else its owner has gone on from there meanwhile.
            if is_meant:
                _react(core, place, book, event)


def give_up_poison(core: Core, place: Place, book: Book) -> None:
    """A batch that cannot be read becomes a dead letter, once all records before it are done."""
    poison = book.poison
    if poison is not None and book.ledger.first_unresolved is None:
        book.poison, book.unreadable = None, ""
        book.ledger.give_up(poison.batch, poison.next_offset, poison.reason, core.now_ms)
        core.touch(place)


def _react(core: Core, place: Place, book: Book, event: on.ReadFailed) -> None:
    match event.trouble:
        case on.Trouble.CORRUPT if event.unreadable is not None and book.terms.rules.has_dead_letters:
            book.poison, book.unreadable = event.unreadable, event.unreadable.reason
            topic = core.config.dead_letter_topic
            sentence = f"{event.unreadable.reason}: its bytes become a dead letter in {topic}, and reading goes on behind it"
            core.complain(place, Subject.READING, sentence)
        case on.Trouble.OUT_OF_RANGE:
            book.expired = event.sentence
        case on.Trouble.OTHER_TOPIC:
            # What is done about the old one must not be committed for the new one.
            initial_position.begin_in_other_topic(core, place, event.sentence)
        case on.Trouble.UNKNOWN_TOPIC | on.Trouble.DENIED | on.Trouble.UNREACHABLE | on.Trouble.CORRUPT:
            if event.trouble is on.Trouble.CORRUPT:
                book.unreadable = event.sentence
            core.complain(
                place,
                Subject.READING,
                f"records cannot be read, which is tried again and again: {event.sentence}",
                KINDS.get(event.trouble),
            )
            book.fetch_retry_ms = core.retry_at(Timer.READ, place.partition, book.fetch_attempts)
            book.fetch_attempts += 1
