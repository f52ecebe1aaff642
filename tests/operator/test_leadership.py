"""At most one process leads: whatever clocks show, answers are lost, and the Lease is deleted."""

from dataclasses import dataclass, field, replace
from itertools import product

import pytest

from rota_operator.leadership import (
    DEADLINE_S,
    DURATION_S,
    DURATION_S_MAX,
    EXPIRED,
    POLL_S,
    RELEASED_DURATION_S,
    RENEW_S,
    REQUEST_S,
    RETRY_S,
    Acquiring,
    Action,
    Candidate,
    Ended,
    Event,
    KeepWaiting,
    Leader,
    Lease,
    LeaseRead,
    LeaseWritten,
    Reading,
    ReadLease,
    ReleaseReading,
    Releasing,
    Renewing,
    RequestFailed,
    Rereading,
    Seen,
    State,
    Stop,
    StopRequested,
    Tick,
    Wait,
    WriteConflicted,
    WriteLease,
    begin,
    is_leading,
    step,
)

ME, OTHER = "rota-0", "rota-1"
NOW = 1_000.0
TAKEOVER_S = 20.0
OTHERS = Lease(OTHER, DURATION_S, 3, "a", "r1", "7")
MINE = Lease(ME, DURATION_S, 4, "a", "r2", "8")
FREE = Lease("", RELEASED_DURATION_S, 4, "a", "r3", "9")
SEEN = Seen(OTHERS, NOW - 1)
VALID = NOW + 5
STATES: tuple[State, ...] = (
    Candidate(),
    Candidate(SEEN),
    Reading(),
    Reading(SEEN),
    Acquiring(None, NOW),
    Acquiring(SEEN, NOW),
    Leader(MINE, VALID),
    Leader(None, VALID),
    Leader(MINE, NOW),
    Renewing(VALID, NOW - 1),
    Renewing(NOW, NOW - 1),
    Rereading(VALID),
    Rereading(NOW),
    ReleaseReading(),
    Releasing(),
    Ended(),
    Ended("lost"),
)
EVENTS: tuple[Event, ...] = (
    LeaseRead(None),
    LeaseRead(OTHERS),
    LeaseRead(MINE),
    LeaseRead(FREE),
    LeaseWritten(MINE),
    WriteConflicted(),
    RequestFailed(),
    Tick(),
    StopRequested(),
)


def state_and_action(state: State, event: Event, now_s: float = NOW) -> tuple[State, Action]:
    return step(ME, state, event, now_s)


def write(
    holder: str, transitions: int, acquired: str, version: str, *, deadline_s: float = NOW + REQUEST_S
) -> WriteLease:
    return WriteLease(Lease(holder, DURATION_S, transitions, acquired, "", version), deadline_s)


ACTIONS: dict[type[State], type[Action]] = {
    Candidate: Wait,
    Reading: ReadLease,
    Acquiring: WriteLease,
    Leader: Wait,
    Renewing: WriteLease,
    Rereading: ReadLease,
    ReleaseReading: ReadLease,
    Releasing: WriteLease,
    Ended: Stop,
}


