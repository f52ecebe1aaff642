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
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.buffer import RecordBuffer
from rota.records import TopicPartition

# No event of a sidecar has it: nobody waits for an acknowledgement.
NO_EVENT = 0
# Lower than every delivery epoch and tenure of a sidecar.
NO_EPOCH = -1


class RebalanceKind(Enum):
    """What happens to partitions."""

    ASSIGNED = "assigned"
    REVOKING = "revoking"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Tenure:
    """The member and generation in which partitions were assigned."""

    number: int
    member_id: str
    generation_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One event of a sidecar. `deadline_s` is when revoked partitions go, by the consumer's clock."""

    event_id: int
    kind: RebalanceKind
    partitions: tuple[TopicPartition, ...]
    tenure: Tenure | None = None
    deadline_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """Partitions of which no records come, and the exception for that; `delivery_epoch` is the newest when it occurred."""

    error: errors.RotaError
    partitions: tuple[TopicPartition, ...]
    delivery_epoch: int


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """The application is done with these; the last one included."""

    partition: TopicPartition
    delivery_epoch: int
    first: int
    last: int


@dataclass(slots=True)
class AssignedPartition:
    """A partition that the application was told to have."""

    tenure: int
    # The next offset that is returned; None = only the sidecar knows.
    position: int | None = None
    # Whether the application has come to `position` by reading or seeking: then a commit of everything names it.
    moved: bool = False
    # What has a lower number is of before the last seek.
    delivery_epoch: int = NO_EPOCH
    returned: list[FinishedRange] = field(default_factory=list)


