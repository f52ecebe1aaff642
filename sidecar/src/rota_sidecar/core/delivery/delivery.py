"""
The delivery core's entry point: events and the time in, actions out.

Called by the delivery driver, which performs the actions in order, feeds their outcomes back as events, and sends a
Tick when the alarm is due.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.assignments import Assignments
from rota_sidecar.core.delivery.commits import CommitBatch
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.delivery.context import Context, Timer
from rota_sidecar.core.delivery.dispatch import Dispatcher
from rota_sidecar.core.delivery.membership import Membership
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.delivery.requests import Requests
from rota_sidecar.core.delivery.states import FetchingCommitted, PartitionView
from rota_sidecar.core.member.partitions import Partition, Tenure

# Prefetch limit in bytes that each partition has, however many there are.
SHARE_MIN_BYTES = 16 << 10


class Core:
    """
    The parts of the delivery core, and the way of an event through them.

    Invariant: all parts share one context and one set of partitions. An event changes partitions, and touches those that need
    another look; these are processed until none is left.
    """

    def __init__(self, config: DeliveryConfig) -> None:
        self._context = Context(config)
        self._partition_states: dict[Partition, PartitionState] = {}
        self._dispatcher = Dispatcher(self._context)
        self._commits = CommitBatch(self._context, self._partition_states)
        self._membership = Membership(self._context, self._partition_states)
        self._assignments = Assignments(
            self._context, self._partition_states, self._membership, self._dispatcher, self._commits
        )
        self._requests = Requests(self._context, self._partition_states)
        self._share()

    @property
    def context(self) -> Context:
        """Return what the parts share, for reading."""
        return self._context

    @property
    def membership(self) -> Membership:
        """Return whether the member is to be in the group, for reading."""
        return self._membership

    @property
    def partition_states(self) -> Mapping[Partition, PartitionState]:
        """Return the owned partitions, including those under revocation."""
        return self._partition_states

    def step(self, event: on.Event, now_ms: int) -> Sequence[do.Action]:
        """Handle an event; return the actions to perform, in order."""
        context, membership = self._context, self._membership
        context.begin_step(now_ms)
        self._handle(event)
        if membership.awaits_successor:
            membership.end_wait_when_over()
        self._process_touched()
        while context.has_touched:
            self._process_touched()
        if self._assignments.has_revocations:
            self._assignments.release()
        if not membership.is_steady:
            membership.report_drained()
            membership.leave_when_drained()
            membership.note_unattended(has_waiting=self._dispatcher.has_waiting)
            membership.rejoin_when_ready(is_ready=self._assignments.is_application_ready)
        return context.end_step()

    def _process_touched(self) -> None:
        """Process the touched partitions: lookups, fetches, dead letters, commits, dispatch. It may touch some again."""
        lookups: list[PartitionState] = []
        for partition in self._context.take_touched():
            partition_state = self._partition_states[partition]
            if partition_state.process(self._share_bytes):
                lookups.append(partition_state)
            self._dispatcher.update(partition, partition_state)
            self._commits.consider(partition, partition_state)
        if lookups:
            self._request_offsets(lookups)
        self._commits.send()
        if self._membership.is_in_group:
            self._dispatcher.dispatch_ready()

    def _share(self) -> None:
        """Set the prefetch limit of each partition in bytes: its share of the total, within its own limit."""
        config = self._context.conditions.config
        share = config.ahead_bytes_total_max // max(len(self._partition_states), 1)
        self._share_bytes = min(config.ahead_bytes_max, max(share, SHARE_MIN_BYTES))

    def _request_offsets(self, partition_states: Iterable[PartitionState]) -> None:
        """Send the lookups of these partitions, in one request of each kind."""
        fetches: dict[bool, list[PartitionState]] = {}
        lookups: list[PartitionState] = []
        for partition_state in partition_states:
            if isinstance(partition_state.state, FetchingCommitted):
                fetches.setdefault(partition_state.is_manual, []).append(partition_state)
            else:
                lookups.append(partition_state)
        for is_manual, found in fetches.items():
            self._context.emit(do.FetchCommitted(*self._begin_lookup(found), is_manual))
        if lookups:
            self._context.emit(do.ListOffsets(*self._begin_lookup(lookups)))

    def _begin_lookup(self, partition_states: Iterable[PartitionState]) -> tuple[int, frozenset[Partition]]:
        request = self._context.number()
        for partition_state in partition_states:
            partition_state.begin_lookup(request)
        return request, frozenset(partition_state.partition for partition_state in partition_states)

    # ------------------------------------------------------------------------------------------ events

    def _handle(self, event: on.Event) -> None:
        match event:
            # These three come for each record that comes alone.
            case on.Read():
                self._fetched(event)
            case on.Judged():
                self._judged(event)
            case on.Credit():
                self._dispatcher.add_credit(event.records)
            case on.CommitRequested() | on.SeekRequested() | on.PauseRequested() | on.ResumeRequested():
                self._requests.handle(event)
            case on.Configure() | on.Drain() | on.Undrain() | on.HandOver() | on.ResetOffsets():
                self._execute(event)
            case on.Attached() | on.Detached() | on.Acknowledged() | on.Reported():
                self._on_application_event(event)
            case on.Tick():
                self._tick()
            case _:
                self._resume(event)

    def _on_member_event(self, event: on.FromMember) -> None:
        match event:
            case on.Assigned():
                self._commits.accepted_again()
                self._assignments.assigned(event)
            case on.Revoke():
                self._commits.accepted_again()
                self._assignments.revoke(event)
            case on.Revoked():
                self._assignments.revoked(event)
            case on.Lost():
                self._assignments.lost(event)
            case on.CoordinatorRegained():
                self._commits.accepted_again()
            case on.LeftGroup():
                self._membership.left_group()
            case _:
                assert_never(event)
        self._share()

    def _fetched(self, event: on.Read | on.ReadFailed) -> None:
        partition_state = self._owner_of(event.delivery_epoch)
        if partition_state is not None:
            partition_state.fetched(event)

    def _resume(
        self,
        event: on.Committed
        | on.CommittedFetched
        | on.OffsetsListed
        | on.ReadFailed
        | on.DeadLetterWritten
        | on.FromMember,
    ) -> None:
        match event:
            case on.ReadFailed():
                self._fetched(event)
            case on.DeadLetterWritten():
                partition = self._context.release_number(event.dead_letter)
                if partition is not None and partition in self._partition_states:
                    self._partition_states[partition].dead_letter_written(event)
            case on.Committed():
                self._commits.committed(event)
            case on.CommittedFetched() | on.OffsetsListed():
                for partition_state in self._partition_states.values():
                    partition_state.looked_up(event)
            case _:
                self._on_member_event(event)

    def _owner_of(self, delivery_epoch: int) -> PartitionState | None:
        """Return the partition whose present fetch session has this delivery epoch."""
        partition = self._context.owner_of(delivery_epoch)
        if partition is None or (partition_state := self._partition_states.get(partition)) is None:
            return None
        session = partition_state.session
        return partition_state if session is not None and session.number == delivery_epoch else None

    def _on_application_event(self, event: on.Attached | on.Detached | on.Acknowledged | on.Reported) -> None:
        match event:
            case on.Reported():
                self._reported(event)
            case on.Attached():
                self._assignments.attach(event)
            case on.Detached():
                self._assignments.detach(event)
                self._membership.application_gone(clean=event.clean)
            case on.Acknowledged():
                self._assignments.acknowledge(event)
            case _:
                assert_never(event)

    def _judged(self, event: on.Judged) -> None:
        """Apply each verdict on its own; an invalid one is answered with Refuse, and the others apply."""
        for judgement in event.judgements:
            partition_state = self._owner_of(judgement.delivery_epoch)
            # Each process of the sidecar numbers its epochs from 1, so one of the process before may be another partition's now.
            if partition_state is None or partition_state.partition != judgement.partition:
                self._membership.judged_late(judgement)
            else:
                partition_state.judge(judgement)

    def _reported(self, event: on.Reported) -> None:
        """Apply positions that an application reports which fetches records itself."""
        for each in event.positions if self._context.conditions.traits.reads_itself else ():
            partition_state = self._partition_states.get(each.partition)
            if partition_state is not None and partition_state.tenure.number == each.tenure:
                partition_state.report_position(each)

    def _execute(self, order: on.Order) -> None:
        match order:
            case on.Configure():
                self._context.change(config=order.config)
                self._share()
                self._context.touch_all(self._partition_states)
                for partition_state in self._partition_states.values():
                    partition_state.retry_stopped()
                self._membership.check_progress(self._assignments.unacknowledged_since_ms)
            case on.Drain():
                self._membership.drain(order)
            case on.Undrain():
                self._membership.undrain()
            case on.HandOver():
                self._membership.hand_over(order)
            case on.ResetOffsets():
                self._requests.reset(order, self._assignments.tenure)
            case _:
                assert_never(order)

    def _tick(self) -> None:
        for key in self._context.due_timers():
            match key:
                case (Timer.COMMIT, _):
                    self._commits.interval_over()
                case (Timer.PROGRESS, _):
                    self._membership.check_progress(self._assignments.unacknowledged_since_ms)
                case (Timer.REVOKE, int(number)):
                    self._assignments.time_passes(number)
                case (Timer.COMMIT_AGAIN, Partition() as partition) if partition in self._partition_states:
                    self._commits.try_again(self._partition_states[partition])
                case (_, Partition() as partition) if partition in self._partition_states:
                    self._context.touch(partition)
                case _:
                    # Timers whose work is part of every step.
                    continue


class Delivery:
    """
    The delivery core of one sidecar.

    Invariant: no record before a committed offset is without a final verdict, and records of one delivery epoch are
    dispatched under the ordering of the settings.
    """

    def __init__(self, config: DeliveryConfig) -> None:
        self._core = Core(config)

    @property
    def config(self) -> DeliveryConfig:
        """Return the present settings."""
        return self._core.context.conditions.config

    @property
    def alarm(self) -> int | None:
        """Return the time in ms at which a Tick is due; None: no timer runs. Changes with every step."""
        return self._core.context.alarm

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """Return the owned partitions with their tenures, including those under revocation."""
        return {partition: each.tenure for partition, each in self._core.partition_states.items()}

    @property
    def paused(self) -> frozenset[Partition]:
        """Return the partitions that the application paused."""
        return frozenset(partition for partition, each in self._core.partition_states.items() if each.paused)

    @property
    def positions(self) -> Mapping[Partition, int]:
        """Return the application's position in each partition, where it is known."""
        return {
            partition: each.position
            for partition, each in self._core.partition_states.items()
            if each.position is not None
        }

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return self._core.context.in_flight

    @property
    def awaits_successor(self) -> bool:
        """Return True if the application of a pod that ends is served until a successor waits."""
        return self._core.membership.awaits_successor

    @property
    def readiness(self) -> str:
        """Return why the core made the member leave the group; empty: it did not."""
        return self._core.membership.readiness

    @property
    def partitions(self) -> Mapping[Partition, PartitionView]:
        """Return a view of every partition."""
        return {partition: each.view() for partition, each in self._core.partition_states.items()}

    def step(self, event: on.Event, now_ms: int) -> Sequence[do.Action]:
        """Handle an event; return the actions to perform, in order. `now_ms` is monotonic, from any origin."""
        return self._core.step(event, now_ms)