@pytest.mark.parametrize(("state", "event"), [*product(STATES, EVENTS)])
def test_every_state_meets_every_event(state: State, event: Event) -> None:
    after, action = state_and_action(state, event)
    if isinstance(action, KeepWaiting):
        assert after == state, "an event that changes nothing leaves the request under way as it is"
    else:
        assert isinstance(action, ACTIONS[type(after)])
    if isinstance(action, WriteLease):
        assert action.lease.holder in ("", ME)
        assert action.deadline_s > NOW
    if is_leading(after, NOW) and not is_leading(state, NOW):
        assert isinstance(event, LeaseWritten), "only a write that was answered makes a leader"


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (Reading(), LeaseRead(None), (Acquiring(None, NOW), write(ME, 0, "", ""))),
        (Reading(), LeaseRead(FREE), (Acquiring(Seen(FREE, NOW), NOW), write(ME, 5, "", "9"))),
        (Reading(), LeaseRead(OTHERS), (Candidate(Seen(OTHERS, NOW)), Wait(NOW + POLL_S))),
        (Reading(SEEN), LeaseRead(OTHERS), (Candidate(SEEN), Wait(NOW + POLL_S))),
        (Reading(SEEN), LeaseRead(replace(OTHERS, renewed="later")), (Candidate(Seen(replace(OTHERS, renewed="later"), NOW)), Wait(NOW + POLL_S))),
        (Reading(SEEN), RequestFailed(), (Candidate(SEEN), Wait(NOW + RETRY_S))),
        (Candidate(SEEN), Tick(), (Reading(SEEN), ReadLease(NOW + REQUEST_S))),
        (Candidate(SEEN), StopRequested(), (Ended(), Stop(""))),
        (Acquiring(SEEN, NOW - 1), LeaseWritten(MINE), (Leader(MINE, NOW - 1 + DEADLINE_S), Wait(NOW - 1 + RENEW_S))),
        (Acquiring(SEEN, NOW - 1), WriteConflicted(), (Candidate(SEEN), Wait(NOW + RETRY_S))),
        (Acquiring(SEEN, NOW - 1), RequestFailed(), (Candidate(SEEN), Wait(NOW + RETRY_S))),
        (Acquiring(SEEN, NOW - 1), StopRequested(), (ReleaseReading(), ReadLease(NOW + REQUEST_S))),
        (Leader(MINE, VALID), Tick(), (Renewing(VALID, NOW), write(ME, 4, "a", "8"))),
        (Leader(MINE, NOW + 1), Tick(), (Renewing(NOW + 1, NOW), write(ME, 4, "a", "8", deadline_s=NOW + 1))),
        (Leader(MINE, NOW), Tick(), (Ended(EXPIRED), Stop(EXPIRED))),
        (Leader(None, VALID), Tick(), (Rereading(VALID), ReadLease(VALID))),
        (Leader(None, VALID), StopRequested(), (ReleaseReading(), ReadLease(NOW + REQUEST_S))),
        (Renewing(VALID, NOW - 1), LeaseWritten(MINE), (Leader(MINE, NOW - 1 + DEADLINE_S), Wait(NOW - 1 + RENEW_S))),
        (Renewing(NOW, NOW - 9), LeaseWritten(MINE), (Ended(EXPIRED), Stop(EXPIRED))),
        (Renewing(VALID, NOW - 1), WriteConflicted(), (Rereading(VALID), ReadLease(VALID))),
        (Renewing(VALID, NOW - 1), RequestFailed(), (Leader(None, VALID), Wait(NOW + RETRY_S))),
        (Renewing(NOW + 0.5, NOW - 1), RequestFailed(), (Leader(None, NOW + 0.5), Wait(NOW + 0.5))),
        (Rereading(VALID), LeaseRead(MINE), (Renewing(VALID, NOW), write(ME, 4, "a", "8"))),
        (Rereading(VALID), LeaseRead(FREE), (Renewing(VALID, NOW), write(ME, 5, "", "9"))),
        (Rereading(VALID), LeaseRead(OTHERS), (Ended("rota-1 holds the lease"), Stop("rota-1 holds the lease"))),
        (Rereading(VALID), LeaseRead(None), (Renewing(VALID, NOW), write(ME, 0, "", ""))),
        (Releasing(), LeaseWritten(FREE), (Ended(), Stop(""))),
        (Releasing(), WriteConflicted(), (Ended(), Stop(""))),
        (ReleaseReading(), LeaseRead(OTHERS), (Ended(), Stop(""))),
        (ReleaseReading(), LeaseRead(None), (Ended(), Stop(""))),
        (ReleaseReading(), RequestFailed(), (Ended(), Stop(""))),
        (Ended("lost"), Tick(), (Ended("lost"), Stop("lost"))),
    ],
)  # fmt: skip
def test_transitions(state: State, event: Event, expected: tuple[State, Action]) -> None:
    assert state_and_action(state, event) == expected


@pytest.mark.parametrize("state", [Leader(MINE, VALID), ReleaseReading()])
def test_a_clean_stop_empties_the_holder(state: State) -> None:
    event = StopRequested() if isinstance(state, Leader) else LeaseRead(MINE)
    after, action = state_and_action(state, event)
    assert after == Releasing()
    assert action == WriteLease(Lease("", RELEASED_DURATION_S, 4, "a", "", "8"), NOW + REQUEST_S)