class Core:
    """One consumer. `room` is how many records may wait in it."""

    def __init__(self, room: int) -> None:
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self.paused: set[TopicPartition] = set()
        self.buffer = RecordBuffer()
        self._room = room
        self._credit = 0
        self._rebalances: deque[Rebalance] = deque()
        # What the application is being told at this moment.
        self._begun: Rebalance | None = None
        self._acks_due: list[int] = []
        self._failures: deque[FetchFailure] = deque()
        # Whether the application is told of rebalances: not after `assign` or `unsubscribe`.
        self._is_subscribed = True
        # The newest in which all that the application has was its own: what it fences with. In a newer one it could
        # pass off what is another's by now.
        self.tenure: Tenure | None = None
        self._newest: Tenure | None = None
        # What it has, and does not know gone.
        self._lost: set[TopicPartition] = set()

    # What the sidecar says

    def on_rebalance(self, event: Rebalance) -> None:
        """Something happens to partitions; the application is told in its next poll."""
        if not self._is_subscribed:
            self._on_manual_rebalance(event)
        elif event.kind is RebalanceKind.ASSIGNED:
            self._rebalances.append(event)
        elif event.kind is RebalanceKind.REVOKING:
            self._announce(event, self._assigned_or_announced(event.partitions))
        elif event.kind is RebalanceKind.LOST:
            self._announce(event, self._withdraw(event.partitions))
        elif gone := self._withdraw(event.partitions):
            # Gone before the application has let it go: nothing can be committed any more.
            reason = "the application did not finish revoking them before the deadline"
            self._rebalances.append(
                Rebalance(NO_EVENT, RebalanceKind.LOST, gone, event.tenure, reason=reason)
            )
        if event.kind is RebalanceKind.ASSIGNED:
            self._newest = event.tenure
        self._take_tenure()

    def _take_tenure(self) -> None:
        if not self._lost:
            self.tenure = self._newest

    def _on_manual_rebalance(self, event: Rebalance) -> None:
        """After `assign` partitions come and go as the application said; it need not hear it again."""
        for partition in event.partitions:
            assigned = self.assigned.get(partition)
            if assigned is not None and event.kind is RebalanceKind.ASSIGNED and event.tenure is not None:
                assigned.tenure = event.tenure.number
        if event.kind is not RebalanceKind.REVOKED:
            self._acks_due.append(event.event_id)

    def _announce(self, event: Rebalance, partitions: tuple[TopicPartition, ...]) -> None:
        if partitions:
            self._rebalances.append(replace(event, partitions=partitions))
        else:
            self._acks_due.append(event.event_id)

    def _assigned_or_announced(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Those that the application has, or is going to be told that it has."""
        coming = {each for event in self._rebalances for each in event.partitions}
        return tuple(each for each in partitions if each in self.assigned or each in coming)

    def _withdraw(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
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
                self._acks_due.append(event.event_id)
        self._rebalances = left
        for partition in gone:
            self._drop_records(partition)
        self._lost |= gone & self.assigned.keys()
        return tuple(sorted((gone & self.assigned.keys()) - self._in_listener()))

    def _in_listener(self) -> set[TopicPartition]:
        if self._begun is None or self._begun.kind is RebalanceKind.ASSIGNED:
            return set()
        return set(self._begun.partitions)

    def on_records(self, batch_slice: BatchSlice, tenure: int) -> bool:
        """Records came; whether they are kept. Those of an ended tenure or from before a seek are not."""
        self._credit -= len(batch_slice)
        assigned = self.assigned.get(batch_slice.topic_partition)
        if (
            assigned is None
            or assigned.tenure != tenure
            or batch_slice.delivery_epoch < assigned.delivery_epoch
        ):
            return False
        if batch_slice.delivery_epoch > assigned.delivery_epoch:
            self._begin_delivery_epoch(batch_slice, assigned)
        self.buffer.append(batch_slice)
        return True

    def _begin_delivery_epoch(self, batch_slice: BatchSlice, assigned: AssignedPartition) -> None:
        """The first one; or the sidecar was sent elsewhere by somebody else, and what is of the one before is void."""
        if assigned.delivery_epoch != NO_EPOCH or assigned.position is None:
            self._drop_records(batch_slice.topic_partition)
            assigned.position = batch_slice.base_offset
        assigned.delivery_epoch = batch_slice.delivery_epoch

    def on_fetch_failure(self, failure: FetchFailure) -> None:
        """No records of these partitions come; the application is told in its next poll, once."""
        self._failures.append(failure)

    def on_disconnect(self, reason: str) -> None:
        """The sidecar is gone, and all that it said: what the application has is lost to it."""
        self._failures.clear()
        self._acks_due.clear()
        self._rebalances.clear()
        self._credit = 0
        for partition, assigned in self.assigned.items():
            self._drop_records(partition)
            assigned.delivery_epoch = assigned.tenure = NO_EPOCH
        self._lost |= self.assigned.keys()
        lost = tuple(sorted(self.assigned.keys() - self._in_listener()))
        if self._is_subscribed and lost:
            self._rebalances.append(Rebalance(NO_EVENT, RebalanceKind.LOST, lost, reason=reason))

    # What the application is told

    def next_rebalance(self) -> Rebalance | None:
        """What it is told next, before any further record is returned."""
        return self._rebalances[0] if self._rebalances else None

    def next_error(self) -> errors.RotaError | None:
        """Return the next error to raise. Errors of partitions that were lost, or sought since, are dropped."""
        while self._failures:
            failure = self._failures.popleft()
            assigned = (self.assigned.get(each) for each in failure.partitions)
            if any(each is not None and each.delivery_epoch <= failure.delivery_epoch for each in assigned):
                return failure.error
        return None

    def begin_rebalance(self, event: Rebalance, positions: Mapping[TopicPartition, int]) -> None:
        """
        It is being told; what it is assigned is its own already. `positions`: where these begin, where that is known.

        It may be told twice, when its listener failed.
        """
        if event is self._begun:
            return
        self._begun = event
        if event.kind is RebalanceKind.ASSIGNED and event.tenure is not None:
            for partition in event.partitions:
                self.assigned[partition] = AssignedPartition(event.tenure.number, positions.get(partition))

    def end_rebalance(self, event: Rebalance) -> bool:
        """It was told: what it lost is its own no more. Whether the sidecar waits to hear that."""
        self._begun = None
        if event.kind is not RebalanceKind.ASSIGNED:
            for partition in event.partitions:
                self._release(partition)
            self._take_tenure()
        if self.next_rebalance() is not event:
            return False
        self._rebalances.popleft()
        return event.event_id != NO_EVENT

    def unreported_loss(self) -> Rebalance | None:
        """What it has lost and does not know gone, for who ends and polls no more."""
        return Rebalance(NO_EVENT, RebalanceKind.LOST, tuple(sorted(self._lost))) if self._lost else None

    def still_assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that the sidecar still has, as far as it has said."""
        return [partition for partition in partitions if partition not in self._lost]

    def acks_due(self) -> Sequence[int]:
        """Events that the application need not be told, to be acknowledged now."""
        events = [event for event in self._acks_due if event != NO_EVENT]
        self._acks_due.clear()
        return events

    # What the application takes

    def take(self, records_max: int) -> list[BatchSlice]:
        """The next records of partitions that are not paused. They count as returned."""
        taken = list(self.buffer.take(records_max, self.paused))
        for batch_slice in taken:
            assigned = self.assigned[batch_slice.topic_partition]
            returned = assigned.returned
            first = batch_slice.base_offset
            if returned and returned[-1].last + 1 == first:
                first = returned.pop().first
            returned.append(
                FinishedRange(
                    batch_slice.topic_partition,
                    batch_slice.delivery_epoch,
                    first,
                    batch_slice.next_offset - 1,
                )
            )
            assigned.position, assigned.moved = batch_slice.next_offset, True
        return taken

    def put_back(self, batch_slice: BatchSlice, offset: int) -> None:
        """The last records that were taken of a partition were not returned after all, from this offset on."""
        assigned = self.assigned.get(batch_slice.topic_partition)
        if assigned is None or assigned.position != batch_slice.next_offset or not assigned.returned:
            return
        last = assigned.returned.pop()
        if last.first < offset:
            assigned.returned.append(replace(last, last=offset - 1))
        assigned.position = offset
        self.buffer.put_back(batch_slice.between(offset, batch_slice.next_offset))

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> Sequence[FinishedRange]:
        """A commit says that all before these offsets is done; it need not be said again. Gives what that is."""
        said: list[FinishedRange] = []
        for partition, offset in offsets.items():
            if (assigned := self.assigned.get(partition)) is not None:
                before = [each for each in assigned.returned if each.first < offset]
                said += [replace(each, last=min(each.last, offset - 1)) for each in before]
                left = [each for each in assigned.returned if each.last >= offset]
                assigned.returned = [replace(each, first=max(each.first, offset)) for each in left]
        return said

    def by_tenure(self, partitions: Iterable[TopicPartition]) -> Mapping[int, Sequence[TopicPartition]]:
        """Group partitions by the tenure they were assigned in. NO_EPOCH: lost; 0: not assigned, the sidecar decides."""
        found: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            assigned = self.assigned.get(partition)
            found.setdefault(0 if assigned is None else assigned.tenure, []).append(partition)
        return found

    def finish(self) -> Sequence[FinishedRange]:
        """The application polls again: it is done with all that was returned."""
        finished = [each for assigned in self.assigned.values() for each in assigned.returned]
        for assigned in self.assigned.values():
            assigned.returned.clear()
        return finished

    def credit(self) -> int:
        """How many more records the sidecar may send, to be told now."""
        more = self._room - self.buffer.records - self._credit
        if more * 2 < self._room:
            return 0
        self._credit += more
        return more

    def paused_in_buffer(self) -> Mapping[TopicPartition, int]:
        """
        Paused partitions of which records wait, and where these begin.

        They have to go back: the sidecar would think that the application is stuck with them.
        """
        first = {partition: self.buffer.first_offset(partition) for partition in self.paused}
        return {partition: offset for partition, offset in first.items() if offset is not None}

    # What the application wants

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """From now on it has these, by its own word; none: it has nothing. It is told nothing."""
        self._is_subscribed = False
        self._acks_due += [event.event_id for event in self._rebalances]
        self._rebalances.clear()
        self._lost.clear()
        self._begun = None
        for partition in self.assigned.keys() - set(partitions):
            self._release(partition)
        for partition in partitions:
            self.assigned.setdefault(partition, AssignedPartition(NO_EPOCH))

    def subscribe(self) -> None:
        """From now on it is told of rebalances; what it assigned itself is gone."""
        if not self._is_subscribed:
            self.assign(())
        self._is_subscribed = True

    def on_seek(
        self, partition: TopicPartition, offset: int, voided_epoch: int | None, *, moved: bool = True
    ) -> None:
        """
        Record a seek: records of this delivery epoch or an earlier one are void, also those that arrive later.

        None: the sidecar has it no more, and nothing comes.
        """
        assigned = self.assigned.get(partition)
        if assigned is None:
            return
        if voided_epoch is None:
            voided_epoch = assigned.delivery_epoch
        self.buffer.drop(partition, voided_epoch)
        assigned.returned.clear()
        assigned.moved = assigned.moved or moved
        # Else its first records were faster than the answer.
        if assigned.delivery_epoch <= voided_epoch:
            assigned.delivery_epoch, assigned.position = voided_epoch + 1, offset

    def position(self, partition: TopicPartition, start: int | None = None) -> int | None:
        """The next offset that is returned, if it is known; it is not yet: `start`, from now on."""
        assigned = self.assigned.get(partition)
        if assigned is None:
            return None
        if assigned.position is None:
            assigned.position = start
        return assigned.position

    def consumed_positions(self) -> Mapping[TopicPartition, int]:
        """
        Return the next offset to read of every partition that the application has read or sought.

        What it is being told to have lost is left out: a listener that commits what goes has nothing to commit then.
        """
        lost = (
            self._in_listener()
            if self._begun is not None and self._begun.kind is RebalanceKind.LOST
            else set()
        )
        return {
            partition: assigned.position
            for partition, assigned in self.assigned.items()
            if assigned.moved and assigned.position is not None and partition not in lost
        }

    def _release(self, partition: TopicPartition) -> None:
        self._drop_records(partition)
        self.assigned.pop(partition, None)
        self._lost.discard(partition)
        self.paused.discard(partition)

    def _drop_records(self, partition: TopicPartition) -> None:
        self.buffer.drop(partition)
        if (assigned := self.assigned.get(partition)) is not None:
            assigned.returned.clear()
