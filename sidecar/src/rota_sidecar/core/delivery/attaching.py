"""The application: it comes, is told what it has, acknowledges that, and goes."""

from collections.abc import Iterable

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.core import Application, Core, Told, Traits
from rota_sidecar.core.delivery.partition import LettingGo, Place
from rota_sidecar.core.member.partitions import Tenure


def attached(core: Core, event: on.Attached) -> None:
    """An application is there, and knows of nothing."""
    if core.application is not None:
        # There is one at a time: the other one cannot be there any more.
        detached(core, on.Detached(core.application.session, clean=False))
    core.application = Application(event.session)
    core.traits = Traits(event.commits_itself, event.reads_itself, event.takes_many)
    core.retired.clear()
    for place in core.places.values():
        place.paused = False
    core.set_terms()
    _tell_of_all(core)


def detached(core: Core, event: on.Detached) -> None:
    """It is gone, and what it held comes again; the partitions stay: its container may be back in a moment."""
    if core.application is None or core.application.session != event.session:
        return
    core.application = None
    core.retired.clear()
    for place in core.places.values():
        place.told, place.acknowledged = None, False
        if isinstance(place.state, LettingGo):
            place.state.event_id = None
        _take_back(core, place, clean=event.clean)
        if not core.commits_by_itself:
            initial_position.begin_at_committed(core, place)
    core.touch_all()


# ---------------------------------------------------------------------------------------------- what it is told


def _event(
    core: Core,
    kind: do.Kind,
    places: Iterable[Place],
    tenure: Tenure | None,
    deadline_ms: int | None = None,
    reason: str = "",
) -> int | None:
    """Its number, if there is anybody to be told."""
    application = core.application
    if application is None:
        return None
    event_id, partitions = core.number(), frozenset(place.partition for place in places)
    if kind is not do.Kind.REVOKED:
        # Nothing depends on whether that one is acknowledged.
        application.unacknowledged[event_id] = Told(kind, partitions, core.now_ms)
    core.actions.append(do.Tell(event_id, kind, partitions, tenure, deadline_ms, reason))
    return event_id


def _tell_of_all(core: Core) -> None:
    """Of everything that stays, by tenure; and of the tenure of now, though nothing may have come with it."""
    staying = [place for place in core.places.values() if not isinstance(place.state, LettingGo)]
    tenures = {place.tenure.number: place.tenure for place in staying}
    if core.tenure is not None:
        tenures[core.tenure.number] = core.tenure
    for _, tenure in sorted(tenures.items()):
        tell_assigned(core, tenure)


def tell_assigned(core: Core, tenure: Tenure) -> None:
    """It has these, and answers for them once it has acknowledged that."""
    places = [
        place
        for place in core.places.values()
        if place.tenure == tenure and not isinstance(place.state, LettingGo)
    ]
    event_id = _event(core, do.Kind.ASSIGNED, places, tenure)
    if event_id is not None:
        core.watch_progress()
    for place in places:
        place.told = event_id


def tell_revoking(core: Core, places: Iterable[Place], until_ms: int) -> None:
    """It is to let these go."""
    told = [place for place in places if place.told is not None]
    if told:
        event_id = _event(core, do.Kind.REVOKING, told, _tenure(told), until_ms)
        for place in told:
            assert isinstance(place.state, LettingGo)
            place.state.event_id = event_id


def tell(core: Core, kind: do.Kind, places: list[Place], reason: str = "") -> None:
    """These are gone."""
    if places:
        _event(core, kind, places, _tenure(places), reason=reason)


def _tenure(places: Iterable[Place]) -> Tenure | None:
    """The one of all of them, if there is one."""
    tenures = {place.tenure for place in places}
    return tenures.pop() if len(tenures) == 1 else None


def acknowledged(core: Core, event: on.Acknowledged) -> None:
    """It has done what it was told."""
    if core.application is None:
        return
    told = core.application.unacknowledged.pop(event.event_id, None)
    if told is not None and told.kind is do.Kind.LOST:
        # It has stopped working on them, and gives no verdict on the rest.
        core.retired = {
            number: (partition, ledger)
            for number, (partition, ledger) in core.retired.items()
            if partition not in told.partitions
        }
        return
    for partition in () if told is None else sorted(told.partitions):
        place = core.places.get(partition)
        if place is None:
            continue
        if place.told == event.event_id:
            place.acknowledged = True
            core.tell_errors(place)
        if isinstance(place.state, LettingGo) and place.state.event_id == event.event_id:
            place.state.event_id = None
            # What it still has of it, it has not begun, and gives no verdict on.
            _take_back(core, place, clean=True)
        core.touch(place)


def _take_back(core: Core, place: Place, *, clean: bool) -> None:
    """Nothing of it is in hand any more."""
    if place.book is not None:
        place.book.ledger.application_gone(core.now_ms, clean=clean)
        core.recount(place.book)