def test_a_candidate_waits_from_its_own_first_sight_of_a_version() -> None:
    state: State = Reading()
    state, action = state_and_action(state, LeaseRead(OTHERS), NOW)
    state, _ = state_and_action(state, Tick(), NOW + 14)
    state, action = state_and_action(state, LeaseRead(OTHERS), NOW + 14)
    assert action == Wait(NOW + 15), "at its end, not one poll later"
    state, _ = state_and_action(state, Tick(), NOW + 15)
    state, action = state_and_action(state, LeaseRead(OTHERS), NOW + 15)
    assert action == write(ME, 4, "", "7", deadline_s=NOW + 15 + REQUEST_S)


@pytest.mark.parametrize(
    "renewed", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "", "no time"]
)
def test_the_clock_of_the_holder_does_not_matter(renewed: str) -> None:
    lease = replace(OTHERS, renewed=renewed)
    state, action = state_and_action(Reading(), LeaseRead(lease))
    assert (state, action) == (Candidate(Seen(lease, NOW)), Wait(NOW + POLL_S))


def test_a_change_that_is_no_renewal_does_not_extend_the_lease() -> None:
    annotated = replace(OTHERS, resource_version="99")
    _, action = state_and_action(Reading(Seen(OTHERS, NOW - DURATION_S)), LeaseRead(annotated))
    assert action == write(ME, 4, "", "99"), "and the write carries the newest version"


def test_the_duration_that_the_holder_wrote_counts_up_to_a_limit() -> None:
    long, endless = replace(OTHERS, duration_s=30), replace(OTHERS, duration_s=10**9)
    assert Seen(long, NOW).expires_s == NOW + 30
    assert Seen(endless, NOW).expires_s == NOW + DURATION_S_MAX


def test_a_deleted_lease_is_created_by_its_holder_before_any_candidate_that_knew_it() -> None:
    state, action = state_and_action(Reading(Seen(OTHERS, NOW - 5)), LeaseRead(None))
    assert (state, action) == (Candidate(Seen(OTHERS, NOW - 5)), Wait(NOW + POLL_S))
    _, action = state_and_action(Reading(Seen(OTHERS, NOW - DURATION_S)), LeaseRead(None))
    assert action == write(ME, 0, "", "")


def test_a_lost_answer_to_an_acquisition_is_found_in_the_lease() -> None:
    state, _ = state_and_action(Acquiring(SEEN, NOW), RequestFailed(), NOW + REQUEST_S)
    state, _ = state_and_action(state, Tick(), NOW + 6)
    state, action = state_and_action(state, LeaseRead(MINE), NOW + 6)
    assert not is_leading(state, NOW + 6), "until a write is answered whose time of sending is known"
    assert action == write(ME, 4, "a", "8", deadline_s=NOW + 6 + REQUEST_S)


# Two processes and the API server, step by step.


@dataclass
class Server:
    """The API server's Lease, with optimistic concurrency."""

    lease: Lease | None = None
    version: int = 0
    writes: int = 0

    def write(self, lease: Lease, renewed: str) -> Event:
        current = "" if self.lease is None else self.lease.resource_version
        if lease.resource_version != current:
            return WriteConflicted()
        self.version += 1
        self.writes += 1
        acquired = lease.acquired or renewed
        self.lease = replace(lease, renewed=renewed, acquired=acquired, resource_version=str(self.version))
        return LeaseWritten(self.lease)


@dataclass
class Process:
    """One process: performs its actions on the server at once, unless it is cut off."""

    name: str
    server: Server
    # Its wall clock differs by so much, and its monotonic clock starts elsewhere.
    skew_s: float = 0
    is_cut_off: bool = False
    loses_answers: bool = False
    state: State = field(default_factory=Candidate)
    action: Action = field(default_factory=lambda: Wait(0))

    def turn(self, now_s: float) -> None:
        """Perform actions until it waits."""
        now_s += self.skew_s
        while True:
            match self.action:
                case Wait(until_s) if until_s <= now_s:
                    event: Event = Tick()
                case ReadLease():
                    event = RequestFailed() if self.is_cut_off else LeaseRead(self.server.lease)
                case WriteLease(lease):
                    event = RequestFailed()
                    if not self.is_cut_off:
                        event = self.server.write(lease, f"{now_s:.6f}")
                    if self.loses_answers:
                        event = RequestFailed()
                case _:
                    return
            self._apply(event, now_s)

    def stop(self, now_s: float) -> None:
        """Stop cleanly."""
        self._apply(StopRequested(), now_s + self.skew_s)
        self.turn(now_s)

    def is_leading(self, now_s: float) -> bool:
        return is_leading(self.state, now_s + self.skew_s)

    def _apply(self, event: Event, now_s: float) -> None:
        self.state, action = step(self.name, self.state, event, now_s)
        if not isinstance(action, KeepWaiting):
            self.action = action


