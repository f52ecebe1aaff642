"""
Shared by all parts of the delivery core: time, settings, numbers, actions, timers, requests, problems, totals.

`delivery` begins each step with `begin_step` and ends it with `end_step`, which returns the actions. In between the parts
emit actions, set timers, and touch the partitions to process before the step ends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum, auto
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig
from rota_sidecar.core.delivery.states import Error, PartitionProblem, Terms, message_of
from rota_sidecar.core.member.partitions import Partition

BACKOFF_MS = 100
BACKOFF_MAX_MS = 10_000


class Traits(NamedTuple):
    """Properties of an application; the defaults apply until the first application attaches."""

    # It commits by requests, so the sidecar commits no verdicts by itself.
    commits_itself: bool = False
    # It fetches records itself, and reports its positions.
    reads_itself: bool = False
    # It accepts several records of a partition at a time.
    takes_many: bool = True
    # It is notified of the commits that the sidecar makes by itself.
    takes_commits: bool = False


class Conditions(NamedTuple):
    """Conditions for all partitions at present: settings, application, drain."""

    config: DeliveryConfig
    # Of the application that attached last.
    traits: Traits
    # Of new fetch sessions. A session under other terms is replaced once none of its records is in flight.
    terms: Terms
    # True if the sidecar commits verdicts without a request of the application.
    commits_by_itself: bool
    # Topic of the settings; dead letters that are due when the setting is removed go to the former one.
    dead_letter_topic: str
    # True if records are to be fetched and dispatched at all.
    may_read: bool
    is_attached: bool
    # True during a drain: nothing is fetched or dispatched.
    is_draining: bool


def conditions_of(
    config: DeliveryConfig, traits: Traits, *, is_attached: bool, is_draining: bool
) -> Conditions:
    """Return the conditions that follow from these."""
    rules = replace(
        config.rules,
        takes_many=config.rules.takes_many and traits.takes_many,
        has_dead_letters=bool(config.dead_letter_topic),
    )
    commits_by_itself = (
        config.commit_mode in (CommitMode.PERIODIC, CommitMode.SYNC) and not traits.commits_itself
    )
    return Conditions(
        config,
        traits,
        Terms(rules, commits_by_itself and not traits.reads_itself),
        commits_by_itself,
        config.dead_letter_topic,
        may_read=not (is_draining or config.suspended or traits.reads_itself),
        is_attached=is_attached,
        is_draining=is_draining,
    )


class Timer(IntEnum):
    """Kinds of timers. Those above REVOKE exist once, REVOKE once for each revocation, the others once for each partition."""

    COMMIT = auto()
    PROGRESS = auto()
    RATE = auto()
    DRAIN = auto()
    REVOKE = auto()
    BEGIN = auto()
    READ = auto()
    RETRY = auto()
    DEAD_LETTERS = auto()
    COMMIT_AGAIN = auto()


TimerKey = tuple[Timer, Partition | int | None]


class PendingRequest:
    """A request under way. Invariant: each of its partitions is waited for, or has an outcome."""

    def __init__(
        self,
        request: int,
        errors: Mapping[Partition, Error],
        waits_for: Iterable[Partition],
        delivery_epoch: int,
    ) -> None:
        self._request = request
        self._errors = dict(errors)
        self._waits_for = set(waits_for)
        self._offsets: dict[Partition, int] = {}
        # Of a seek: records of its partitions with this delivery epoch or an earlier one are void.
        self._delivery_epoch = delivery_epoch

    @property
    def is_complete(self) -> bool:
        """Return True if the outcome of all its partitions is known."""
        return not self._waits_for

    def settle(self, partition: Partition, error: Error, offset: int | None) -> None:
        """Record the outcome for one partition."""
        self._waits_for.discard(partition)
        self._errors[partition] = error
        if offset is not None:
            self._offsets[partition] = offset

    def answer(self) -> do.Answer:
        """Return the answer to the application."""
        message = message_of(self._errors)
        return do.Answer(
            self._request,
            pb.NONE,
            self._errors,
            self._offsets,
            message=message,
            delivery_epoch=self._delivery_epoch,
        )


class Context:
    """
    State of the present step, and state that all partitions share.

    Invariant: `in_flight` and `lanes` are the sums over all partitions, and a number is given out once.
    """

    def __init__(self, config: DeliveryConfig) -> None:
        self._now_ms = 0
        self._actions: list[do.Action] = []
        # Partitions to process before the step ends. A dict keeps the order.
        self._touched: dict[Partition, None] = {}
        self._conditions = conditions_of(config, Traits(), is_attached=False, is_draining=False)
        self._numbers = 0
        # Numbers of delivery epochs and dead letters by which outcomes find their partition.
        self._owners: dict[int, Partition] = {}
        self._timers: dict[TimerKey, int] = {}
        self._requests: dict[int, PendingRequest] = {}
        self._problems: dict[str, list[Partition]] = {}
        self._errors: dict[PartitionProblem, list[Partition]] = {}
        self._in_flight = 0
        self._lanes = 0
        # Partitions that have, or had, a committed offset that has not expired.
        self._committed: set[Partition] = set()

    # ------------------------------------------------------------------------------------------ step

    def begin_step(self, now_ms: int) -> None:
        """Begin a step at this time."""
        self._now_ms = now_ms
        self._actions = []

    def end_step(self) -> Sequence[do.Action]:
        """Emit the problems of this step, one action for all partitions with the same message; return all actions."""
        if self._errors:
            for (message, kind), partitions in self._errors.items():
                assert kind is not None
                self.emit(do.PartitionError(self.number(), kind, partitions, message))
            self._errors.clear()
        if self._problems:
            for message, partitions in self._problems.items():
                self.emit(do.Problem(message, partitions))
            self._problems.clear()
        return self._actions

    @property
    def now_ms(self) -> int:
        """Return the time of the step."""
        return self._now_ms

    def emit(self, action: do.Action) -> None:
        """Add an action of this step; actions are performed in the order in which they are emitted."""
        self._actions.append(action)

    def touch(self, partition: Partition) -> None:
        """Process the partition before the step ends."""
        self._touched[partition] = None

    def touch_all(self, partitions: Iterable[Partition]) -> None:
        """Process all these partitions before the step ends."""
        self._touched.update(dict.fromkeys(partitions))

    def untouch(self, partition: Partition) -> None:
        """Do not process the partition, which was removed."""
        self._touched.pop(partition, None)

    def take_touched(self) -> Iterable[Partition]:
        """Return the touched partitions, in order; from now on none is touched."""
        touched, self._touched = self._touched, {}
        return touched

    @property
    def has_touched(self) -> bool:
        """Return True if a partition is touched."""
        return bool(self._touched)

    # ------------------------------------------------------------------------------------------ conditions

    @property
    def conditions(self) -> Conditions:
        """Return the present conditions."""
        return self._conditions

    def change(
        self,
        *,
        config: DeliveryConfig | None = None,
        traits: Traits | None = None,
        is_attached: bool | None = None,
        is_draining: bool | None = None,
    ) -> None:
        """Change some of the conditions."""
        former = self._conditions
        conditions = conditions_of(
            config or former.config,
            traits or former.traits,
            is_attached=former.is_attached if is_attached is None else is_attached,
            is_draining=former.is_draining if is_draining is None else is_draining,
        )
        # Sessions compare theirs with these at each step: the same object is compared fast.
        terms = former.terms if conditions.terms == former.terms else conditions.terms
        topic = conditions.dead_letter_topic or former.dead_letter_topic
        self._conditions = conditions._replace(terms=terms, dead_letter_topic=topic)

    # ------------------------------------------------------------------------------------------ numbers and totals

    def number(self) -> int:
        """Return the next number for a request, an event or a delivery epoch; numbers rise by 1."""
        self._numbers += 1
        return self._numbers

    def claim_number(self, partition: Partition) -> int:
        """Return the next number, by which outcomes find this partition until it is released."""
        number = self.number()
        self._owners[number] = partition
        return number

    def owner_of(self, number: int) -> Partition | None:
        """Return the partition that has claimed the number."""
        return self._owners.get(number)

    def release_number(self, number: int) -> Partition | None:
        """Return the partition that has claimed the number, whose outcomes are ignored from now on."""
        return self._owners.pop(number, None)

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return self._in_flight

    @property
    def lanes(self) -> int:
        """Return the number of busy lanes."""
        return self._lanes

    def add_to_totals(self, in_flight: int, lanes: int) -> None:
        """Add the changes of one partition to the totals."""
        self._in_flight += in_flight
        self._lanes += lanes

    def has_committed(self, partition: Partition) -> bool:
        """Return True if an offset of the partition was committed, as far as this sidecar knows, and has not expired."""
        return partition in self._committed

    def note_committed(self, partition: Partition) -> None:
        """Note a committed offset of the partition."""
        self._committed.add(partition)

    def forget_committed(self, partition: Partition) -> None:
        """Forget the committed offset, which has expired."""
        self._committed.discard(partition)

    # ------------------------------------------------------------------------------------------ timers

    @property
    def alarm(self) -> int | None:
        """Return the time in ms of the first timer; None: no timer runs."""
        return min(self._timers.values(), default=None)

    def set_timer(self, timer: Timer, of: Partition | int | None, at_ms: int) -> None:
        """Set a timer, or replace it."""
        self._timers[timer, of] = at_ms

    def start_timer(self, timer: Timer, within_ms: int) -> None:
        """Set a timer that exists once, unless it runs."""
        self._timers.setdefault((timer, None), self._now_ms + within_ms)

    def watch_progress(self) -> None:
        """Check progress after the processing timeout, unless an earlier check is scheduled."""
        self.start_timer(Timer.PROGRESS, self._conditions.config.processing_timeout_ms)

    def stop_timer(self, timer: Timer, of: Partition | int | None) -> None:
        """Stop a timer, if it runs."""
        self._timers.pop((timer, of), None)

    def due_timers(self) -> list[TimerKey]:
        """Stop and return the timers that are due."""
        due = [key for key, at_ms in self._timers.items() if at_ms <= self._now_ms]
        for key in due:
            del self._timers[key]
        return due

    def retry_at(self, timer: Timer, partition: Partition, attempt: int) -> int:
        """Set the timer for the next attempt, with exponential backoff; return its time in ms."""
        at_ms = self._now_ms + min(BACKOFF_MS << min(attempt, 16), BACKOFF_MAX_MS)
        self.set_timer(timer, partition, at_ms)
        return at_ms

    # ------------------------------------------------------------------------------------------ requests

    @property
    def pending_requests(self) -> int:
        """Return the number of requests under way."""
        return len(self._requests)

    def begin_request(
        self,
        request: int,
        errors: Mapping[Partition, Error],
        waits_for: Iterable[Partition],
        delivery_epoch: int = 0,
    ) -> None:
        """Begin a request, with the errors that are known; `answer` gives the outcome of each other partition."""
        self._requests[request] = PendingRequest(request, errors, waits_for, delivery_epoch)

    def answer(
        self, request: int | None, partition: Partition, error: Error = pb.NONE, offset: int | None = None
    ) -> None:
        """Record the outcome of a request for one partition; ignored without a pending request."""
        if request is not None and (pending := self._requests.get(request)) is not None:
            pending.settle(partition, error, offset)
            self.answer_if_complete(request)

    def answer_if_complete(self, request: int) -> None:
        """Answer the request once the outcome of all its partitions is known; each request is answered once."""
        pending = self._requests.get(request)
        if pending is not None and pending.is_complete:
            del self._requests[request]
            self.emit(pending.answer())

    # ------------------------------------------------------------------------------------------ problems

    def report(self, partition: Partition, problem: PartitionProblem) -> None:
        """Report a problem at the end of the step."""
        self._problems.setdefault(problem.message, []).append(partition)

    def report_to_application(self, partition: Partition, problem: PartitionProblem) -> None:
        """Report a problem to the application at the end of the step, if it has a kind."""
        if problem.kind is not None:
            self._errors.setdefault(problem, []).append(partition)

    def report_of_all(self, partitions: Iterable[Partition], message: str) -> None:
        """Report one problem of all these partitions at the end of the step."""
        self._problems[message] = sorted(partitions)
