"""
Where a partition begins: at what is committed; where nothing is, or that lies outside of the log, as the settings say.

A partition counts as one that appeared later, and starts at its first record, when this sidecar commits by itself, had
others of the topic before, and never had this one.
"""

from collections.abc import Iterable

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import Reset
from rota_sidecar.core.delivery.core import Away, Core, Timer, Within
from rota_sidecar.core.delivery.errors import TRANSIENT, Error, name_of
from rota_sidecar.core.delivery.partition import (
    Book,
    Edge,
    Finding,
    LettingGo,
    LookingUp,
    Place,
    Running,
    Said,
    Stopped,
    Subject,
)
from rota_sidecar.core.ledger.commit_points import Mark, Point, read_mark
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Partition

EDGES = {Reset.EARLIEST: Edge.START, Reset.LATEST: Edge.END}
REMEDY = "seek, or reset the offsets of the group"
KINDS = {
    pb.GROUP_AUTHORIZATION_FAILED: do.ErrorKind.GROUP_AUTHORIZATION,
    pb.TOPIC_AUTHORIZATION_FAILED: do.ErrorKind.TOPIC_AUTHORIZATION,
}
NOTHING = Said("nothing is committed", do.ErrorKind.NO_OFFSET)
VANISHED = Said("what was committed has vanished", do.ErrorKind.NO_OFFSET)
NOT_THERE = "it does not exist: create the topic, or leave it out of the group's subscription"


def assigned(core: Core, event: on.Assigned) -> None:
    """The member has these from now on."""
    core.tenure = event.tenure
    if event.by_hand or isinstance(core.membership, Away):
        core.membership = Within()
    known = frozenset(core.seen)
    for partition in sorted(event.partitions):
        seen = core.seen.setdefault(partition.topic, set())
        appeared_later = core.commits_by_itself and partition.topic in known and partition not in seen
        seen.add(partition)
        place = Place(partition, event.tenure, event.by_hand, appeared_later)
        core.places[partition] = place
        core.touch(place)


def is_due(core: Core, state: Finding | LookingUp) -> bool:
    """Whether to ask now."""
    return state.request is None and core.now_ms >= state.retry_ms


def ask(core: Core, places: Iterable[Place]) -> None:
    """Look up, in as few requests as can be, what is to be known of these."""
    finds: dict[bool, list[Place]] = {}
    look_ups: list[Place] = []
    for place in places:
        match place.state:
            case Finding() as state if is_due(core, state):
                finds.setdefault(place.by_hand, []).append(place)
            case LookingUp() as state if is_due(core, state):
                look_ups.append(place)
            case _:
                pass
    for by_hand, found in finds.items():
        core.actions.append(do.Find(_begin_request(core, found), _names(found), by_hand))
    if look_ups:
        core.actions.append(do.LookUp(_begin_request(core, look_ups), _names(look_ups)))


def _names(places: Iterable[Place]) -> frozenset[Partition]:
    return frozenset(place.partition for place in places)


def _begin_request(core: Core, places: Iterable[Place]) -> int:
    request = core.number()
    for place in places:
        assert isinstance(place.state, Finding | LookingUp)
        place.state.request = request
    return request


def _ask_later(core: Core, place: Place, state: Finding | LookingUp) -> None:
    state.request = None
    state.retry_ms = core.retry_at(Timer.BEGIN, place.partition, state.attempt)
    state.attempt += 1


# ---------------------------------------------------------------------------------------------- what is committed


def found(core: Core, event: on.Found) -> None:
    """It is known what is committed, or why not."""
    for place in list(core.places.values()):
        match place.state:
            case Finding(request=event.request) as state:
                stored = event.offsets.get(place.partition)
                error = event.error or (pb.UNKNOWN_SERVER_ERROR if stored is None else stored.error)
                if error != pb.NONE or stored is None:
                    _complain_of_finding(core, place, error)
                    _ask_later(core, place, state)
                elif _is_being_decided(core, place):
                    _ask_later(core, place, state)
                else:
                    _begin(core, place, stored)
            case _:
                pass


def _is_being_decided(core: Core, place: Place) -> bool:
    """Whether its owner commits an offset: that is where it begins, and what was found is older."""
    return bool(place.wishes) or core.is_committing(place)


def _complain_of_finding(core: Core, place: Place, error: Error) -> None:
    if error not in TRANSIENT:
        core.complain(
            place,
            Subject.BEGINNING,
            f"what group {core.config.group_id} has committed cannot be read, the coordinator says "
            f"{name_of(error)}: it is tried again and again, mend what that names",
            KINDS.get(error),
        )


def _begin(core: Core, place: Place, stored: on.Stored) -> None:
    place.said.pop(Subject.BEGINNING, None)
    if stored.offset >= 0:
        place.durable = Point(stored.offset, stored.metadata)
        place.committed = stored.offset
        core.remembered[place.partition] = stored.offset
        open_book(core, place, stored.offset, mark=read_mark(stored.metadata))
    elif place.partition in core.remembered:
        _begin_by(core, place, core.config.on_offset_expired, VANISHED)
    elif place.appeared_later:
        look_up(core, place, Edge.START)
    else:
        _begin_by(core, place, core.config.initial_offset, NOTHING)


