"""
The delivery core's entry point: events and the time in, actions out.

Called by the delivery driver, which performs the actions in order, feeds their outcomes back as events, and sends a
Tick when the alarm is due.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from rota_sidecar.core.delivery import (
    attaching,
    commits,
    dead_letters,
    dispatch,
    draining,
    initial_position,
    progress,
    reading,
    requests,
    revocation,
    succession,
    verdicts,
    views,
)
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.actions import Action
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.delivery.core import Core, Timer
from rota_sidecar.core.delivery.partition import (
    FetchingCommitted,
    FetchSession,
    PartitionState,
    ResolvingOffset,
    Revoking,
    Running,
    Stopped,
    Subject,
)
from rota_sidecar.core.delivery.views import PartitionView
from rota_sidecar.core.member.partitions import Partition, Tenure


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
        return self._core.config

    @property
    def alarm(self) -> int | None:
        """Return the time in ms at which a Tick is due; None: no timer runs. Changes with every step."""
        return min(self._core.timers.values(), default=None)

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """Return the owned partitions with their tenures, including those under revocation."""
        return {
            partition: partition_state.tenure
            for partition, partition_state in self._core.partition_states.items()
        }

    @property
    def paused(self) -> frozenset[Partition]:
        """Return the partitions that the application paused."""
        return views.paused(self._core)

    @property
    def positions(self) -> Mapping[Partition, int]:
        """Return the application's position in each partition, where it is known."""
        return views.positions(self._core)

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return self._core.in_flight

    @property
    def awaits_successor(self) -> bool:
        """Return True if the application of a pod that ends is served until a successor waits."""
        return self._core.awaiting_successor is not None

    @property
    def readiness(self) -> str:
        """Return why the core made the member leave the group; empty: it did not."""
        return progress.readiness(self._core)

    @property
    def partitions(self) -> Mapping[Partition, PartitionView]:
        """Return a view of every partition."""
        return views.partitions(self._core)

    def step(self, event: on.Event, now_ms: int) -> Sequence[Action]:
        """Handle an event; return the actions to perform, in order. `now_ms` is monotonic, from any origin."""
        core = self._core
        core.now_ms, core.actions = now_ms, []
        _handle(core, event)
        succession.end_when_over(core)
        _process_touched(core)
        return core.actions


def _handle(core: Core, event: on.Event) -> None:
    match event:
        case (
            on.Assigned() | on.Revoke() | on.Revoked() | on.Lost() | on.CoordinatorRegained() | on.LeftGroup()
        ):
            _on_member_event(core, event)
        case (
            on.Committed()
            | on.CommittedFetched()
            | on.OffsetsListed()
            | on.Read()
            | on.ReadFailed()
            | on.DeadLetterWritten()
        ):
            _resume(core, event)
        case on.Attached() | on.Detached() | on.Acknowledged() | on.Credit() | on.Judged() | on.Reported():
            _on_application_event(core, event)
        case on.CommitRequested() | on.SeekRequested() | on.PauseRequested() | on.ResumeRequested():
            requests.handle(core, event)
        case on.Configure() | on.Drain() | on.Undrain() | on.HandOver() | on.ResetOffsets():
            _execute(core, event)
        case on.Tick():
            _tick(core)
        case _:
            assert_never(event)


def _on_member_event(core: Core, event: on.FromMember) -> None:
    match event:
        case on.Assigned():
            commits.accepted_again(core)
            initial_position.assigned(core, event)
            attaching.notify_assigned(core, event.tenure)
        case on.Revoke():
            commits.accepted_again(core)
            revocation.revoke(core, event)
        case on.Revoked():
            revocation.revoked(core, event)
        case on.Lost():
            revocation.lost(core, event)
        case on.CoordinatorRegained():
            commits.accepted_again(core)
        case on.LeftGroup():
            progress.left_group(core)
        case _:
            assert_never(event)


def _resume(core: Core, event: on.Outcome) -> None:
    match event:
        case on.Committed():
            commits.committed(core, event)
        case on.CommittedFetched():
            initial_position.found(core, event)
        case on.OffsetsListed():
            initial_position.offsets_listed(core, event)
        case on.Read():
            reading.read(core, event)
        case on.ReadFailed():
            reading.failed(core, event)
        case on.DeadLetterWritten():
            dead_letters.written(core, event)
        case _:
            assert_never(event)


