"""
Overload protection: measures stalls of the event loop, and rejects requests beyond the limits early.

Heartbeats, joins and syncs keep a group together and are always accepted; commits can be retried. `router` checks every
request with `CommitAdmission`; slots and a timer of the event loop call `Stalls.settle`.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rota_coordinator.core.group.answers import Request
from rota_coordinator.core.group.config import GROUPS_MAX
from rota_coordinator.runtime.observer import Observers
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# Maximum message size: gRPC rejects larger requests, and the services reject larger responses.
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
# Maximum number of accepted commits whose write has not ended: about one second of work of a fast disk.
COMMITS_MAX = 5_000
COMMIT_BYTES_MAX = 32 * 1024 * 1024
# An event loop that is this late at two consecutive ticks is overloaded.
LAG_MAX_S = 0.5
# Interval at which the event loop's lateness is measured.
TICK_S = 0.1
# Shorter stalls are ignored: sessions last for seconds.
STALL_MIN_S = 0.1

COMMITS = (pb.CommitOffsetsRequest, pb.TxnCommitOffsetsRequest)


class Refusal(Exception):
    """A request is rejected without any effect. `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Load(NamedTuple):
    """The commits waiting for the store, and the lag of the event loop."""

    commits: int
    commit_bytes: int
    # Lag of the event loop in seconds: the smaller of the last two measurements.
    lag_s: float


def overload_refusal(load: Load) -> Refusal | None:
    """Return the refusal of a commit beyond the load limits; None when it may be taken."""
    if load.lag_s >= LAG_MAX_S:
        busy = f"the event loop of this coordinator is {load.lag_s:.1f} s late"
    elif load.commits >= COMMITS_MAX:
        busy = f"{load.commits} commits are waiting for the store"
    elif load.commit_bytes >= COMMIT_BYTES_MAX:
        busy = f"{load.commit_bytes} bytes of commits are waiting for the store"
    else:
        return None
    return Refusal("RESOURCE_EXHAUSTED", f"{busy}; nothing was committed, retry later")


def reply_size_refusal(size: int) -> Refusal | None:
    """Return the refusal of a response whose bytes exceed a gRPC message; sent anyway it would end the whole stream."""
    if size <= MESSAGE_BYTES_MAX:
        return None
    message = (
        f"the response has {size} bytes; at most {MESSAGE_BYTES_MAX} can be sent, request less at a time"
    )
    return Refusal("RESOURCE_EXHAUSTED", message)


def may_create(request: Request) -> bool:
    """Return whether the request would create its group."""
    match request:
        case pb.JoinGroupRequest():
            return not request.member_id
        case pb.CommitOffsetsRequest() | pb.TxnCommitOffsetsRequest():
            return request.generation_id < 0
        case _:
            return isinstance(request, admin.AlterOffsetsRequest)


def may_grow(request: Request) -> bool:
    """Return whether the request may increase the usage of its group's creator. Called for every request."""
    if isinstance(request, pb.HeartbeatRequest):
        return False
    return isinstance(request, (pb.JoinGroupRequest, pb.SyncGroupRequest)) or may_create(request)


def quota_refusal(message: str) -> Refusal | None:
    """Return the refusal of a request that exceeds a quota; None without a message."""
    return Refusal("RESOURCE_EXHAUSTED", message) if message else None


def group_limit_refusal(groups: int) -> Refusal | None:
    """Return the refusal of a new group beyond the limit; None when it may be created."""
    if groups < GROUPS_MAX:
        return None
    message = f"this coordinator has {groups} groups, which is the limit; delete unused groups, or add a coordinator"
    return Refusal("RESOURCE_EXHAUSTED", message)


def join_size_refusal(request: pb.JoinGroupRequest, answer_bytes: int) -> Refusal | None:
    """Return the refusal of a join that would make the leader's answer too large; None when it fits."""
    if answer_bytes <= MESSAGE_BYTES_MAX:
        return None
    message = (
        f"the leader of group {request.group_id} would be sent {answer_bytes} bytes of member metadata in one response, "
        f"at most {MESSAGE_BYTES_MAX} can be sent; subscribe to fewer topics or by pattern, or split the group"
    )
    return Refusal("RESOURCE_EXHAUSTED", message)


class Stalls:
    """
    Measures the lateness of the event loop at a periodic timer, and reports stalls before deadlines are checked.

    After a stall timers fire in the order in which they were due, expired sessions first. So each timer calls `settle`
    before it checks deadlines.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, observers: Observers | None = None) -> None:
        self._observers = observers or Observers()
        self._clock = clock
        self._due_s = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._compensations: list[Callable[[int], None]] = []
        self._last_s = 0.0
        # The smaller of the last two measurements: a single stall is over when it is measured, and rejects nothing.
        self.lag_s = 0.0

    def subscribe(self, compensate_stall: Callable[[int], None]) -> None:
        """Register a callback for the duration of every stall, in ms."""
        self._compensations.append(compensate_stall)

    def start(self) -> None:
        """Start measuring."""
        self.stop()
        self._due_s = self._clock() + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop measuring."""
        self._due_s = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def settle(self) -> None:
        """Report a stall that has not been reported yet."""
        if self._clock() - self._due_s >= STALL_MIN_S:
            self._tick()

    def _tick(self) -> None:
        late_s = max(self._clock() - self._due_s, 0)
        self.start()
        self.lag_s, self._last_s = min(late_s, self._last_s), late_s
        self._observers.lagged(late_s)
        if late_s >= STALL_MIN_S:
            # The stall may have begun right after the last measurement.
            stall_ms = math.ceil((late_s + TICK_S) * 1000)
            for compensate_stall in self._compensations:
                compensate_stall(stall_ms)


class CommitAdmission:
    """
    Counts the commits that wait for the store, and rejects those beyond the limits.

    Invariant: a commit counts until its write has succeeded or failed, whether or not it was answered or cancelled before; the
    queue of the store is bounded by it.
    """

    def __init__(self, stalls: Stalls) -> None:
        self._stalls = stalls
        self._commits = 0
        self._bytes = 0

    def refusal(self, request: Request) -> Refusal | None:
        """Return the refusal of a request by the process's load; None when it is accepted."""
        if isinstance(request, COMMITS):
            return overload_refusal(Load(self._commits, self._bytes, self._stalls.lag_s))
        return None

    def follow(self, request: Request, append: "asyncio.Future[None]") -> None:
        """Count a commit until the append that it waits for has ended."""
        if isinstance(request, COMMITS):
            size = request.ByteSize()
            self._commits += 1
            self._bytes += size
            append.add_done_callback(partial(self._ended, size))

    def _ended(self, size: int, append: "asyncio.Future[None]") -> None:
        self._commits -= 1
        self._bytes -= size
