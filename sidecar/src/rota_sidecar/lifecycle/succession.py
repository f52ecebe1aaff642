"""
Passes memberships of dynamic members from pod to pod: when this pod joins, whose membership it takes over, and to whom it gives its own.

`fleet.orders` calls it for orders and streams, `lifecycle.member` asks it whether the member may join and records what was given up.
Invariant: a membership that was given up is used by its successor alone, and a pod takes over at most one, before it has any.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.lifecycle.admission import (
    AWAY_MS,
    START_MS,
    Admission,
    Admitted,
    Announced,
    AwaitingOrder,
    Input,
    Ordered,
    StreamEnded,
    Ticked,
    Unannounced,
    step,
)


class GivenUp(NamedTuple):
    """A membership that was given up, and the pod that alone may use it."""

    saved: SavedMembership
    successor: str


class Succession:
    """Succession of one sidecar's dynamic members; create and use it on a running loop."""

    def __init__(
        self, admit: Callable[[SavedMembership | None], None], on_change: Callable[[], None]
    ) -> None:
        """`admit` lets the member join, or go on with a membership that was taken over; `on_change` sends a report."""
        self._admit = admit
        self._on_change = on_change
        # Return whether a Fleet server is reached.
        self.is_connected: Callable[[], bool] = lambda: False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._admission: Admission = Admitted()
        # False: the member is static, or no operator of a cluster orders anything.
        self._is_ordered = False
        # True if the operator at the other end of the present stream orders members to join.
        self._orders_join = False
        # Pod of the last HandOver; empty: none.
        self._successor = ""
        self._giving_up = False
        self._ended: SavedMembership | None = None
        self._given_up: GivenUp | None = None
        # Member id of the membership that was taken over.
        self._taken_over = ""

    @property
    def is_held(self) -> bool:
        """True while the member must not join."""
        return not isinstance(self._admission, Admitted)

    @property
    def awaits_order(self) -> bool:
        """True while the member waits until the operator orders it to join, or to take a membership over."""
        return isinstance(self._admission, AwaitingOrder)

    @property
    def may_await_successor(self) -> bool:
        """True for a dynamic member to which the operator orders hand-overs."""
        return self._is_ordered and self._orders_join and not self.is_held

    @property
    def successor(self) -> str:
        """Pod that is to succeed this one; empty: none."""
        return self._successor

    @property
    def is_giving_up(self) -> bool:
        """True while the present member ends for its successor."""
        return self._giving_up

    @property
    def given_up(self) -> GivenUp | None:
        """Membership that this sidecar has given up, until its process ends."""
        return self._given_up

    def begin(self, *, is_ordered: bool, has_membership: bool) -> None:
        """Begin with the first member: one that has a saved membership resumes it, another one waits for the operator."""
        self._is_ordered = is_ordered
        if is_ordered and not has_membership:
            self._await_order(START_MS)

    def announced(self, *, orders_join: bool) -> None:
        """Handle what the operator says on this stream: whether it orders members to join."""
        self._orders_join = orders_join
        self._step(Announced(orders_join))

    def stream_ended(self) -> None:
        """Handle the end of the stream: another operator may be at the other end of the next one, or none for long."""
        self._orders_join = False
        self._step(StreamEnded())

    def join(self) -> None:
        """Join, unless the member has joined already."""
        self._step(Ordered())

    def take_over(self, saved: SavedMembership) -> bool:
        """Go on as this member; return False if the sidecar is a member of its own, or was one."""
        if saved.member_id == self._taken_over:
            return True
        if not self.is_held or self._given_up is not None:
            return False
        self._taken_over = saved.member_id
        self._step(Ordered(), saved)
        return True

    def hand_over(self, successor: str) -> None:
        """Give the membership up for this pod once the sidecar is drained; empty: for none. No-op once it was given up."""
        if not self._giving_up:
            self._successor = successor

    def begin_giving_up(self) -> None:
        """Begin to end the present member for its successor."""
        self._giving_up = True

    def member_gave_up(self, saved: SavedMembership) -> None:
        """Record that the present member ends without leaving the group."""
        self._ended = saved

    def member_ended(self, *, is_still_saved: bool) -> None:
        """
        Publish what the member has given up, and wait as a pod without a membership.

        A membership that is still on the disk is not passed on: the next process of this sidecar would resume it.
        """
        if self._ended is not None and not is_still_saved:
            self._given_up = GivenUp(self._ended, self._successor)
        self._ended, self._giving_up, self._successor = None, False, ""
        self._await_order(AWAY_MS)

    def _await_order(self, within_ms: int) -> None:
        """Keep the member out of the group until an order, or for this long if no operator says that it orders."""
        self._admission = AwaitingOrder() if self._orders_join else Unannounced(self._now_ms() + within_ms)
        self._set_timer()

    def _step(self, given: Input, taken_over: SavedMembership | None = None) -> None:
        before = self._admission
        self._admission = step(before, given, self._now_ms())
        if self._admission == before:
            return
        self._set_timer()
        if isinstance(self._admission, Admitted):
            self._admit(taken_over)
        self._on_change()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if isinstance(self._admission, Unannounced):
            # A timer may fire within its resolution before its time.
            at_s = self._admission.until_ms / 1000 + 0.001
            self._timer = self._loop.call_at(at_s, self._tick)

    def _tick(self) -> None:
        self._step(Ticked(self.is_connected()))

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
