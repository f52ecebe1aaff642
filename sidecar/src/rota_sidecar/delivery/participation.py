"""
Participation in the group: the member takes part while the application subscribes and membership is not suspended. A sidecar in a pod
waits for its application before it joins: until that runs, other members go on with the partitions.

Used by the delivery driver. Membership is suspended when the application hangs; the member leaves until it is
resumed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import Subscription
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.membership.driver import Membership

# Time limit for committing and leaving when membership is suspended; the hung application is not waited for.
SUSPEND_TIMEOUT_MS = 3_000
DOWN = "Down"


class Participation:
    """
    Participation of one member after the other; `attach_member` sets each.

    Invariant: the member is started only if it is wanted, not suspended, not held, not without the application it waits for, and down.
    """

    def __init__(
        self,
        begin: Callable[[Coroutine[Any, Any, None]], None],
        on_left_group: Callable[[], None],
        leave_timeout_ms: int,
    ) -> None:
        self._begin = begin
        self._on_left_group = on_left_group
        self._leave_timeout_ms = leave_timeout_ms
        self._membership: Membership | None = None
        # Subscription that the application requested; None: it never did.
        self.subscription: Subscription | None = None
        self._is_wanted = False
        self._is_suspended = False
        # True for a member that waits for Fleet: a static one for its instance name, a dynamic one until it may join.
        self._is_held = False
        # True until the first application has attached, if the member waits for that.
        self._awaits_application = False
        # Membership of another pod, with which the next start goes on; None: the member joins.
        self._taken_over: SavedMembership | None = None
        # True if the member is not in the group, and its LeaveGroup has been answered.
        self._is_down = True
        self._went_down = asyncio.Event()

    def attach_member(self, membership: Membership, *, is_wanted: bool, is_held: bool) -> bool:
        """Use this member from now on; return True if the caller has to start it."""
        self._membership = membership
        self._is_wanted, self._is_held = is_wanted, is_held
        begins = self._may_begin()
        self._be_down(is_down=not begins)
        if self._is_suspended:
            self._on_left_group()
        return begins

    def on_member_state(self, state: str) -> None:
        """Follow the member's state."""
        if state == DOWN:
            self._begin(self._rest(self._running))

    @property
    def is_suspended(self) -> bool:
        """Return True if membership is suspended."""
        return self._is_suspended

    @property
    def is_down(self) -> bool:
        """Return True if the member is not in the group and has no connection to its coordinator."""
        return self._is_down

    @property
    def is_wanted(self) -> bool:
        """Return True if the application subscribes."""
        return self._is_wanted

    @property
    def awaits_application(self) -> bool:
        """Return True until the first application has attached, if the member waits for that."""
        return self._awaits_application

    def await_application(self) -> None:
        """Join once an application has attached; called before the first member is attached."""
        self._awaits_application = True

    def application_attached(self) -> None:
        """Join, if the member has only waited for its application."""
        if self._awaits_application:
            self._awaits_application = False
            self._look()

    def admit(self, taken_over: SavedMembership | None = None) -> None:
        """Join as soon as the application subscribes, or go on with a membership that was taken over."""
        self._is_held, self._taken_over = False, taken_over
        self._look()

    def suspend_membership(self, reason: str, give_up: Callable[[int], None] | None = None) -> None:
        """Leave the group at once, and stay out until `resume_membership`. `give_up` ends a member that is succeeded for good, within ms."""
        self._is_suspended = True
        if self._is_down:
            self._on_left_group()
        elif give_up is not None:
            # The next member waits for Fleet, so `attach_member` reports that it is out of the group.
            give_up(SUSPEND_TIMEOUT_MS)
        else:
            self._running.post(on.End(SUSPEND_TIMEOUT_MS, reason, final=False))

    def resume_membership(self) -> None:
        """Join again, if the application still subscribes."""
        self._is_suspended = False
        self._look()

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics."""
        self._is_wanted = True
        self.subscription = subscription
        self._running.post(on.Subscribe(subscription))
        self._look()

    async def unsubscribe(self, reason: str) -> None:
        """Leave the group; returns when the member has left."""
        self._is_wanted = False
        if not self._is_down:
            self._running.post(on.End(self._leave_timeout_ms, reason, final=False))
            await self._went_down.wait()

    @property
    def _running(self) -> Membership:
        assert self._membership is not None
        return self._membership

    async def _rest(self, membership: Membership) -> None:
        await membership.at_rest.wait()
        if membership is not self._membership:
            return
        self._be_down(is_down=True)
        if self._is_suspended:
            self._on_left_group()
        self._look()

    def _may_begin(self) -> bool:
        is_kept_out = self._is_suspended or self._is_held or self._awaits_application
        return self._is_wanted and not is_kept_out

    def _look(self) -> None:
        if self._may_begin() and self._is_down:
            self._be_down(is_down=False)
            saved, self._taken_over = self._taken_over, None
            self._running.post(on.Start(saved))

    def _be_down(self, *, is_down: bool) -> None:
        self._is_down = is_down
        if is_down:
            self._went_down.set()
        else:
            self._went_down.clear()
