"""Partitions that go: revoked in good order, or lost."""

from collections.abc import Iterable

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import attaching, commits
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core, Leaving, Revocation, Timer
from rota_sidecar.core.delivery.partition import LettingGo, Place
from rota_sidecar.core.member.partitions import Partition

# Before the deadline of a revocation nobody is waited for any more but the coordinator, and shortly before it nobody:
# these parts of the time that there is, at most so long.
MARGIN_PART = 5
MARGIN_MAX_MS = 5_000


def revoke(core: Core, event: on.Revoke) -> None:
    """Hand out nothing more of these, let what is in hand be finished, commit, and give them up."""
    left_ms = max(event.deadline_ms - core.now_ms, 0)
    margin_ms = min(left_ms // MARGIN_PART, MARGIN_MAX_MS)
    hurry_ms, last_ms = event.deadline_ms - margin_ms, event.deadline_ms - margin_ms // 2
    if isinstance(core.membership, Leaving):
        # What it hangs in is the reason for leaving.
        hurry_ms = core.now_ms
    going = _held(core, event.partitions)
    core.revocations[event.revocation] = Revocation(
        {place.partition for place in going}, hurry_ms=hurry_ms, last_ms=last_ms
    )
    new = [place for place in going if not isinstance(place.state, LettingGo)]
    for place in new:
        _stop(core, place)
    if not isinstance(core.membership, Leaving):
        attaching.tell_revoking(core, new, hurry_ms)
    for place in going:
        core.touch(place)
    core.timers[Timer.LET_GO, event.revocation] = core.now_ms
    time_passes(core, event.revocation)


def _held(core: Core, partitions: Iterable[Partition]) -> list[Place]:
    """In order, so that two that are told the same do the same."""
    return [place for partition in sorted(partitions) if (place := core.places.get(partition)) is not None]


def _stop(core: Core, place: Place) -> None:
    book = place.book
    core.take_turn_from(place)
    for timer in (Timer.BEGIN, Timer.READ, Timer.RETRY):
        core.timers.pop((timer, place.partition), None)
    if book is not None:
        core.stop_fetching(book)
    core.give_up_look_up(place, pb.ILLEGAL_GENERATION)
    place.state = LettingGo(book)


def time_passes(core: Core, number: int) -> None:
    """Some time of a revocation may have come."""
    revocation = core.revocations.get(number)
    if revocation is None:
        return
    next_ms = revocation.hurry_ms
    if core.now_ms >= revocation.hurry_ms:
        next_ms = revocation.last_ms
        for place in _places(core, revocation):
            assert isinstance(place.state, LettingGo)
            place.state.hurried = True
            core.touch(place)
    core.timers[Timer.LET_GO, number] = max(next_ms, core.now_ms)


def _places(core: Core, revocation: Revocation) -> list[Place]:
    return [core.places[partition] for partition in sorted(revocation.partitions)]


def give_up(core: Core) -> None:
    """Tell the member of all revocations of which everything is settled, or whose time is over."""
    for number, revocation in list(core.revocations.items()):
        places = _places(core, revocation)
        if core.now_ms < revocation.last_ms and not all(_has_gone(core, place) for place in places):
            continue
        _end(core, number)
        for place in places:
            assert isinstance(place.state, LettingGo)
            # The member may have asked anew meanwhile, with more time.
            place.state.given_up = not any(
                place.partition in other.partitions for other in core.revocations.values()
            )
        core.actions.append(do.GiveUp(number))


def _has_gone(core: Core, place: Place) -> bool:
    state = place.state
    return isinstance(state, LettingGo) and state.is_finished and commits.has_settled(core, place)


def _end(core: Core, number: int) -> None:
    del core.revocations[number]
    core.timers.pop((Timer.LET_GO, number), None)


def revoked(core: Core, event: on.Revoked) -> None:
    """They are the member's no longer."""
    told = _remove(core, event.partitions)
    match core.membership:
        case Leaving(reason=reason):
            attaching.tell(core, do.Kind.LOST, told, reason=reason)
        case _:
            attaching.tell(core, do.Kind.REVOKED, told)


def lost(core: Core, event: on.Lost) -> None:
    """They may be another's already: nothing is committed, whatever is in hand."""
    told = _remove(core, event.partitions)
    attaching.tell(core, do.Kind.LOST, told, reason=event.reason)


def _remove(core: Core, partitions: Iterable[Partition]) -> list[Place]:
    """Those of them that the application knows of."""
    going = _held(core, partitions)
    for place in going:
        core.remove(place)
    for number, revocation in list(core.revocations.items()):
        revocation.partitions.difference_update(place.partition for place in going)
        if not revocation.partitions:
            _end(core, number)
    if not core.places:
        # Before the next assignment there is no generation that anybody could be told of.
        core.tenure = None
    return [place for place in going if place.told is not None]