def _on_application_event(core: Core, event: on.FromApplication) -> None:
    match event:
        case on.Attached():
            attaching.attached(core, event)
        case on.Detached():
            attaching.detached(core, event)
            succession.application_gone(core, event)
        case on.Acknowledged():
            attaching.acknowledged(core, event)
        case on.Credit():
            dispatch.credit(core, event.records)
        case on.Judged():
            verdicts.judged(core, event)
        case on.Reported():
            verdicts.reported(core, event)
        case _:
            assert_never(event)


def _execute(core: Core, order: on.Order) -> None:
    match order:
        case on.Configure():
            core.config = order.config
            core.set_terms()
            initial_position.retry_stopped(core)
            progress.check(core)
        case on.Drain():
            succession.drain(core, order)
        case on.Undrain():
            succession.undrain(core)
        case on.HandOver():
            succession.hand_over(core, order)
        case on.ResetOffsets():
            requests.reset(core, order)
        case _:
            assert_never(order)


def _tick(core: Core) -> None:
    for key in [key for key, at_ms in core.timers.items() if at_ms <= core.now_ms]:
        del core.timers[key]
        match key:
            case (Timer.COMMIT, _):
                commits.interval_over(core)
            case (Timer.PROGRESS, _):
                progress.check(core)
            case (Timer.REVOKE, int(number)):
                revocation.time_passes(core, number)
            case (Timer.COMMIT_AGAIN, Partition() as partition) if partition in core.partition_states:
                commits.backoff_over(core, core.partition_states[partition])
            case (_, Partition() as partition) if partition in core.partition_states:
                core.touch(core.partition_states[partition])
            case _:
                # Timers whose work is part of every step.
                continue


def _process_touched(core: Core) -> None:
    """Process touched partitions until none is left, then finish revocations, drain, leave, rejoin and problem reports."""
    while True:
        partition_states, core.touched = list(core.touched.values()), {}
        for partition_state in partition_states:
            _process(core, partition_state)
        initial_position.request_offsets(core, partition_states)
        commits.send(core)
        dispatch.dispatch_ready(core)
        if not core.touched:
            break
    revocation.release(core)
    draining.report_drained(core)
    draining.leave_group(core)
    progress.note_unattended(core)
    progress.rejoin_when_ready(core)
    core.emit_problems()


def _process(core: Core, partition_state: PartitionState) -> None:
    """Process a touched partition: dead letters, fetch, dispatch queue, commit."""
    match partition_state.state:
        case Running(fetch_session):
            _process_running(core, partition_state, fetch_session)
        case (
            Revoking(fetch_session=FetchSession() as fetch_session)
            | Stopped(fetch_session=FetchSession() as fetch_session)
        ):
            dead_letters.write(core, partition_state, fetch_session)
        case Revoking() | Stopped() | FetchingCommitted() | ResolvingOffset():
            pass
    commits.consider(core, partition_state)


def _process_running(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    dead_letters.write(core, partition_state, fetch_session)
    if fetch_session.is_replaceable and fetch_session.terms != core.terms:
        initial_position.renew(core, partition_state, fetch_session)
    elif fetch_session.is_idle and fetch_session.expired and not fetch_session.ledger.waiting:
        if not fetch_session.has_read or commits.has_settled(core, partition_state):
            initial_position.expire(core, partition_state, fetch_session)
    else:
        reading.fail_poison(core, partition_state, fetch_session)
        reading.fetch_if_room(core, partition_state, fetch_session)
        dispatch.queue(core, partition_state, fetch_session)
        _report_stopped(core, partition_state, fetch_session)


def _report_stopped(core: Core, partition_state: PartitionState, fetch_session: FetchSession) -> None:
    if fetch_session.ledger.stopped:
        core.report_problem(partition_state, Subject.RECORD, fetch_session.ledger.stopped)
    else:
        partition_state.problems.pop(Subject.RECORD, None)
