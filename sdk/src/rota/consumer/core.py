"""
What lies between a sidecar and an application: records that came and were not returned yet, records that were returned
and are not finished, and rebalances that the application was not told yet.

It decides, and does nothing: the engine feeds it what the sidecar says, and sends what it asks for.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from rota import errors
from rota.consumer.buffer import Buffer
from rota.consumer.portions import Portion
from rota.records import TopicPartition

# No event of a sidecar has it: nobody waits for an acknowledgement.
UNASKED = 0
# No ledger and no tenure of a sidecar has it.
NONE = -1


class Kind(Enum):
    """What happens to partitions."""

    ASSIGNED = "assigned"
    REVOKING = "revoking"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Tenure:
    """The member and generation in which partitions were received."""

    number: int
    member_id: str
    generation_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One event of a sidecar. `deadline_s` is when revoked partitions go, by the consumer's clock."""

    event_id: int
    kind: Kind
    partitions: tuple[TopicPartition, ...]
    tenure: Tenure | None = None
    deadline_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Partitions of which no records come, and the exception for that; `ledger` is the newest when it occurred."""

    error: errors.RotaError
    partitions: tuple[TopicPartition, ...]
    ledger: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The application is done with these; the last one included."""

    partition: TopicPartition
    ledger: int
    first: int
    last: int


@dataclass(slots=True)
class Held:
    """A partition that the application was told to have."""

    tenure: int
    # The next offset that is returned; None = only the sidecar knows.
    position: int | None = None
    # Whether the application has come to `position` by reading or seeking: then a commit of everything names it.
    moved: bool = False
    # What has a lower number is of before the last seek.
    ledger: int = NONE
    returned: list[Finished] = field(default_factory=list)