def _begin_by(core: Core, place: Place, reset: Reset, why: Said, book: Book | None = None) -> None:
    """Where the settings say; `book` is what was read before, if anything."""
    if reset is Reset.NONE:
        sentence = f"group {core.config.group_id} does not know where to read on: {why.sentence}; {REMEDY}"
        core.complain(place, Subject.BEGINNING, sentence, why.kind)
        if book is None:
            core.drop_book(place)
        place.state = Stopped(sentence, book)
        core.take_turn_from(place)
    else:
        look_up(core, place, EDGES[reset])


# ---------------------------------------------------------------------------------------------- the ends of the log


def look_up(core: Core, place: Place, edge: Edge, ask: int | None = None) -> None:
    """Begin at an end of the log, as soon as it is known where that is; what was in hand is void."""
    core.drop_book(place)
    core.give_up_look_up(place)
    place.state = LookingUp(edge, ask)
    core.touch(place)


def looked_up(core: Core, event: on.LookedUp) -> None:
    """It is known where the logs begin and end; of some, perhaps, not."""
    for place in list(core.places.values()):
        match place.state:
            case LookingUp(request=event.request) as state:
                bounds = event.bounds.get(place.partition)
                if bounds is None:
                    core.complain(
                        place,
                        Subject.BEGINNING,
                        f"the ends of the log cannot be looked up: {event.problem or NOT_THERE}",
                        _kind_of(event),
                    )
                    _ask_later(core, place, state)
                elif state.ask is None and _is_being_decided(core, place):
                    _ask_later(core, place, state)
                else:
                    _begin_at_edge(core, place, state, bounds)
            case _:
                pass


def _kind_of(event: on.LookedUp) -> do.ErrorKind | None:
    """Of a partition without an answer: where nothing went wrong, it does not exist."""
    if event.refused:
        return do.ErrorKind.TOPIC_AUTHORIZATION
    return None if event.problem else do.ErrorKind.UNKNOWN_TOPIC


def _begin_at_edge(core: Core, place: Place, state: LookingUp, bounds: on.Bounds) -> None:
    place.bounds = bounds
    offset = bounds.start if state.edge is Edge.START else bounds.end
    open_book(core, place, offset, begins=True)


# ---------------------------------------------------------------------------------------------- books


def open_book(
    core: Core, place: Place, offset: int, *, mark: Mark | None = None, begins: bool = False
) -> None:
    """Read on from there, with nothing in hand: what was in hand is void."""
    core.drop_book(place)
    core.give_up_look_up(place)
    place.said.pop(Subject.BEGINNING, None)
    terms = core.terms
    ledger = Ledger(offset, terms.rules, (mark or Mark()) if terms.marks else None)
    book = Book(core.number(), ledger, terms, begins=begins)
    place.state = Running(book)
    core.add_book(place, book)
    if place.reported is not None:
        ledger.settle_below(place.reported, core.now_ms)
    core.touch(place)


def seek(core: Core, place: Place, offset: int) -> None:
    """The owner wants to read on from there."""
    place.reported = place.reported_ms = None
    going = place.state if isinstance(place.state, LettingGo) else None
    open_book(core, place, offset, begins=True)
    if going is not None:
        # Whoever has it next does; what is in hand counts for nothing.
        going.book, place.state = place.book, going


def renew(core: Core, place: Place, book: Book) -> None:
    """Go on where it stands, under the terms of now."""
    point = book.ledger.close()
    open_book(core, place, point.offset, mark=read_mark(point.metadata), begins=book.begins)


def begin_at_committed(core: Core, place: Place) -> None:
    """What it finished, or reported, and did not commit comes again: whoever was to commit it is gone."""
    place.reported = place.reported_ms = None
    if isinstance(place.state, Running):
        core.drop_book(place)
        place.state = Finding()
        core.touch(place)


# ---------------------------------------------------------------------------------------------- what is no longer there


def expire(core: Core, place: Place, book: Book) -> None:
    """Where it stands there is nothing to read any more, and nobody works on what was read before."""
    core.remembered.pop(place.partition, None)
    if book.unreadable:
        # What could not be read was deleted to get past it; all that is left is read, whatever the settings say.
        look_up(core, place, Edge.START)
        return
    reset = core.config.on_offset_expired
    if reset is not Reset.NONE:
        core.complain(
            place,
            Subject.READING,
            f"group {core.config.group_id} reads on at the {reset.value} record, as set for offsets that have "
            f"expired: {book.expired}",
        )
    _begin_by(core, place, reset, Said(book.expired, do.ErrorKind.OFFSET_OUT_OF_RANGE), book)


def begin_in_other_topic(core: Core, place: Place, why: str) -> None:
    """A topic was made again under the same name: its records are others."""
    place.durable = None
    said = Said(why, do.ErrorKind.OFFSET_OUT_OF_RANGE)
    _begin_by(core, place, core.config.on_offset_expired, said)


def begin_anew(core: Core) -> None:
    """Other settings may know where to begin."""
    for place in core.places.values():
        match place.state:
            case Stopped(book=None):
                place.state = Finding()
                core.touch(place)
            case Stopped(book=Book() as book):
                place.state = Running(book)
                core.touch(place)
            case _:
                pass


def committed_by_hand(core: Core, place: Place, offset: int) -> None:
    """The owner has committed while nobody knew where to begin: there, then."""
    match place.state:
        case Finding() | LookingUp(ask=None) | Stopped(book=None):
            # What else it wants to have committed are verdicts too.
            later = [
                wish.offset.offset for wish in place.wishes if wish.offset is not None and not wish.seeks
            ]
            open_book(core, place, max([offset, *later]))
        case LookingUp() | Running() | Stopped() | LettingGo():
            return
