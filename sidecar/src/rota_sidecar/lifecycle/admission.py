"""
Decides when a dynamic member of a pod without a membership joins: by itself, or when the operator orders it.

Without IO or clocks. `lifecycle.member` owns the clock and keeps the member out of the group until it is admitted; `fleet.orders` reports
what the operator says. A pod of a rollout is one pod too many until another one ends: if it joined at once, and the other one left,
the group would rebalance twice for each pod.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

# After the start of the sidecar. A Fleet server that is there is reached within a fraction of it.
START_MS = 2_000
# After the end of a stream, and for the answer of a server that is reached. Longer than the sidecar's first backoffs: another operator
# may lead by then.
AWAY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Admitted:
    """The member may join. It stays admitted until it has given its membership up."""


@dataclass(frozen=True, slots=True)
class Unannounced:
    """No operator has said that it orders members to join. At `until_ms` the member joins by itself, unless an operator is reached."""

    until_ms: int
    # False: an operator that is reached gets AWAY_MS more to say it.
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class AwaitingOrder:
    """The operator at the other end of the present stream orders members to join."""


Admission: TypeAlias = Admitted | Unannounced | AwaitingOrder


@dataclass(frozen=True, slots=True)
class Announced:
    """The operator has said on the present stream whether it orders members to join."""

    orders_join: bool


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream to the operator has ended."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Join, or a membership to take over."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time of `Unannounced.until_ms`, or later."""

    is_connected: bool


Input: TypeAlias = Announced | StreamEnded | Ordered | Ticked


def step(admission: Admission, given: Input, now_ms: int) -> Admission:
    """Return the admission after an input at `now_ms`, monotonic."""
    match admission:
        case Admitted():
            return admission
        case Unannounced():
            return _unannounced(admission, given, now_ms)
        case AwaitingOrder():
            return _awaiting(admission, given, now_ms)
        case _:
            assert_never(admission)


def _unannounced(admission: Unannounced, given: Input, now_ms: int) -> Admission:
    match given:
        case Announced(orders_join=True):
            return AwaitingOrder()
        case Announced() | Ordered():
            return Admitted()
        case Ticked():
            return _at(admission, given, now_ms)
        case StreamEnded():
            return admission
        case _:
            assert_never(given)


def _at(admission: Unannounced, tick: Ticked, now_ms: int) -> Admission:
    if now_ms < admission.until_ms:
        return admission
    if tick.is_connected and not admission.is_last:
        return Unannounced(now_ms + AWAY_MS, is_last=True)
    return Admitted()


def _awaiting(admission: AwaitingOrder, given: Input, now_ms: int) -> Admission:
    match given:
        case Announced(orders_join=False) | Ordered():
            return Admitted()
        case StreamEnded():
            return Unannounced(now_ms + AWAY_MS)
        case Announced() | Ticked():
            return admission
        case _:
            assert_never(given)
