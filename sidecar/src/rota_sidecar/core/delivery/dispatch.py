"""
Dispatch: which partition is next, and how many of its records, by credit, lanes, priorities, round robin and rate.

`delivery` calls `update` for each processed partition, then `dispatch_ready` once per round of a step.
"""

from rota_sidecar.core.delivery.context import Context, Timer
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.member.partitions import Partition

# Limit of records that a partition dispatches in one turn of the round robin.
TURN_RECORDS_MAX = 1_000
# The token bucket of the rate limit holds the tokens of 1/RATE_SPAN seconds.
RATE_SPAN = 10


class Dispatcher:
    """
    The partitions with records to dispatch, and the application's credit.

    Invariant: credit >= 0, and a queued partition has records; others are removed when they are processed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        # Number of records that the application accepts at present.
        self._credit = 0
        self._tokens = 0.0
        self._tokens_ms = 0
        # Partitions with records to dispatch, in round-robin order, and those with a record to dispatch in isolation.
        self._queue: dict[Partition, PartitionState] = {}
        self._isolated: dict[Partition, PartitionState] = {}

    def attach(self) -> None:
        """Begin with an application, which has given no credit."""
        self._credit = 0

    def add_credit(self, records: int) -> None:
        """Add to the number of records that the application accepts."""
        if self._context.conditions.is_attached:
            self._credit += max(records, 0)

    @property
    def has_waiting(self) -> bool:
        """Return True if records of the member's partitions wait."""
        return any(not partition_state.is_manual for partition_state in self._queue.values())

    def update(self, partition: Partition, partition_state: PartitionState) -> None:
        """Add the partition to the queues, or remove it, by the state of its records."""
        if partition_state.wants_alone:
            self._isolated.setdefault(partition, partition_state)
        elif self._isolated:
            self._isolated.pop(partition, None)
        if partition_state.has_records:
            self._queue.setdefault(partition, partition_state)
        else:
            self._queue.pop(partition, None)

    def remove(self, partition: Partition) -> None:
        """Remove a partition that the member no longer owns."""
        self._queue.pop(partition, None)
        self._isolated.pop(partition, None)

    def dispatch_ready(self) -> None:
        """Dispatch as many records as credit, lanes and rate allow. The member is in the group."""
        context, conditions = self._context, self._context.conditions
        if not (self._queue or self._isolated) or not (conditions.is_attached and conditions.may_read):
            return
        isolated = self._first_isolated() if self._isolated else None
        if isolated is not None:
            # An isolated record waits until no other record is in flight.
            if context.in_flight == isolated.in_flight and not isolated.paused and not isolated.awaits_commit:
                self._dispatch(isolated, self._budget(), alone=True)
            return
        while self._queue and self._budget() > 0:
            before = len(self._queue)
            # After partitions have left the queue, partitions of a lower priority may be candidates.
            if not self._dispatch_turn() and len(self._queue) == before:
                return

    def _first_isolated(self) -> PartitionState | None:
        """Return the first partition with an isolated record; the others wait, also while its commit is awaited."""
        return next(
            (
                partition_state
                for partition_state in self._isolated.values()
                if partition_state.in_flight or partition_state.takes_part
            ),
            None,
        )

    def _candidates(self) -> list[PartitionState]:
        """Return the queued partitions of the highest priority."""
        priorities = self._context.conditions.config.priorities
        if not priorities:
            return list(self._queue.values())
        by_priority: dict[int, list[PartitionState]] = {}
        for partition, partition_state in self._queue.items():
            by_priority.setdefault(priorities.get(partition.topic, 0), []).append(partition_state)
        return by_priority[max(by_priority)]

    def _dispatch_turn(self) -> bool:
        """Dispatch from each candidate once, as long as one of them can dispatch; return True if there were records."""
        dispatched = False
        # Of those that stay where they are in the queue.
        first: PartitionState | None = None
        for partition_state in self._candidates():
            partition, budget = partition_state.partition, self._budget()
            if not partition_state.takes_part or partition_state.awaits_commit:
                del self._queue[partition]
                continue
            first = first or partition_state
            if budget <= 0 or not self._may_any(first):
                break
            if not self._has_lane(partition_state):
                continue
            # The partition moves to the end of the queue, or leaves it until it is touched.
            del self._queue[partition]
            first = None if first is partition_state else first
            if self._dispatch(partition_state, min(budget, TURN_RECORDS_MAX), alone=False):
                dispatched = True
                if partition_state.has_records:
                    self._queue[partition] = partition_state
        return dispatched

    def _may_any(self, first: PartitionState) -> bool:
        """
        Return True if a candidate may have a lane.

        The first partition of the queue has waited longest. While it has no lane, the others get no further records on the lanes
        that they have: it would wait until they have no records left.
        """
        return self._is_lane_free or first.has_lane

    def _has_lane(self, partition_state: PartitionState) -> bool:
        return self._is_lane_free or (partition_state.is_in_order and partition_state.has_lane)

    @property
    def _is_lane_free(self) -> bool:
        return self._context.lanes < self._context.conditions.config.concurrency

    def _dispatch(self, partition_state: PartitionState, records_max: int, *, alone: bool) -> bool:
        if records_max <= 0:
            return False
        config = self._context.conditions.config
        lanes_max = max(config.concurrency - self._context.lanes, 0)
        records = partition_state.dispatch(records_max, lanes_max, alone=alone)
        self._credit -= records
        if config.rate_max:
            self._tokens -= records
        if records:
            self._context.watch_progress()
        return bool(records)

    def _budget(self) -> int:
        """Return the number of records that may be dispatched now, by credit and rate."""
        credit, rate = self._credit, self._context.conditions.config.rate_max
        if not rate or not credit:
            return credit
        most, now_ms = max(rate / RATE_SPAN, 1), self._context.now_ms
        self._tokens = min(most, self._tokens + rate * (now_ms - self._tokens_ms) / 1000)
        self._tokens_ms = now_ms
        if self._tokens < 1:
            self._context.set_timer(Timer.RATE, None, now_ms + 1 + int((most - self._tokens) * 1000 / rate))
        return min(credit, int(self._tokens))