class Pair:
    """Two processes that take turns ten times a second; never do both lead."""

    def __init__(self) -> None:
        self.server = Server()
        self.first = Process(ME, self.server)
        self.second = Process(OTHER, self.server, skew_s=86_400.25)
        self.now_s = 0.0
        self.first.turn(0)
        self.second.turn(0)
        assert (self.first.is_leading(0), self.second.is_leading(0)) == (True, False)

    def run(self, seconds: float) -> None:
        """Let time go by."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 0.1
            self.first.turn(self.now_s)
            self.second.turn(self.now_s)
            assert not (self.first.is_leading(self.now_s) and self.second.is_leading(self.now_s))

    def seconds_until_second_leads(self) -> float:
        """Let time go by until the second process leads."""
        since_s = self.now_s
        while not self.second.is_leading(self.now_s):
            assert self.now_s < since_s + 60
            self.run(0.1)
        return self.now_s - since_s


def test_the_leader_stays_and_writes_once_per_renewal() -> None:
    pair = Pair()
    before = pair.server.writes
    pair.run(60)
    assert pair.first.is_leading(pair.now_s)
    assert pair.server.writes - before <= 60 / RENEW_S


@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.9, 4.9, 5.0, 7.7])
def test_a_leader_that_is_cut_off_is_replaced_after_it_has_stopped(after_s: float) -> None:
    pair = Pair()
    pair.run(after_s)
    pair.first.is_cut_off = True
    assert pair.seconds_until_second_leads() <= TAKEOVER_S
    assert pair.first.state == Ended(EXPIRED)


def test_a_leader_that_stops_cleanly_is_replaced_at_once() -> None:
    pair = Pair()
    pair.run(7)
    pair.first.stop(pair.now_s)
    assert pair.first.state == Ended()
    assert pair.seconds_until_second_leads() <= POLL_S + 0.2


def test_a_leader_survives_a_short_outage() -> None:
    pair = Pair()
    pair.run(6)
    for each in (pair.first, pair.second):
        each.is_cut_off = True
    pair.run(DEADLINE_S - RENEW_S - 1)
    for each in (pair.first, pair.second):
        each.is_cut_off = False
    pair.run(20)
    assert pair.first.is_leading(pair.now_s)


def test_renewals_whose_answers_are_lost_do_not_let_two_lead() -> None:
    pair = Pair()
    pair.first.loses_answers = True
    pair.run(60)
    assert pair.first.state == Ended(EXPIRED)
    assert pair.second.is_leading(pair.now_s)


def test_one_lost_answer_costs_nothing() -> None:
    pair = Pair()
    pair.first.loses_answers = True
    pair.run(RENEW_S + 0.2)
    pair.first.loses_answers = False
    pair.run(30)
    assert pair.first.is_leading(pair.now_s)


def test_a_deleted_lease_stays_with_its_holder() -> None:
    pair = Pair()
    pair.run(3)
    pair.server.lease = None
    pair.run(60)
    assert pair.first.is_leading(pair.now_s)
    assert pair.server.lease is not None


def test_of_two_candidates_one_acquires_a_free_lease() -> None:
    server = Server()
    first, second = Process(ME, server), Process(OTHER, server)
    for each in (first, second):
        each.state, each.action = begin(0)
        each.state, each.action = step(each.name, each.state, LeaseRead(server.lease), 0)
    for each in (first, second):
        each.turn(0)
    assert [each.is_leading(0) for each in (first, second)] == [True, False]
    assert second.state == Candidate(None)
