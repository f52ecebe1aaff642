"""
Participation of the member in the group: it leaves when the application hangs, and when it is drained.

A hung application must not keep its partitions because its sidecar is healthy. A member of the classic protocol cannot give back
a single partition, so it leaves the group with a reason, and rejoins when the application has settled the records that it held.

A drain stops dispatch, commits completed records, and is answered with Drained. Where Fleet passes the member's instance or
membership on to another pod, which starts only after this one has begun to end, the application is served until HandOver, until a
time limit, or until nothing is served: the application has gone, or the member has left the group. Then the drain begins.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.context import Context, Timer
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Partition


class InGroup(NamedTuple):
    """The member is in the group, or the core did not make it leave."""


class Leaving(NamedTuple):
    """Leave was sent to the member, which has not left the group yet."""

    reason: str
    # True if the application has ended during a drain; False: it hangs.
    is_drained: bool = False


class OutOfGroup(NamedTuple):
    """The member has left the group, and rejoins when the application is ready, or when the drain has ended."""

    reason: str
    is_drained: bool = False


class Draining(NamedTuple):
    """A drain under way: nothing is dispatched. `is_reported`: its Drained action was emitted."""

    deadline_ms: int
    leaves_group: bool = False
    is_reported: bool = False
    # True if the application has detached in good order since the drain began.
    said_goodbye: bool = False
    # True if a successor waits for the member's instance.
    has_successor: bool = False


class AwaitingSuccessor(NamedTuple):
    """The application of a pod that ends is served, until this time in ms at the latest; then `drain` begins."""

    until_ms: int
    drain: on.Drain


class Membership:
    """Invariant: not both a drain and a wait for a successor are under way, and the context knows whether a drain is."""

    def __init__(self, context: Context, partition_states: Mapping[Partition, PartitionState]) -> None:
        self._context = context
        self._partition_states = partition_states
        self._state: InGroup | Leaving | OutOfGroup = InGroup()
        self._draining: Draining | None = None
        self._awaiting: AwaitingSuccessor | None = None
        # By delivery epoch: ledgers of removed partitions of which a hung application still holds records.
        self._retired: dict[int, tuple[Partition, Ledger]] = {}
        # Time since which records wait although no application is attached; None: they do not.
        self._unattended_since_ms: int | None = None

    @property
    def is_in_group(self) -> bool:
        """Return True unless the core has made the member leave."""
        return isinstance(self._state, InGroup)

    @property
    def is_steady(self) -> bool:
        """Return True if an application is attached, the member is in the group, and nothing drains."""
        return (
            self._draining is None
            and self._unattended_since_ms is None
            and isinstance(self._state, InGroup)
            and self._context.conditions.is_attached
        )

    @property
    def is_hanging(self) -> bool:
        """Return True if the member leaves because its application hangs. One that is drained leaves while its application may run."""
        return isinstance(self._state, Leaving) and not self._state.is_drained

    @property
    def lost_reason(self) -> str:
        """Return why partitions that the member releases are lost to a hung application; empty: they are revoked."""
        return self._state.reason if isinstance(self._state, Leaving) and self.is_hanging else ""

    @property
    def readiness(self) -> str:
        """Return why the member left the group, or is leaving it; empty: it is in the group."""
        return "" if isinstance(self._state, InGroup) else self._state.reason

    @property
    def awaits_successor(self) -> bool:
        """Return True if the application of a pod that ends is served until a successor waits."""
        return self._awaiting is not None

    @property
    def _owns(self) -> bool:
        return any(not partition_state.is_manual for partition_state in self._partition_states.values())

    # ------------------------------------------------------------------------------------------ progress

    def assigned(self, *, is_manual: bool) -> None:
        """Note an assignment: of the application itself, or of a member that has joined again."""
        if is_manual or isinstance(self._state, OutOfGroup):
            self._state = InGroup()

    def note_unattended(self, *, has_waiting: bool) -> None:
        """Note the time since which records wait without an application; a suspended or draining sidecar does not count."""
        context = self._context
        is_meant = context.conditions.config.suspended or context.conditions.is_draining
        if is_meant or context.conditions.is_attached or not has_waiting:
            self._unattended_since_ms = None
        elif self._unattended_since_ms is None:
            self._unattended_since_ms = context.now_ms
            context.watch_progress()

    def check_progress(self, unacknowledged_since_ms: int | None) -> None:
        """Leave the group if the application exceeds the processing timeout; else schedule the next check."""
        context = self._context
        context.stop_timer(Timer.PROGRESS, None)
        oldest = min(self._waiting_since(unacknowledged_since_ms), default=None)
        if oldest is None or not self.is_in_group:
            return
        since_ms, reason = oldest
        due_ms = since_ms + context.conditions.config.processing_timeout_ms
        if context.now_ms < due_ms:
            context.set_timer(Timer.PROGRESS, None, due_ms)
        elif self._owns:
            reason += ": the member leaves the group, and rejoins when the application makes progress"
            self._state = Leaving(reason)
            context.emit(do.Leave(reason))
            context.report_of_all(self._partition_states, reason)

    def _waiting_since(self, unacknowledged_since_ms: int | None) -> Iterator[tuple[int, str]]:
        """Yield (time in ms, reason) for each record, event or attachment for which the core waits since then."""
        within = f"within {self._context.conditions.config.processing_timeout_ms / 1000:g} s"
        for partition, partition_state in self._partition_states.items():
            since_ms = partition_state.in_flight_since_ms
            if since_ms is not None and not partition_state.is_manual:
                name = f"{partition.topic}-{partition.number}"
                yield since_ms, f"the application has given no verdict on a record of {name} {within}"
        if unacknowledged_since_ms is not None:
            yield unacknowledged_since_ms, f"the application has not acknowledged its partitions {within}"
        if self._unattended_since_ms is not None:
            yield self._unattended_since_ms, f"no application has attached {within}, and there are records"

    def left_group(self) -> None:
        """Handle the end of Leave: the member is out of the group."""
        if isinstance(self._state, Leaving):
            self._state = OutOfGroup(self._state.reason, self._state.is_drained)

    def rejoin_when_ready(self, *, is_ready: bool) -> None:
        """Rejoin once the drain has ended, or an application is ready, which holds no records of before."""
        state = self._state
        if isinstance(state, OutOfGroup) and (
            self._draining is None if state.is_drained else is_ready and not self._retired
        ):
            self._state = InGroup()
            self._context.emit(do.Rejoin())

    # ------------------------------------------------------------------------------------------ retired records

    def retire(self, partition_state: PartitionState) -> None:
        """Note the records of a partition that is removed, if they are why the member has left the group."""
        session = partition_state.session
        if session is not None and partition_state.in_flight and not self.is_in_group:
            self._retired[session.number] = partition_state.partition, session.ledger

    def judged_late(self, judgement: on.Judgement) -> None:
        """Note a verdict on a removed partition, which changes no offset but shows that a hung application works again."""
        partition, ledger = self._retired.get(judgement.delivery_epoch, (None, None))
        if ledger is not None and partition == judgement.partition:
            ledger.judge(judgement.first, judgement.last, judgement.verdict, self._context.now_ms)
            if not ledger.in_flight:
                del self._retired[judgement.delivery_epoch]

    def expect_no_verdicts(self, partitions: Iterable[Partition]) -> None:
        """Expect no verdicts on removed partitions: the application no longer works on them."""
        gone = set(partitions)
        self._retired = {
            number: retired for number, retired in self._retired.items() if retired[0] not in gone
        }

    # ------------------------------------------------------------------------------------------ draining

    def attached(self) -> None:
        """Note that an application attached."""
        self._retired.clear()
        self._note_goodbye(said_goodbye=False)

    def detached(self, *, clean: bool) -> None:
        """Note that the application detached; `clean`: by a request."""
        self._retired.clear()
        self._note_goodbye(said_goodbye=clean)

    def _note_goodbye(self, *, said_goodbye: bool) -> None:
        if self._draining is not None:
            self._draining = self._draining._replace(said_goodbye=said_goodbye)

    def drain(self, event: on.Drain) -> None:
        """Wait for a successor, if the order permits it and the application is served; else drain. A repeated order waits no longer."""
        if event.serves_until_ms is None or self._draining is not None or not self._is_serving:
            self._begin_drain(event)
            return
        until_ms = event.serves_until_ms
        if self._awaiting is None:
            self._context.emit(do.AwaitSuccessor(until_ms))
        else:
            until_ms = min(until_ms, self._awaiting.until_ms)
        self._awaiting = AwaitingSuccessor(until_ms, event)
        self._context.set_timer(Timer.DRAIN, None, until_ms)

    def hand_over(self, event: on.HandOver) -> None:
        """Drain now. With a successor the member leaves once it is drained: the application's goodbye is not waited for."""
        self._end_wait()
        if event.has_successor and self._draining is not None:
            self._draining = self._draining._replace(has_successor=True)

    def application_gone(self, *, clean: bool) -> None:
        """Drain, because there is no application to serve."""
        if not self._context.conditions.is_attached and self._end_wait():
            self._note_goodbye(said_goodbye=clean)

    def end_wait_when_over(self) -> None:
        """Drain if the time limit of the wait for a successor has passed, or if nothing is served any more."""
        if self._awaiting is not None and (
            self._context.now_ms >= self._awaiting.until_ms or not self._is_serving
        ):
            self._end_wait()

    def _end_wait(self) -> bool:
        waiting = self._awaiting
        if waiting is not None:
            self._begin_drain(waiting.drain)
        return waiting is not None

    def _begin_drain(self, event: on.Drain) -> None:
        """Begin to drain, or replace the deadline of the drain under way; each call is answered with Drained."""
        former, self._awaiting = self._draining, None
        if former is None:
            if event.serves_until_ms is not None:
                self._context.emit(do.StopDispatch())
            former = Draining(0)
        self._draining = former._replace(
            deadline_ms=event.deadline_ms, leaves_group=event.leaves_group, is_reported=False
        )
        self._context.change(is_draining=True)
        self._context.set_timer(Timer.DRAIN, None, event.deadline_ms)
        self._context.touch_all(self._partition_states)

    @property
    def _is_serving(self) -> bool:
        context = self._context
        return (
            self._owns
            and self.is_in_group
            and context.conditions.is_attached
            and not context.conditions.config.suspended
        )

    def undrain(self) -> None:
        """Resume dispatch; a drain or a wait under way is answered with the number of records in flight."""
        if self._awaiting is not None:
            self._awaiting = None
            self._context.emit(do.Drained(self._context.in_flight))
        if self._draining is not None and not self._draining.is_reported:
            self._context.emit(do.Drained(self._context.in_flight))
        self._draining = None
        self._context.change(is_draining=False)
        self._context.stop_timer(Timer.DRAIN, None)
        self._context.touch_all(self._partition_states)

    def report_drained(self) -> None:
        """Emit Drained once for each drain: when no record is in flight and all is committed, or at the deadline."""
        draining = self._draining
        if draining is None or draining.is_reported:
            return
        if self._context.now_ms >= draining.deadline_ms or self._is_drained:
            self._draining = draining._replace(is_reported=True)
            self._context.stop_timer(Timer.DRAIN, None)
            self._context.emit(do.Drained(self._context.in_flight))

    @property
    def _is_drained(self) -> bool:
        return not self._context.in_flight and all(
            partition_state.is_replaceable and partition_state.has_settled
            for partition_state in self._partition_states.values()
        )

    def leave_when_drained(self) -> None:
        """
        Leave the group once it is drained and the application has said goodbye, which a pod that terminates does, or a successor waits.

        Others take the partitions over before Kubernetes notices that the application has ended, and ends the sidecar too.
        """
        draining = self._draining
        if draining is None or not (draining.leaves_group and draining.is_reported):
            return
        if not (draining.said_goodbye or draining.has_successor):
            return
        if self._owns and not self._context.in_flight and self.is_in_group:
            why = (
                "a successor waits" if draining.has_successor else "the application has ended during a drain"
            )
            reason = f"{why}: the member leaves the group, and rejoins if the drain expires"
            self._state = Leaving(reason, is_drained=True)
            self._context.emit(do.Leave(reason, is_drained=True, has_successor=draining.has_successor))
