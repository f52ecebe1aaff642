"""
Decides which operator process leads, by a Lease of the API server: at most one acts.

A core: the shell in `cluster/leadership.py` feeds it the answers of the API server and the time, and performs the action that
`step` returns, one at a time. Times are seconds of this process's monotonic clock. Clocks of two processes are never compared: a
candidate waits until it has seen the same Lease for the Lease's whole duration, and a leader counts its own time from before it
sent the renewal, which is earlier than any candidate can have seen it. So the clocks may be set, and differ, as they like.

    Candidate ⇄ Reading        until the Lease is free, has ended or is missing
        Acquiring              create or update of the Lease under way
    Leader ⇄ Renewing          every RENEW_S; Rereading after a conflict or a lost answer
        ReleaseReading, Releasing   on a clean stop
    Ended                      stopped, or lost: the work ends

Every write carries the resource version that was read, so of two candidates one succeeds.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

DURATION_S = 15
# A released Lease; its holder is empty, so nothing waits for its end.
RELEASED_DURATION_S = 1
# A Lease of another version may say more; more than this is not waited for.
DURATION_S_MAX = 60
RENEW_S = 5.0
# Counted from before the renewal was sent. The difference to DURATION_S is for the work to end.
DEADLINE_S = 13.0
# A candidate reads the Lease as often; a released one is acquired within this time.
POLL_S = 2.0
# After a failed request.
RETRY_S = 1.0
REQUEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as the API server stores it."""

    # Identity of the process that holds it; empty: released.
    holder: str
    duration_s: int
    # Times that another process became the holder.
    transitions: int
    # RFC 3339, as their writer's clock was: compared for equality only.
    acquired: str
    renewed: str
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The Lease as it was first read in this version."""

    lease: Lease
    since_s: float

    @property
    def expires_s(self) -> float:
        """Return when its holder's time has ended for certain."""
        return self.since_s + min(self.lease.duration_s, DURATION_S_MAX)


# Events: answers of the API server, the end of a wait, a signal.


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """Answer to ReadLease; None: there is no Lease."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class LeaseWritten:
    """Answer to WriteLease: the Lease as it is stored now."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class WriteConflicted:
    """Answer to WriteLease: nothing was written, another process changed, created or deleted the Lease first."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request has failed, or its answer is lost: a write may have been carried out, or may be later."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of a Wait has come."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process stops cleanly. The shell abandons the request that is under way."""


Event: TypeAlias = LeaseRead | LeaseWritten | WriteConflicted | RequestFailed | Tick | StopRequested


# Actions: the shell performs one, and answers with one event.


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the Lease; abandoned at `deadline_s`, with RequestFailed."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class WriteLease:
    """
    Create the Lease, or replace the one of this resource version; abandoned at `deadline_s`, with RequestFailed.

    The shell sets `renewTime` to its wall clock, and `acquireTime` where `acquired` is empty.
    """

    lease: Lease
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Feed a Tick at this time."""

    until_s: float


@dataclass(frozen=True, slots=True)
class KeepWaiting:
    """The event changes nothing: the request or the wait that is under way goes on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is to be done; `error` is empty after a clean stop, else leadership is lost and the work must end."""

    error: str


Action: TypeAlias = ReadLease | WriteLease | Wait | KeepWaiting | Stop


# States.


@dataclass(frozen=True, slots=True)
class Candidate:
    """Another process leads, or none; waits for the next reading."""

    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A candidate's reading is under way."""

    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class Acquiring:
    """A candidate's write is under way, sent at `sent_s`."""

    seen: Seen | None
    sent_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """
    Leading until `valid_until_s`; waits for the next renewal.

    `lease` is what was written last; None: unknown, it has to be read before it is written again.
    """

    lease: Lease | None
    valid_until_s: float


@dataclass(frozen=True, slots=True)
class Renewing:
    """The leader's write is under way, sent at `sent_s`."""

    valid_until_s: float
    sent_s: float


@dataclass(frozen=True, slots=True)
class Rereading:
    """The leader's reading is under way, after a conflict or a lost answer."""

    valid_until_s: float


@dataclass(frozen=True, slots=True)
class ReleaseReading:
    """A stopping process reads the Lease that it may hold."""


@dataclass(frozen=True, slots=True)
class Releasing:
    """A stopping process empties the Lease's holder."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Final."""

    error: str = ""


State: TypeAlias = (
    Candidate | Reading | Acquiring | Leader | Renewing | Rereading | ReleaseReading | Releasing | Ended
)
Step: TypeAlias = tuple[State, Action]

# Without a resource version a write creates the Lease.
MISSING = Lease(holder="", duration_s=0, transitions=0, acquired="", renewed="")
EXPIRED = "the lease was not renewed in time"


def begin(now_s: float) -> Step:
    """Return the first state and action of a process."""
    return Reading(), ReadLease(now_s + REQUEST_S)


def is_leading(state: State, now_s: float) -> bool:
    """Return whether this process may act at `now_s`."""
    return isinstance(state, Leader | Renewing | Rereading) and now_s < state.valid_until_s