class Core:
    """One consumer. `room` is how many records may wait in it."""

    def __init__(self, room: int) -> None:
        self.held: dict[TopicPartition, Held] = {}
        self.paused: set[TopicPartition] = set()
        self.buffer = Buffer()
        self._room = room
        self._credit = 0
        self._rebalances: deque[Rebalance] = deque()
        # What the application is being told at this moment.
        self._begun: Rebalance | None = None
        self._silent: list[int] = []
        self._failures: deque[Failure] = deque()
        # Whether the application is told of rebalances: not after `assign` or `unsubscribe`.
        self._tells = True
        # The newest in which all that the application has was its own: what it fences with. In a newer one it could
        # pass off what is another's by now.
        self.tenure: Tenure | None = None
        self._newest: Tenure | None = None
        # What it has, and does not know gone.
        self._gone: set[TopicPartition] = set()

    # What the sidecar says

    def heard(self, event: Rebalance) -> None:
        """Something happens to partitions; the application is told in its next poll."""
        if not self._tells:
            self._note(event)
        elif event.kind is Kind.ASSIGNED:
            self._rebalances.append(event)
        elif event.kind is Kind.REVOKING:
            self._tell_about(event, self._known(event.partitions))
        elif event.kind is Kind.LOST:
            self._tell_about(event, self._strike(event.partitions))
        elif gone := self._strike(event.partitions):
            # Gone before the application has let it go: nothing can be committed any more.
            reason = "the application did not let go of them before the deadline"
            self._rebalances.append(Rebalance(UNASKED, Kind.LOST, gone, event.tenure, reason=reason))
        if event.kind is Kind.ASSIGNED:
            self._newest = event.tenure
        self._take_tenure()

    def _take_tenure(self) -> None:
        if not self._gone:
            self.tenure = self._newest

    def _note(self, event: Rebalance) -> None:
        """After `assign` partitions come and go as the application said; it need not hear it again."""
        for partition in event.partitions:
            held = self.held.get(partition)
            if held is not None and event.kind is Kind.ASSIGNED and event.tenure is not None:
                held.tenure = event.tenure.number
        if event.kind is not Kind.REVOKED:
            self._silent.append(event.event_id)

    def _tell_about(self, event: Rebalance, partitions: tuple[TopicPartition, ...]) -> None:
        if partitions:
            self._rebalances.append(replace(event, partitions=partitions))
        else:
            self._silent.append(event.event_id)

    def _known(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Those that the application has, or is going to be told that it has."""
        coming = {each for event in self._rebalances for each in event.partitions}
        return tuple(each for each in partitions if each in self.held or each in coming)

    def _strike(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Take these out of what is still to be told; gives those that the application has, and does not know gone."""
        gone = set(partitions)
        left: deque[Rebalance] = deque()
        for event in self._rebalances:
            stay = tuple(each for each in event.partitions if each not in gone)
            if event is self._begun or len(stay) == len(event.partitions):
                left.append(event)
            elif stay:
                left.append(replace(event, partitions=stay))
            else:
                self._silent.append(event.event_id)
        self._rebalances = left
        for partition in gone:
            self._forget_records(partition)
        self._gone |= gone & self.held.keys()
        return tuple(sorted((gone & self.held.keys()) - self._being_taken()))

    def _being_taken(self) -> set[TopicPartition]:
        if self._begun is None or self._begun.kind is Kind.ASSIGNED:
            return set()
        return set(self._begun.partitions)

    def received(self, portion: Portion, tenure: int) -> bool:
        """Records came; whether they are kept. Those of an ended tenure or from before a seek are not."""
        self._credit -= len(portion)
        held = self.held.get(portion.place)
        if held is None or held.tenure != tenure or portion.ledger < held.ledger:
            return False
        if portion.ledger > held.ledger:
            self._begin_ledger(portion, held)
        self.buffer.append(portion)
        return True

    def _begin_ledger(self, portion: Portion, held: Held) -> None:
        """The first one; or the sidecar was sent elsewhere by somebody else, and what is of the one before is void."""
        if held.ledger != NONE or held.position is None:
            self._forget_records(portion.place)
            held.position = portion.base_offset
        held.ledger = portion.ledger

    def failed(self, failure: Failure) -> None:
        """No records of these partitions come; the application is told in its next poll, once."""
        self._failures.append(failure)

    def disconnected(self, reason: str) -> None:
        """The sidecar is gone, and all that it said: what the application has is lost to it."""
        self._failures.clear()
        self._silent.clear()
        self._rebalances.clear()
        self._credit = 0
        for partition, held in self.held.items():
            self._forget_records(partition)
            held.ledger = held.tenure = NONE
        self._gone |= self.held.keys()
        lost = tuple(sorted(self.held.keys() - self._being_taken()))
        if self._tells and lost:
            self._rebalances.append(Rebalance(UNASKED, Kind.LOST, lost, reason=reason))

    # What the application is told

    def due(self) -> Rebalance | None:
        """What it is told next, before any further record is returned."""
        return self._rebalances[0] if self._rebalances else None

    def failure(self) -> errors.RotaError | None:
        """The next error to raise. A partition that is gone, or was sought since, is no reason any more."""
        while self._failures:
            failure = self._failures.popleft()
            held = (self.held.get(each) for each in failure.partitions)
            if any(each is not None and each.ledger <= failure.ledger for each in held):
                return failure.error
        return None

    def begin(self, event: Rebalance, positions: Mapping[TopicPartition, int]) -> None:
        """
        It is being told; what it is assigned is its own already. `positions`: where these begin, where that is known.

        It may be told twice, when its listener failed.
        """
        if event is self._begun:
            return
        self._begun = event
        if event.kind is Kind.ASSIGNED and event.tenure is not None:
            for partition in event.partitions:
                self.held[partition] = Held(event.tenure.number, positions.get(partition))

    def end(self, event: Rebalance) -> bool:
        """It was told: what it lost is its own no more. Whether the sidecar waits to hear that."""
        self._begun = None
        if event.kind is not Kind.ASSIGNED:
            for partition in event.partitions:
                self._let_go(partition)
            self._take_tenure()
        if self.due() is not event:
            return False
        self._rebalances.popleft()
        return event.event_id != UNASKED

    def loss(self) -> Rebalance | None:
        """What it has lost and does not know gone, for who ends and polls no more."""
        return Rebalance(UNASKED, Kind.LOST, tuple(sorted(self._gone))) if self._gone else None

    def there(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that the sidecar still has, as far as it has said."""
        return [partition for partition in partitions if partition not in self._gone]

    def silent(self) -> Sequence[int]:
        """Events that the application need not be told, to be acknowledged now."""
        events = [event for event in self._silent if event != UNASKED]
        self._silent.clear()
        return events

    # What the application takes

    def take(self, records_max: int) -> list[Portion]:
        """The next records of partitions that are not paused. They count as returned."""
        taken = list(self.buffer.take(records_max, self.paused))
        for portion in taken:
            held = self.held[portion.place]
            returned = held.returned
            first = portion.base_offset
            if returned and returned[-1].last + 1 == first:
                first = returned.pop().first
            returned.append(Finished(portion.place, portion.ledger, first, portion.next_offset - 1))
            held.position, held.moved = portion.next_offset, True
        return taken

    def put_back(self, portion: Portion, offset: int) -> None:
        """The last records that were taken of a partition were not returned after all, from this offset on."""
        held = self.held.get(portion.place)
        if held is None or held.position != portion.next_offset or not held.returned:
            return
        last = held.returned.pop()
        if last.first < offset:
            held.returned.append(replace(last, last=offset - 1))
        held.position = offset
        self.buffer.put_back(portion.between(offset, portion.next_offset))

    def committed(self, offsets: Mapping[TopicPartition, int]) -> Sequence[Finished]:
        """A commit says that all before these offsets is done; it need not be said again. Gives what that is."""
        said: list[Finished] = []
        for partition, offset in offsets.items():
            if (held := self.held.get(partition)) is not None:
                before = [each for each in held.returned if each.first < offset]
                said += [replace(each, last=min(each.last, offset - 1)) for each in before]
                left = [each for each in held.returned if each.last >= offset]
                held.returned = [replace(each, first=max(each.first, offset)) for each in left]
        return said

    def tenures(self, partitions: Iterable[TopicPartition]) -> Mapping[int, Sequence[TopicPartition]]:
        """Partitions by the tenure in which they were received. NONE: lost; 0: not assigned, the sidecar decides."""
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            held = self.held.get(partition)
            found.setdefault(0 if held is None else held.tenure, []).append(partition)
        return found

    def finish(self) -> Sequence[Finished]:
        """The application polls again: it is done with all that was returned."""
        finished = [each for held in self.held.values() for each in held.returned]
        for held in self.held.values():
            held.returned.clear()
        return finished

    def credit(self) -> int:
        """How many more records the sidecar may send, to be told now."""
        more = self._room - self.buffer.records - self._credit
        if more * 2 < self._room:
            return 0
        self._credit += more
        return more

    def surplus(self) -> Mapping[TopicPartition, int]:
        """
        Paused partitions of which records wait, and where these begin.

        They have to go back: the sidecar would think that the application is stuck with them.
        """
        first = {partition: self.buffer.first(partition) for partition in self.paused}
        return {partition: offset for partition, offset in first.items() if offset is not None}

    # What the application wants

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """From now on it has these, by its own word; none: it has nothing. It is told nothing."""
        self._tells = False
        self._silent += [event.event_id for event in self._rebalances]
        self._rebalances.clear()
        self._gone.clear()
        self._begun = None
        for partition in self.held.keys() - set(partitions):
            self._let_go(partition)
        for partition in partitions:
            self.held.setdefault(partition, Held(NONE))

    def subscribe(self) -> None:
        """From now on it is told of rebalances; what it assigned itself is gone."""
        if not self._tells:
            self.assign(())
        self._tells = True

    def sought(
        self, partition: TopicPartition, offset: int, void_ledger: int | None, *, moved: bool = True
    ) -> None:
        """
        The sidecar reads on from there: what has this ledger or an earlier one is void, also what comes of it later.

        None: the sidecar has it no more, and nothing comes.
        """
        held = self.held.get(partition)
        if held is None:
            return
        if void_ledger is None:
            void_ledger = held.ledger
        self.buffer.drop(partition, void_ledger)
        held.returned.clear()
        held.moved = held.moved or moved
        # Else its first records were faster than the answer.
        if held.ledger <= void_ledger:
            held.ledger, held.position = void_ledger + 1, offset

    def position(self, partition: TopicPartition, start: int | None = None) -> int | None:
        """The next offset that is returned, if it is known; it is not yet: `start`, from now on."""
        held = self.held.get(partition)
        if held is None:
            return None
        if held.position is None:
            held.position = start
        return held.position

    def reached(self) -> Mapping[TopicPartition, int]:
        """
        How far the application has come, where it has read or sought: the next offsets to read.

        What it is being told to have lost is left out: a listener that commits what goes has nothing to commit then.
        """
        lost = self._being_taken() if self._begun is not None and self._begun.kind is Kind.LOST else set()
        return {
            partition: held.position
            for partition, held in self.held.items()
            if held.moved and held.position is not None and partition not in lost
        }

    def _let_go(self, partition: TopicPartition) -> None:
        self._forget_records(partition)
        self.held.pop(partition, None)
        self._gone.discard(partition)
        self.paused.discard(partition)

    def _forget_records(self, partition: TopicPartition) -> None:
        self.buffer.drop(partition)
        if (held := self.held.get(partition)) is not None:
            held.returned.clear()
