"""
Faults that the proxy of the API server injects between `begin` and `end`, each namespace's of one kind, and those of watches.

The first request of a namespace that can meet its fault does; the others are drawn from a seed. Asked by `api_proxy` for each
request. A request with a fault does not reach the API server.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

# Of writes.
CONFLICT_SHARE = 0.3
# Of all requests.
OVERLOAD_SHARE = HANG_SHARE = 0.3
RETRY_AFTER_S = 1
# All requests fail in each second burst, from the first request on.
BURST_S = 1.0
# Of lists.
PAST_SHARE = 0.5
# Of watches that are opened, also right after a list.
GONE_SHARE = 0.3
# A disturbed watch ends after this time.
WATCH_S = 1.0
# A watch that is opened gets 410.
GONE = "gone"


class Fault(StrEnum):
    """Kinds of faults of the requests to one namespace."""

    CONFLICTS = "conflicts"
    OVERLOAD = "overload"
    ERRORS = "errors"
    HANGS = "hangs"
    PAST = "past"


class Refusal(NamedTuple):
    """An answer instead of the API server's."""

    status: int
    reason: str
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """A Status object."""
        return json.dumps(status_of(self.status, self.reason)).encode()


def status_of(code: int, reason: str) -> Mapping[str, object]:
    """Return a Status object, as the API server refuses with."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "sabotaged by the test",
    }


GONE_EVENT = json.dumps({"type": "ERROR", "object": status_of(410, "Expired")}).encode() + b"\n"


class ApiFaults:
    """
    The faults of one proxy; called on its event loop, begun and ended from the test's thread.

    Invariant: before `begin` and after `end` no method injects a fault.
    """

    def __init__(self) -> None:
        self._draw = random.Random(0)
        self._of_namespaces: Mapping[str, Fault] = {}
        # When each namespace, and the watches, met each fault first.
        self._first_s: dict[tuple[str, str], float] = {}
        # How often each fault has happened.
        self.counts: Counter[str] = Counter()

    def begin(self, seed: int, namespaces: Mapping[str, Fault]) -> float:
        """Disturb the requests to these namespaces, and all watches; returns the time by the machine's steady clock."""
        self._draw = random.Random(seed)
        self._first_s, self.counts = {}, Counter()
        self._of_namespaces = dict(namespaces)
        return time.monotonic()

    def end(self) -> None:
        """Disturb nothing any more."""
        self._of_namespaces = {}

    @property
    def are_on(self) -> bool:
        """True between `begin` and `end`."""
        return bool(self._of_namespaces)

    def is_watch_ended(self, since_s: float) -> bool:
        """Return whether a watch that was opened at this time is ended now."""
        return self.are_on and time.monotonic() - since_s > WATCH_S

    def is_watch_expired(self) -> bool:
        """Return whether a watch that is opened gets 410 as its only event."""
        return self.are_on and self._strikes("", GONE, GONE_SHARE)

    def hangs(self, namespace: str) -> bool:
        """Return whether a request is not answered before `end`."""
        return self._fault_of(namespace) is Fault.HANGS and self._strikes(namespace, Fault.HANGS, HANG_SHARE)

    def is_from_past(self, namespace: str) -> bool:
        """Return whether a list is answered from the past; one of all namespaces is as those of a watch."""
        is_possible = self.are_on if not namespace else self._fault_of(namespace) is Fault.PAST
        return is_possible and self._strikes(namespace, Fault.PAST, PAST_SHARE)

    def refusal(self, namespace: str, *, is_write: bool) -> Refusal | None:
        """Return the answer to a request instead of the API server's."""
        match self._fault_of(namespace):
            case Fault.CONFLICTS if is_write and self._strikes(namespace, Fault.CONFLICTS, CONFLICT_SHARE):
                return Refusal(409, "Conflict")
            case Fault.OVERLOAD if self._strikes(namespace, Fault.OVERLOAD, OVERLOAD_SHARE):
                return Refusal(429, "TooManyRequests", {"Retry-After": str(RETRY_AFTER_S)})
            case Fault.ERRORS if self._is_in_burst(namespace):
                return Refusal(500, "InternalError")
        return None

    def _fault_of(self, namespace: str) -> Fault | None:
        return self._of_namespaces.get(namespace)

    def _is_in_burst(self, namespace: str) -> bool:
        now_s = time.monotonic()
        since_s = now_s - self._first_s.get((namespace, Fault.ERRORS), now_s)
        return int(since_s / BURST_S) % 2 == 0 and self._strikes(namespace, Fault.ERRORS, 1.0)

    def _strikes(self, namespace: str, fault: str, share: float) -> bool:
        """Return whether a request meets a fault, and count it: the first one does, the others by chance."""
        is_first = (namespace, fault) not in self._first_s
        if not is_first and self._draw.random() >= share:
            return False
        self._first_s.setdefault((namespace, fault), time.monotonic())
        self.counts[fault] += 1
        return True
