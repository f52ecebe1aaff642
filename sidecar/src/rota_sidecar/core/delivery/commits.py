"""
What is committed, and when.

One commit is under way at a time: what becomes due meanwhile goes with the next one, all together, so that no commit
overtakes another.
"""

from collections import deque
from collections.abc import Iterator

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery import initial_position
from rota_sidecar.core.delivery.config import CommitMode
from rota_sidecar.core.delivery.core import Commit, Core, Sent, Timer
from rota_sidecar.core.delivery.errors import FENCED, TRANSIENT, Error, name_of
from rota_sidecar.core.delivery.partition import LettingGo, Place, Subject, Wish
from rota_sidecar.core.ledger.commit_points import Point, read_mark
from rota_sidecar.core.member.partitions import Offset, Partition


def own_point(core: Core, place: Place) -> Point | None:
    """What is to be committed of it without anybody's asking; None = nothing is."""
    book = place.book
    if book is None or not core.commits_by_itself:
        return None
    match place.state:
        case LettingGo(refused=True) | LettingGo(given_up=True):
            return None
        case LettingGo(is_finished=True):
            return book.ledger.close()
        case _:
            is_quiet = core.application is None or core.draining is not None
            return book.ledger.close() if is_quiet and book.is_replaceable else book.ledger.point


def is_durable(place: Place, point: Point) -> bool:
    """Whether exactly that is committed, in whatever words."""
    durable = place.durable
    if durable is None or durable.offset != point.offset:
        return False
    return durable.metadata == point.metadata or read_mark(durable.metadata) == read_mark(point.metadata)


def has_settled(core: Core, place: Place) -> bool:
    """Whether there is nothing to commit, and nothing under way."""
    point = own_point(core, place)
    is_done = point is None or is_durable(place, point)
    return is_done and not place.wishes and not core.is_committing(place)


# ---------------------------------------------------------------------------------------------- when


def consider(core: Core, place: Place) -> None:
    """See what is to be committed of it, and when."""
    partition, point = place.partition, own_point(core, place)
    if place.wishes:
        _commit_soon(core, place)
    elif point is None or core.is_committing(place):
        return
    elif is_durable(place, point):
        core.changed.pop(partition, None)
        _tell_ledger(place, point)
    elif _is_urgent(core, place, point):
        _commit_soon(core, place)
    else:
        core.changed[partition] = None
        core.timers.setdefault((Timer.COMMIT, None), core.now_ms + core.config.commit_interval_ms)


def member_is_in(core: Core) -> None:
    """It is in a generation: what was refused while it joined is tried now. In a next round it would be refused again."""
    for place in core.places.values():
        if place.commit_attempts:
            _try_again(core, place)
            core.touch(place)


def _try_again(core: Core, place: Place) -> None:
    place.commit_attempts, place.commit_retry_ms = 0, 0
    core.timers.pop((Timer.COMMIT_AGAIN, place.partition), None)


def _commit_soon(core: Core, place: Place) -> None:
    if core.now_ms >= place.commit_retry_ms:
        core.due[place.partition] = None


def _tell_ledger(place: Place, point: Point) -> None:
    """Another ledger has stood at the same point, and waits for a commit that there is already."""
    book = place.running
    if book is not None:
        book.begins = False
        if book.ledger.awaits_commit and point == book.ledger.point:
            book.ledger.committed(point)


def _is_urgent(core: Core, place: Place, point: Point) -> bool:
    book, durable = place.book, place.durable
    if book is None:
        return False
    if isinstance(place.state, LettingGo):
        return place.state.is_finished
    uncommitted = 0 if durable is None else point.offset - durable.offset
    return (
        book.begins
        or core.config.commit_mode is CommitMode.SYNC
        or core.draining is not None
        or (core.application is not None and book.ledger.awaits_commit)
        or uncommitted >= core.config.rules.in_flight_max
    )


def interval_over(core: Core) -> None:
    """Commit what has changed."""
    for partition in core.changed:
        if (place := core.places.get(partition)) is not None:
            _commit_soon(core, place)
            core.touch(place)
    core.changed.clear()


# ---------------------------------------------------------------------------------------------- what


def send(core: Core) -> None:
    """Commit what is due, if nothing is under way."""
    if core.under_way is not None or not core.due:
        return
    due, core.due = core.due, {}
    sent: dict[Partition, Sent] = {}
    by_hand: bool | None = None
    for partition in due:
        place = core.places.get(partition)
        if place is None:
            continue
        if by_hand not in (None, place.by_hand):
            core.due[partition] = None
        elif (one := _to_send(core, place)) is not None:
            by_hand = place.by_hand
            sent[partition] = one
    if sent:
        request = core.number()
        core.under_way = Commit(request, sent)
        offsets = {partition: one.offset for partition, one in sent.items()}
        core.actions.append(do.Commit(request, offsets, bool(by_hand)))


