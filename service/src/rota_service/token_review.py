"""
Authenticates pods by their projected service account tokens: the API server reviews each, for the audience `rota`.

Called by a server for each new call or stream, and again when an answer has expired. While the API server does not answer, pods
that are known go on until their tokens expire, and new ones wait up to a deadline.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rota_service.pod_tokens import (
    AUDIENCE,
    CACHE_S_MIN,
    InvalidToken,
    KnownToken,
    KnownTokens,
    Pod,
    RejectedTokens,
    digest_of,
    expiry_of,
    pod_of,
)

# For which a new pod waits for the API server.
WAIT_S = 10.0
# For which a call of a known pod waits for the API server, when the answer before is outdated.
REFRESH_S = 0.5
# Between two attempts while the API server is away.
RETRY_S = 1.0
# Reviews at a time; calls that wait for one: of all peers, and of one address.
REVIEWS_MAX = 20
WAITING_MAX = 2_000
WAITING_OF_ADDRESS_MAX = 500
# Real tokens have about 1,000 characters.
TOKEN_LENGTH_MAX = 16_384
TOO_LONG = f"the token has more than {TOKEN_LENGTH_MAX} characters"
TOO_MANY = f"{WAITING_MAX} calls wait for the API server to review their tokens; retry"
TOO_MANY_OF_ADDRESS = (
    f"{WAITING_OF_ADDRESS_MAX} calls of this address wait for the API server to review their tokens; retry"
)
NO_ANSWER = "the API server could not review the token in time; retry"
Identity = TypeVar("Identity")


class Unauthenticated(Exception):
    """The token is rejected; the message says why and what to do, and contains no token."""


class AuthenticationUnavailable(Exception):
    """The token can be neither accepted nor rejected now; the client should try again."""


class ReviewUnavailable(Exception):
    """The API server did not answer a request of this module's ports; the same request may succeed later."""


@dataclass(frozen=True, slots=True)
class ReviewPorts(Generic[Identity]):
    """Requests of the reviewer to the cluster. Both raise ReviewUnavailable."""

    # Posts a TokenReview for these audiences; returns its status.
    review: Callable[[str, tuple[str, ...]], Awaitable[Mapping[str, Any]]]
    # Returns what the server makes of a pod. Raises InvalidToken for a pod that it does not accept.
    identify: Callable[[Pod], Awaitable[Identity]]


@dataclass(frozen=True, slots=True)
class ReviewClocks:
    """The clocks of the process, in seconds."""

    monotonic_s: Callable[[], float]
    # Since the epoch: tokens expire by it.
    wall_s: Callable[[], float]


class Authenticated(NamedTuple, Generic[Identity]):
    """A pod that was authenticated, and for how many seconds that may be relied on."""

    identity: Identity
    valid_for_s: float


class TokenReviewer(Generic[Identity]):
    """
    Authenticator of pods; thread-confined to one event loop.

    Invariant: at most one review of a token and REVIEWS_MAX reviews altogether are under way, for WAITING_MAX calls.
    """

    def __init__(
        self, ports: ReviewPorts[Identity], clocks: ReviewClocks, wait_s: float | None = None
    ) -> None:
        """`wait_s`: for which a new pod waits for the API server; None: WAIT_S."""
        self._ports = ports
        self._clocks = clocks
        self._wait_s = wait_s
        self._known: KnownTokens[Identity] = KnownTokens()
        self._rejected = RejectedTokens()
        self._reviews: dict[bytes, asyncio.Task[KnownToken[Identity]]] = {}
        self._slots = asyncio.Semaphore(REVIEWS_MAX)
        # Calls that wait, by address.
        self._waiting: Counter[str] = Counter()

    async def authenticate(self, token: str, address: str = "") -> Authenticated[Identity]:
        """Return the pod that a token belongs to. Raises Unauthenticated, AuthenticationUnavailable."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise Unauthenticated(TOO_LONG)
        digest = digest_of(token)
        known = self._known.fresh(digest, self._clocks.monotonic_s()) or await self._reviewed(
            digest, token, address
        )
        valid_for_s = known.fresh_until_s - self._clocks.monotonic_s()
        return Authenticated(known.identity, max(CACHE_S_MIN, valid_for_s))

    async def _reviewed(self, digest: bytes, token: str, address: str) -> KnownToken[Identity]:
        now_s = self._clocks.monotonic_s()
        if reason := self._rejected.reason(digest, now_s):
            raise Unauthenticated(reason)
        usable = self._known.usable(digest, now_s)
        try:
            if usable is not None:
                return await self._refreshed(digest, token, usable)
            return await self._review_or_wait(digest, token, address)
        except InvalidToken as error:
            raise Unauthenticated(str(error)) from None

    async def _refreshed(
        self, digest: bytes, token: str, usable: KnownToken[Identity]
    ) -> KnownToken[Identity]:
        """Review a token that is known; while the API server does not answer, it is believed, and its calls go on at once."""
        if digest in self._reviews:
            return usable
        try:
            async with asyncio.timeout(REFRESH_S):
                return await self._review_once(digest, token)
        except (ReviewUnavailable, TimeoutError):
            return usable

    async def _review_or_wait(self, digest: bytes, token: str, address: str) -> KnownToken[Identity]:
        """Review a token that is not known, and retry while the API server does not answer."""
        if self._waiting.total() >= WAITING_MAX:
            raise AuthenticationUnavailable(TOO_MANY)
        if address and self._waiting[address] >= WAITING_OF_ADDRESS_MAX:
            raise AuthenticationUnavailable(TOO_MANY_OF_ADDRESS)
        self._waiting[address] += 1
        try:
            async with asyncio.timeout(WAIT_S if self._wait_s is None else self._wait_s):
                while True:
                    with suppress(ReviewUnavailable):
                        return await self._review_once(digest, token)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise AuthenticationUnavailable(NO_ANSWER) from None
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]

    async def _review_once(self, digest: bytes, token: str) -> KnownToken[Identity]:
        """Review a token, or wait for the review of it that is under way."""
        task = self._reviews.get(digest)
        if task is None:
            task = self._reviews[digest] = asyncio.create_task(self._review(digest, token))
            task.add_done_callback(lambda _: self._finished(digest))
        # One call that gives up does not take the answer from the others.
        return await asyncio.shield(task)

    def _finished(self, digest: bytes) -> None:
        task = self._reviews.pop(digest)
        # Taken even if every call has given up meanwhile.
        if not task.cancelled():
            task.exception()

    async def _review(self, digest: bytes, token: str) -> KnownToken[Identity]:
        async with self._slots, asyncio.timeout(WAIT_S):
            status = await self._ports.review(token, (AUDIENCE,))
            try:
                pod = pod_of(status)
                identity = await self._ports.identify(pod)
            except InvalidToken as error:
                # Here, because no call may be waiting for it.
                self._known.remove(digest)
                self._rejected.add(digest, str(error), self._clocks.monotonic_s())
                raise
        expires_s = expiry_of(token)
        left_s = None if expires_s is None else expires_s - self._clocks.wall_s()
        return self._known.add(digest, pod, identity, left_s, self._clocks.monotonic_s())