def step(identity: str, state: State, event: Event, now_s: float) -> Step:
    """Return the next state, and what the process of this `identity`, unique among all processes, does next."""
    match state:
        case Candidate() | Reading() | Acquiring():
            return _step_candidate(identity, state, event, now_s)
        case Leader() | Renewing() | Rereading():
            if isinstance(event, StopRequested):
                return _stop_leading(state, now_s)
            if now_s >= state.valid_until_s:
                return _ended(EXPIRED)
            return _step_leader(identity, state, event, now_s)
        case ReleaseReading() | Releasing():
            return _step_release(identity, state, event, now_s)
        case Ended(error):
            return state, Stop(error)
        case _:
            assert_never(state)


def _step_candidate(
    identity: str, state: Candidate | Reading | Acquiring, event: Event, now_s: float
) -> Step:
    match state, event:
        case Acquiring(), StopRequested():
            # It may have been carried out: the next process need not wait for its end.
            return ReleaseReading(), ReadLease(now_s + REQUEST_S)
        case _, StopRequested():
            return _ended()
        case Candidate(seen), Tick():
            return Reading(seen), ReadLease(now_s + REQUEST_S)
        case Reading(seen), LeaseRead(lease):
            return _judge(identity, seen, lease, now_s)
        case Acquiring(_, sent_s), LeaseWritten(lease):
            return _lead(lease, sent_s)
        case Reading(seen) | Acquiring(seen, _), RequestFailed():
            return Candidate(seen), Wait(now_s + RETRY_S)
        case Acquiring(seen, _), WriteConflicted():
            return Candidate(seen), Wait(now_s + RETRY_S)
        case _:
            return state, KeepWaiting()


def _judge(identity: str, seen: Seen | None, lease: Lease | None, now_s: float) -> Step:
    """Decide whether a candidate acquires the Lease that it has read."""
    if lease is None:
        # Deleted: its holder may not know it yet, and creates it again.
        is_free = seen is None or now_s >= seen.expires_s
        lease = MISSING
    else:
        if seen is None or _version(seen.lease) != _version(lease):
            seen = Seen(lease, now_s)
        # Held by this process: an earlier write was carried out, and its answer lost.
        is_free = lease.holder in ("", identity) or now_s >= seen.expires_s
    if not is_free and seen is not None:
        return Candidate(seen), Wait(max(now_s, min(now_s + POLL_S, seen.expires_s)))
    return Acquiring(seen, now_s), WriteLease(_held(identity, lease), now_s + REQUEST_S)


def _step_leader(identity: str, state: Leader | Renewing | Rereading, event: Event, now_s: float) -> Step:
    valid_until_s = state.valid_until_s
    match state, event:
        case Leader(Lease() as lease), Tick():
            return _renew(identity, lease, valid_until_s, now_s)
        case (Leader(None), Tick()) | (Renewing(), WriteConflicted()):
            return Rereading(valid_until_s), ReadLease(min(now_s + REQUEST_S, valid_until_s))
        case Renewing(_, sent_s), LeaseWritten(lease):
            return _lead(lease, sent_s)
        case Renewing() | Rereading(), RequestFailed():
            return Leader(None, valid_until_s), Wait(min(now_s + RETRY_S, valid_until_s))
        case Rereading(), LeaseRead(lease):
            if lease is not None and lease.holder not in ("", identity):
                return _ended(f"{lease.holder} holds the lease")
            return _renew(identity, lease or MISSING, valid_until_s, now_s)
        case _:
            return state, KeepWaiting()


def _stop_leading(state: Leader | Renewing | Rereading, now_s: float) -> Step:
    if isinstance(state, Leader) and state.lease is not None:
        return _release(state.lease, now_s)
    return ReleaseReading(), ReadLease(now_s + REQUEST_S)


def _step_release(identity: str, state: ReleaseReading | Releasing, event: Event, now_s: float) -> Step:
    match state, event:
        case ReleaseReading(), LeaseRead(Lease(holder=holder) as lease) if holder == identity:
            return _release(lease, now_s)
        case _, Tick() | StopRequested():
            return state, KeepWaiting()
        case _:
            # Released, held by another process, or out of reach: then it ends by itself.
            return _ended()


def _lead(lease: Lease, sent_s: float) -> Step:
    return Leader(lease, sent_s + DEADLINE_S), Wait(sent_s + RENEW_S)


def _renew(identity: str, lease: Lease, valid_until_s: float, now_s: float) -> Step:
    write = WriteLease(_held(identity, lease), min(now_s + REQUEST_S, valid_until_s))
    return Renewing(valid_until_s, now_s), write


def _release(lease: Lease, now_s: float) -> Step:
    released = Lease("", RELEASED_DURATION_S, lease.transitions, lease.acquired, "", lease.resource_version)
    return Releasing(), WriteLease(released, now_s + REQUEST_S)


def _ended(error: str = "") -> Step:
    return Ended(error), Stop(error)


def _held(identity: str, lease: Lease) -> Lease:
    """Return the Lease to write for this process to hold it."""
    is_ours = lease.holder == identity
    return Lease(
        holder=identity,
        duration_s=DURATION_S,
        transitions=lease.transitions + (not is_ours and bool(lease.resource_version)),
        acquired=lease.acquired if is_ours else "",
        renewed="",
        resource_version=lease.resource_version,
    )


def _version(lease: Lease) -> tuple[str, int, str]:
    """Return what changes with each renewal, and with nothing else."""
    return lease.holder, lease.transitions, lease.renewed
