"""
Repeated authentication of calls in progress: one whose token has expired, or whose pod is deleted, is ended.

Called by `access_control` for each call of a principal that is authenticated for a limited time.
"""

import asyncio
from typing import NamedTuple

import grpc

from rota_coordinator.security.authenticator import Authenticator, Peer, Principal
from rota_service.token_review import AuthenticationUnavailable, Unauthenticated

CHANGED = "the token belongs to another pod now; reconnect"


class CallEnd(NamedTuple):
    """The status with which a call is ended."""

    code: grpc.StatusCode
    message: str


class Reauthentication:
    """
    Authenticates the peer of the running task's call again whenever that is due, and cancels the task once it fails.

    Invariant: after `stop` the task is not cancelled.
    """

    def __init__(self, authenticator: Authenticator, peer: Peer, principal: Principal) -> None:
        self._authenticator = authenticator
        self._peer = peer
        self._principal = principal
        self._call = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._authenticating: asyncio.Task[None] | None = None
        # Set once the call is to end.
        self.end: CallEnd | None = None
        self._schedule(principal)

    def stop(self) -> None:
        """End with the call."""
        if self._timer is not None:
            self._timer.cancel()
        if self._authenticating is not None:
            self._authenticating.cancel()
        self._call = None

    def _schedule(self, principal: Principal) -> None:
        if principal.valid_for_s is not None:
            self._timer = asyncio.get_running_loop().call_later(principal.valid_for_s, self._begin)

    def _begin(self) -> None:
        self._authenticating = asyncio.create_task(self._authenticate())

    async def _authenticate(self) -> None:
        try:
            principal = await self._authenticator.authenticate(self._peer)
        except Unauthenticated as rejected:
            self._end_call(grpc.StatusCode.UNAUTHENTICATED, str(rejected))
        except AuthenticationUnavailable as unavailable:
            self._end_call(grpc.StatusCode.UNAVAILABLE, str(unavailable))
        else:
            if (principal.name, principal.pod) == (self._principal.name, self._principal.pod):
                self._schedule(principal)
            else:
                self._end_call(grpc.StatusCode.UNAUTHENTICATED, CHANGED)

    def _end_call(self, code: grpc.StatusCode, message: str) -> None:
        if self._call is not None:
            self.end = CallEnd(code, message)
            self._call.cancel()
