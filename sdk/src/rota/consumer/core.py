"""
The consumer's state machine: buffered records, returned records without acknowledgement, rebalances still to report.

Pure. In: the sidecar's events and records, and the application's calls, both through the engine. Out: records to return,
rebalances to report, credit and acknowledgements to send.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from rota import errors
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.buffer import RecordBuffer
from rota.records import TopicPartition

# Id of events that need no acknowledgement; the sidecar uses higher ones.
NO_EVENT = 0
# Lower than every delivery epoch and tenure of a sidecar.
NO_EPOCH = -1


class RebalanceKind(Enum):
    """Kinds of rebalance events."""

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
    """A rebalance event of the sidecar; `deadline_s` ends a revocation, by the consumer's clock."""

    event_id: int
    kind: RebalanceKind
    partitions: tuple[TopicPartition, ...]
    tenure: Tenure | None = None
    deadline_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """A fetch error of partitions; `delivery_epoch` is the newest one when it occurred."""

    error: errors.RotaError
    partitions: tuple[TopicPartition, ...]
    delivery_epoch: int


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """Offsets from first to last, inclusive, that the application has finished."""

    partition: TopicPartition
    delivery_epoch: int
    first: int
    last: int


@dataclass(slots=True)
class AssignedPartition:
    """A partition whose assignment was reported to the application."""

    tenure: int
    # The next offset to return; None: only the sidecar knows it.
    position: int | None = None
    # True once the application has reached `position` by reading or seeking: a commit of all positions
    # includes it.
    moved: bool = False
    # Lower delivery epochs are from before the last seek.
    delivery_epoch: int = NO_EPOCH
    returned: list[FinishedRange] = field(default_factory=list)


