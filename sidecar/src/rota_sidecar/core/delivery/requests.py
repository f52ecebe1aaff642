"""What the application, or the group's owner, asks for: commits, seeks, pauses. Each is answered once."""

from collections.abc import Iterable, Mapping

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Ask, Core
from rota_sidecar.core.delivery.errors import Error
from rota_sidecar.core.delivery.partition import Book, Edge, LettingGo, Place, Running, Stopped, Subject, Wish
from rota_sidecar.core.member.partitions import Partition

# Questions that wait for their answers.
ASKS_MAX = 1_000
SEEKS = {-1: Edge.END, -2: Edge.START}


def heed(core: Core, event: on.Asked) -> None:
    """One question."""
    if len(core.asks) >= ASKS_MAX:
        sentence = f"{ASKS_MAX} questions wait for their answers already: wait for some of them"
        core.actions.append(do.Answer(event.request, pb.COORDINATOR_LOAD_IN_PROGRESS, sentence=sentence))
        return
    match event:
        case on.CommitAsked():
            _commit(core, event)
        case on.SeekAsked():
            _seek(core, event)
        case on.PauseAsked():
            _pause(core, event.request, event.partitions, paused=True)
        case on.ResumeAsked():
            _pause(core, event.request, event.partitions, paused=False)


def _begin(core: Core, request: int, errors: Mapping[Partition, Error], places: Iterable[Place]) -> None:
    core.asks[request] = Ask({place.partition for place in places}, dict(errors))


def _split(
    core: Core, partitions: Iterable[Partition], error: Error
) -> tuple[list[Place], dict[Partition, Error]]:
    """What is there, and what is not."""
    places = [core.places[partition] for partition in sorted(partitions) if partition in core.places]
    return places, dict.fromkeys(sorted(set(partitions) - core.places.keys()), error)


# ---------------------------------------------------------------------------------------------- commits


def _commit(core: Core, event: on.CommitAsked) -> None:
    asked = core.places.keys() if event.offsets is None else event.offsets.keys()
    places, errors = _split(core, asked, pb.ILLEGAL_GENERATION)
    mine = [place for place in places if _is_mine(place, event.tenure)]
    others = (place for place in places if not _is_mine(place, event.tenure))
    errors |= {place.partition: pb.ILLEGAL_GENERATION for place in others}
    if event.offsets is None:
        # What another tenure has is not meant.
        errors = {}
    _begin(core, event.request, errors, mine)
    for place in mine:
        offset = None if event.offsets is None else event.offsets[place.partition]
        if offset is not None:
            _settle(core, place, offset.offset)
        place.wishes.append(Wish(event.request, offset))
        core.touch(place)
    core.answer_if_known(event.request)


def _is_mine(place: Place, tenure: int) -> bool:
    """Whether it can be committed, by who names this tenure; 0 = whichever it is."""
    if isinstance(place.state, LettingGo) and place.state.given_up:
        return False
    return tenure in (0, place.tenure.number)


def _settle(core: Core, place: Place, offset: int) -> None:
    """An offset that is named is the application's verdict on all before it."""
    book = place.book
    if book is None:
        return
    before = book.ledger.position
    book.ledger.settle_below(offset, core.now_ms)
    core.recount(book)
    if isinstance(place.state, Stopped) and book.ledger.position != before:
        _go_on(place, book)


def _go_on(place: Place, book: Book) -> None:
    """It is known again where to read on."""
    book.expired = ""
    place.said.pop(Subject.BEGINNING, None)
    place.state = Running(book)


def reset(core: Core, event: on.ResetOffsets) -> None:
    """The group's owner sets offsets, in the generation that the plan was made for."""
    generation = None if core.tenure is None else core.tenure.generation
    if generation != event.generation:
        sentence = (
            f"the offsets were to be reset in generation {event.generation}, and this member is in "
            f"{'none' if generation is None else generation}: plan it again"
        )
        core.actions.append(do.Answer(event.request, pb.ILLEGAL_GENERATION, sentence=sentence))
        return
    places, errors = _split(core, event.offsets, pb.ILLEGAL_GENERATION)
    going = {place.partition: pb.ILLEGAL_GENERATION for place in places if isinstance(place.state, LettingGo)}
    wrong = {partition: pb.OFFSET_OUT_OF_RANGE for partition, offset in event.offsets.items() if offset < 0}
    errors |= wrong | going
    mine = [place for place in places if place.partition not in errors]
    _begin(core, event.request, errors, mine)
    for place in mine:
        offset = on.AskedOffset(event.offsets[place.partition])
        place.wishes.append(Wish(event.request, offset, seeks=True))
        core.touch(place)
    core.answer_if_known(event.request)


# ---------------------------------------------------------------------------------------------- seeks and pauses


def _seek(core: Core, event: on.SeekAsked) -> None:
    places, errors = _split(core, event.offsets, pb.UNKNOWN_TOPIC_OR_PARTITION)
    for place in places:
        offset = event.offsets[place.partition]
        if isinstance(place.state, LettingGo) and (place.state.given_up or offset in SEEKS):
            # Of an offset that is known it is committed that the next owner begins there.
            errors[place.partition] = pb.ILLEGAL_GENERATION
        elif offset < min(SEEKS):
            errors[place.partition] = pb.OFFSET_OUT_OF_RANGE
    mine = [place for place in places if place.partition not in errors]
    _begin(core, event.request, errors, mine)
    # Every book there is, and none that is opened for this.
    core.asks[event.request].ledger = core.number()
    for place in mine:
        offset = event.offsets[place.partition]
        if offset >= 0:
            initial_position.seek(core, place, offset)
            core.answer(event.request, place.partition, offset=offset)
        else:
            initial_position.look_up(core, place, SEEKS[offset], event.request)
    if event.request in core.asks:
        core.answer_if_known(event.request)


def _pause(core: Core, request: int, partitions: frozenset[Partition], *, paused: bool) -> None:
    places, errors = _split(core, partitions, pb.UNKNOWN_TOPIC_OR_PARTITION)
    for place in places:
        place.paused = paused
        core.touch(place)
    _begin(core, request, errors, ())
    core.answer_if_known(request)