def _to_send(core: Core, place: Place) -> Sent | None:
    wishes = tuple(_next_wishes(place))
    point = own_point(core, place)
    if not wishes:
        return None if point is None or is_durable(place, point) else _sent(place, point, wishes)
    asked = wishes[-1].offset
    if asked is not None:
        metadata = asked.metadata
        if not metadata and point is not None and point.offset == asked.offset:
            # Else the ledger would have to commit its mark once more.
            metadata = point.metadata
        return _sent(place, Point(asked.offset, metadata), wishes, asked.leader_epoch)
    if place.book is None:
        _answer_wishes(core, place, wishes, pb.NONE)
        return None
    point = point or place.book.ledger.point
    if is_durable(place, point):
        _answer_wishes(core, place, wishes, pb.NONE, point.offset)
        # Its ledger may wait for just that.
        core.touch(place)
        return None
    return _sent(place, point, wishes)


def _next_wishes(place: Place) -> Iterator[Wish]:
    """Those that one commit fulfils: up to one after which reading goes on elsewhere."""
    while place.wishes:
        wish = place.wishes.popleft()
        yield wish
        if wish.seeks:
            return


def _sent(place: Place, point: Point, wishes: tuple[Wish, ...], leader_epoch: int = -1) -> Sent:
    offset = Offset(place.tenure.number, point.offset, leader_epoch, point.metadata)
    return Sent(place, place.book, offset, wishes)


def _answer_wishes(
    core: Core, place: Place, wishes: tuple[Wish, ...], error: Error, offset: int | None = None
) -> None:
    for wish in wishes:
        core.answer(wish.ask, place.partition, error, offset)


# ---------------------------------------------------------------------------------------------- what became of it


def committed(core: Core, event: on.Committed) -> None:
    """The commit under way is answered."""
    if core.under_way is None or core.under_way.request != event.request:
        return
    sent, core.under_way = core.under_way.sent, None
    for partition, one in sent.items():
        error = event.errors.get(partition, pb.UNKNOWN_SERVER_ERROR)
        is_held = core.places.get(partition) is one.place
        if error == pb.NONE:
            _succeeded(core, one, is_held=is_held)
        else:
            _failed(core, one, error, is_held=is_held)
        # It may be another tenure by now, which has waited too.
        if (place := core.places.get(partition)) is not None:
            core.touch(place)


def _succeeded(core: Core, one: Sent, *, is_held: bool) -> None:
    place, offset = one.place, one.offset.offset
    core.remembered[place.partition] = offset
    _answer_wishes(core, place, one.wishes, pb.NONE, offset)
    if not is_held:
        return
    place.durable = Point(offset, one.offset.metadata)
    place.committed = offset
    place.said.pop(Subject.COMMITTING, None)
    _try_again(core, place)
    if one.wishes and one.wishes[-1].seeks:
        _void_wishes(core, place)
        initial_position.seek(core, place, offset)
    elif one.book is None:
        initial_position.committed_by_hand(core, place, offset)
    elif one.book is place.book:
        one.book.begins = False
        one.book.ledger.committed(place.durable)


def _void_wishes(core: Core, place: Place) -> None:
    """The application wanted these before it could know that its offsets were set by somebody else."""
    void = tuple(wish for wish in place.wishes if not wish.seeks)
    place.wishes = deque(wish for wish in place.wishes if wish.seeks)
    _answer_wishes(core, place, void, pb.ILLEGAL_GENERATION)


def _failed(core: Core, one: Sent, error: Error, *, is_held: bool) -> None:
    place = one.place
    if not is_held:
        answer = pb.ILLEGAL_GENERATION if error in TRANSIENT else error
        _answer_wishes(core, place, one.wishes, answer)
        return
    # It may have been done all the same.
    place.durable = None
    place.commit_retry_ms = core.retry_at(Timer.COMMIT_AGAIN, place.partition, place.commit_attempts)
    place.commit_attempts += 1
    if error in TRANSIENT or (error in FENCED and not place.by_hand) or _is_shortened(one, error):
        place.wishes.extendleft(reversed(one.wishes))
    else:
        _answer_wishes(core, place, one.wishes, error)
        _refused(core, place, error)


def _is_shortened(one: Sent, error: Error) -> bool:
    """Whether the next commit says less, for this one was too long."""
    if error != pb.OFFSET_METADATA_TOO_LARGE or one.book is None or not read_mark(one.offset.metadata).beyond:
        return False
    one.book.ledger.say_less()
    return True


def _refused(core: Core, place: Place, error: Error) -> None:
    core.complain(
        place,
        Subject.COMMITTING,
        f"what group {core.config.group_id} has done cannot be committed, the coordinator says "
        f"{name_of(error)}: it is tried again and again, mend what that names",
    )
    if isinstance(place.state, LettingGo):
        place.state.refused = True