class Core:
    """State of one consumer. Invariant: at most `room` records are buffered or granted as credit."""

    def __init__(self, room: int) -> None:
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self.paused: set[TopicPartition] = set()
        self.buffer = RecordBuffer()
        self._room = room
        self._credit = 0
        self._rebalances: deque[Rebalance] = deque()
        # The rebalance whose listener is running.
        self._begun: Rebalance | None = None
        self._acks_due: list[int] = []
        self._failures: deque[FetchFailure] = deque()
        # Rebalances are reported: not after `assign` or `unsubscribe`.
        self._is_subscribed = True
        # The newest tenure in which all assigned partitions were the application's own, used for fencing.
        # With a newer one, offsets of a partition that another member owns by now would be accepted.
        self.tenure: Tenure | None = None
        self._newest: Tenure | None = None
        # Lost partitions whose loss was not reported yet.
        self._lost: set[TopicPartition] = set()

    # Events of the sidecar

    def on_rebalance(self, event: Rebalance) -> None:
        """Handle a rebalance event; the next poll reports it."""
        if not self._is_subscribed:
            self._on_manual_rebalance(event)
        elif event.kind is RebalanceKind.ASSIGNED:
            self._rebalances.append(event)
        elif event.kind is RebalanceKind.REVOKING:
            self._announce(event, self._assigned_or_announced(event.partitions))
        elif event.kind is RebalanceKind.LOST:
            self._announce(event, self._withdraw(event.partitions))
        elif gone := self._withdraw(event.partitions):
            # Lost before the application has released it: nothing can be committed any more.
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
        """Handle an event of a manual assignment: acknowledge it without a report."""
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
        """Keep the partitions that are assigned, or whose assignment is still to be reported."""
        coming = {each for event in self._rebalances for each in event.partitions}
        return tuple(each for each in partitions if each in self.assigned or each in coming)

    def _withdraw(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Remove partitions from events that were not reported; return those whose loss must be reported."""
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
        """Buffer records; False, and they are dropped, if their tenure has ended or a seek has voided them."""
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
        """Start a delivery epoch: the first, or one after a seek by another program, which voids the epoch before."""
        if assigned.delivery_epoch != NO_EPOCH or assigned.position is None:
            self._drop_records(batch_slice.topic_partition)
            assigned.position = batch_slice.base_offset
        assigned.delivery_epoch = batch_slice.delivery_epoch

    def on_fetch_failure(self, failure: FetchFailure) -> None:
        """Handle a fetch error; the next poll raises it, once."""
        self._failures.append(failure)

    def on_disconnect(self, reason: str) -> None:
        """Drop everything of the disconnected sidecar; all assigned partitions are lost."""
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

    # Reports to the application

    def next_rebalance(self) -> Rebalance | None:
        """Return the rebalance to report next, before any further record is returned."""
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
        Begin to report a rebalance; assigned partitions become consumable, at these positions where known.

        Called again for the same event if its listener has raised.
        """
        if event is self._begun:
            return
        self._begun = event
        if event.kind is RebalanceKind.ASSIGNED and event.tenure is not None:
            for partition in event.partitions:
                self.assigned[partition] = AssignedPartition(event.tenure.number, positions.get(partition))

    def end_rebalance(self, event: Rebalance) -> bool:
        """Finish reporting a rebalance; return whether the sidecar expects an acknowledgement."""
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
        """Return a rebalance with all losses that were not reported, for a consumer that closes."""
        return Rebalance(NO_EVENT, RebalanceKind.LOST, tuple(sorted(self._lost))) if self._lost else None

    def still_assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Keep the partitions that the sidecar has not reported as lost."""
        return [partition for partition in partitions if partition not in self._lost]

    def acks_due(self) -> Sequence[int]:
        """Return the events to acknowledge now, as nothing of them is reported."""
        events = [event for event in self._acks_due if event != NO_EVENT]
        self._acks_due.clear()
        return events

    # Records to the application

    def take(self, records_max: int) -> list[BatchSlice]:
        """Take the next records of partitions that are not paused; they count as returned."""
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
        """Undo the last `take` of a partition from this offset on."""
        assigned = self.assigned.get(batch_slice.topic_partition)
        if assigned is None or assigned.position != batch_slice.next_offset or not assigned.returned:
            return
        last = assigned.returned.pop()
        if last.first < offset:
            assigned.returned.append(replace(last, last=offset - 1))
        assigned.position = offset
        self.buffer.put_back(batch_slice.between(offset, batch_slice.next_offset))

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> Sequence[FinishedRange]:
        """Finish the returned records below committed offsets; the commit is their verdict. Return them."""
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
        """Finish all returned records, as the application polls again."""
        finished = [each for assigned in self.assigned.values() for each in assigned.returned]
        for assigned in self.assigned.values():
            assigned.returned.clear()
        return finished

    def credit(self) -> int:
        """Return the credit to grant to the sidecar now; 0 until half of the room is free."""
        more = self._room - self.buffer.records - self._credit
        if more * 2 < self._room:
            return 0
        self._credit += more
        return more

    def paused_in_buffer(self) -> Mapping[TopicPartition, int]:
        """
        Return the first buffered offset of every paused partition.

        Their records go back to the sidecar, which would otherwise consider the application stuck.
        """
        first = {partition: self.buffer.first_offset(partition) for partition in self.paused}
        return {partition: offset for partition, offset in first.items() if offset is not None}

    # From the application

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assign partitions manually; rebalances are no longer reported."""
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
        """Report rebalances from now on; a manual assignment is dropped."""
        if not self._is_subscribed:
            self.assign(())
        self._is_subscribed = True

    def on_seek(
        self, partition: TopicPartition, offset: int, voided_epoch: int | None, *, moved: bool = True
    ) -> None:
        """
        Record a seek: records of this delivery epoch or an earlier one are void, also those that arrive later.

        None: the sidecar has lost the partition, and sends nothing of it.
        """
        assigned = self.assigned.get(partition)
        if assigned is None:
            return
        if voided_epoch is None:
            voided_epoch = assigned.delivery_epoch
        self.buffer.drop(partition, voided_epoch)
        assigned.returned.clear()
        assigned.moved = assigned.moved or moved
        # Otherwise its first records have arrived before the response.
        if assigned.delivery_epoch <= voided_epoch:
            assigned.delivery_epoch, assigned.position = voided_epoch + 1, offset

    def position(self, partition: TopicPartition, start: int | None = None) -> int | None:
        """Return the next offset to return; set it to `start` if it is not known yet."""
        assigned = self.assigned.get(partition)
        if assigned is None:
            return None
        if assigned.position is None:
            assigned.position = start
        return assigned.position

    def consumed_positions(self) -> Mapping[TopicPartition, int]:
        """
        Return the next offset to read of every partition that the application has read or sought.

        Partitions whose loss is being reported are left out: their offsets cannot be committed.
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
