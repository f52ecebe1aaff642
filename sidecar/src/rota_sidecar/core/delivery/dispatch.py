"""Who hands out next, and how much: credit, lanes, priorities, turns, the rate."""

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.core import Core, Timer, Within
from rota_sidecar.core.delivery.partition import Book, Place
from rota_sidecar.core.ledger.batches import Ordering

# In one turn, when others wait.
TURN_RECORDS_MAX = 1_000
# The rate is kept over this part of a second.
RATE_SPAN = 10


def queue(core: Core, place: Place, book: Book) -> None:
    """See whether it may have something to hand out; where nothing came of that, something has to happen to it first."""
    partition, ledger = place.partition, book.ledger
    if ledger.wants_alone:
        core.loners.setdefault(partition, place)
    else:
        core.loners.pop(partition, None)
    if ledger.waiting and not ledger.stopped:
        core.turns.setdefault(partition, place)
    else:
        core.turns.pop(partition, None)
    _wake_for_retries(core, place, book)


def _wake_for_retries(core: Core, place: Place, book: Book) -> None:
    wake_ms = book.ledger.wake_ms
    if wake_ms is not None and wake_ms > core.now_ms:
        core.timers[Timer.RETRY, place.partition] = wake_ms
    else:
        core.timers.pop((Timer.RETRY, place.partition), None)


def _is_open(core: Core) -> bool:
    return (
        core.application is not None
        and isinstance(core.membership, Within)
        and core.draining is None
        and not core.config.suspended
        and not core.traits.reads_itself
    )


def _takes_part(core: Core, place: Place) -> Book | None:
    """The book, if it is handed out of at all now; that changes only with something that is noticed."""
    book = place.running
    if book is None or not place.acknowledged or place.paused or book.terms != core.terms:
        return None
    return book


def dispatch_ready(core: Core) -> None:
    """As much as may be."""
    if not _is_open(core):
        return
    loner = _first_loner(core)
    if loner is not None:
        place, book = loner
        # The others have to come in first.
        if core.in_flight == book.in_flight and not place.paused and not book.ledger.awaits_commit:
            _give(core, place, book, _budget(core), alone=True)
        return
    while core.turns and _budget(core) > 0:
        before = len(core.turns)
        given = [_take_turn(core, place) for place in _turns(core)]
        # Where some have left the queue others may come first now.
        if not any(given) and len(core.turns) == before:
            return


def _first_loner(core: Core) -> tuple[Place, Book] | None:
    """The one that the others wait for; also while it waits itself, for its mark to be committed."""
    for place in core.loners.values():
        book = place.running
        if book is not None and (book.in_flight or _takes_part(core, place)):
            return place, book
    return None


def _turns(core: Core) -> list[Place]:
    """Those of the highest priority that have something."""
    priorities = core.config.priorities
    if not priorities:
        return list(core.turns.values())
    by_priority: dict[int, list[Place]] = {}
    for partition, place in core.turns.items():
        by_priority.setdefault(priorities.get(partition.topic, 0), []).append(place)
    return by_priority[max(by_priority)]


def _take_turn(core: Core, place: Place) -> bool:
    """Whether anything came of it."""
    budget = _budget(core)
    book = _takes_part(core, place)
    if book is None or book.ledger.awaits_commit:
        del core.turns[place.partition]
        return False
    if budget <= 0 or not _has_lane(core, place, book):
        return False
    # To the end of the queue; or out of it, until something happens.
    del core.turns[place.partition]
    given = _give(core, place, book, min(budget, TURN_RECORDS_MAX), alone=False)
    if given and book.ledger.waiting:
        core.turns[place.partition] = place
    return given


def _has_lane(core: Core, place: Place, book: Book) -> bool:
    if core.lanes < core.config.concurrency:
        return True
    if book.terms.rules.ordering is not Ordering.PARTITION or not book.lanes:
        return False
    # Whoever has waited longest stands first. While that one has no lane nobody is given more on his own, however much
    # he has: else it would wait until the others have caught up.
    first = _turns(core)[0] if core.config.priorities else next(iter(core.turns.values()))
    return first is place or (first.running is not None and first.running.lanes > 0)


def _give(core: Core, place: Place, book: Book, records_max: int, *, alone: bool) -> bool:
    ledger, lanes_max = book.ledger, max(core.config.concurrency - core.lanes, 0)
    if records_max <= 0:
        return False
    awaited, wanted = ledger.awaits_commit, ledger.wants_alone
    dispatches = ledger.take(records_max, lanes_max, core.now_ms, alone=alone)
    for dispatch in dispatches:
        core.actions.append(do.Deliver(book.number, place.partition, place.tenure, dispatch))
    _spend(core, sum(dispatch.count for dispatch in dispatches))
    core.recount(book)
    if dispatches:
        core.watch_progress()
    may_read_on = bool(dispatches) and book.fetches_at is None
    if may_read_on or (ledger.awaits_commit, ledger.wants_alone) != (awaited, wanted):
        # There may be room, or a mark to be committed.
        core.touch(place)
    else:
        _wake_for_retries(core, place, book)
    return bool(dispatches)


# ---------------------------------------------------------------------------------------------- credit and rate


def _budget(core: Core) -> int:
    """How many records may go out now."""
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
    """The application takes so many more."""
    if core.application is not None:
        core.application.credit += max(records, 0)
