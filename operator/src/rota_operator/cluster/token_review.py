"""
Authenticates sidecars by their projected service account tokens: the API server reviews each, for the audience `rota`.

Called by the Fleet server for each new stream, and again when an answer has expired. While the API server does not answer, sidecars
that are known go on until their tokens expire, and new ones wait up to a deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.tokens import (
    AUDIENCE,
    CACHE_S_MIN,
    InvalidToken,
    KnownToken,
    KnownTokens,
    Pod,
    digest_of,
    expiry_of,
    pod_of,
)
from rota_operator.fleet.authentication import AuthenticationUnavailable, Unauthenticated
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.reconcile.observed import Object

# For which a new sidecar waits for the API server.
WAIT_S = 10.0
# Between two attempts while the API server is away.
RETRY_S = 1.0
# Reviews at a time, and streams that wait for one.
REVIEWS_MAX = 20
WAITING_MAX = 2_000
# Real tokens have about 1,000 characters.
TOKEN_LENGTH_MAX = 16_384
TOO_LONG = f"the token has more than {TOKEN_LENGTH_MAX} characters"
TOO_MANY = f"{WAITING_MAX} sidecars wait for the API server to review their tokens; retry"
NO_ANSWER = "the API server could not review the token in time; retry"


class PodGroup(NamedTuple):
    """The ConsumerGroup that a pod belongs to."""

    # As namespace/name.
    key: str
    group_id: str


@dataclass(frozen=True, slots=True)
class ReviewPorts:
    """Requests of the authenticator to the cluster. Both raise ApiError."""

    # Posts a TokenReview for these audiences; returns its status.
    review: Callable[[str, tuple[str, ...]], Awaitable[Object]]
    # Returns the ConsumerGroup of a pod; None if there is no such pod with this uid, or it belongs to none.
    group_of: Callable[[Pod], Awaitable[PodGroup | None]]


@dataclass(frozen=True, slots=True)
class ReviewClocks:
    """The clocks of the process, in seconds."""

    monotonic_s: Callable[[], float]
    # Since the epoch: tokens expire by it.
    wall_s: Callable[[], float]


class TokenReviewer:
    """
    Authenticator of the cluster operator; thread-confined to one event loop.

    Invariant: at most one review of a token and REVIEWS_MAX reviews altogether are under way, for WAITING_MAX streams.
    """

    def __init__(self, ports: ReviewPorts, clocks: ReviewClocks) -> None:
        self._ports = ports
        self._clocks = clocks
        self._known = KnownTokens()
        self._reviews: dict[bytes, asyncio.Task[KnownToken]] = {}
        self._slots = asyncio.Semaphore(REVIEWS_MAX)
        self._waiting = 0

    async def authenticate(self, token: str) -> Principal:
        """Return the sidecar that a token belongs to. Raises Unauthenticated, AuthenticationUnavailable."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise Unauthenticated(TOO_LONG)
        digest = digest_of(token)
        known = self._known.fresh(digest, self._clocks.monotonic_s())
        if known is None:
            known = await self._review_or_wait(digest, token)
        valid_for_s = known.fresh_until_s - self._clocks.monotonic_s()
        return replace(known.principal, valid_for_s=max(CACHE_S_MIN, valid_for_s))

    async def _review_or_wait(self, digest: bytes, token: str) -> KnownToken:
        if self._waiting >= WAITING_MAX:
            raise AuthenticationUnavailable(TOO_MANY)
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        return await self._review_once(digest, token)
                    except ApiError:
                        usable = self._known.usable(digest, self._clocks.monotonic_s())
                        if usable is not None:
                            return usable
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            usable = self._known.usable(digest, self._clocks.monotonic_s())
            if usable is not None:
                return usable
            raise AuthenticationUnavailable(NO_ANSWER) from None
        except InvalidToken as error:
            self._known.remove(digest)
            raise Unauthenticated(str(error)) from None
        finally:
            self._waiting -= 1

    async def _review_once(self, digest: bytes, token: str) -> KnownToken:
        """Review a token, or wait for the review of it that is under way."""
        task = self._reviews.get(digest)
        if task is None:
            task = self._reviews[digest] = asyncio.create_task(self._review(digest, token))
            task.add_done_callback(lambda _: self._finished(digest))
        # One stream that gives up does not take the answer from the others.
        return await asyncio.shield(task)

    def _finished(self, digest: bytes) -> None:
        task = self._reviews.pop(digest)
        # Taken even if every stream has given up meanwhile.
        if not task.cancelled():
            task.exception()

    async def _review(self, digest: bytes, token: str) -> KnownToken:
        async with self._slots, asyncio.timeout(WAIT_S):
            status = await self._ports.review(token, (AUDIENCE,))
            pod = pod_of(status)
            group = await self._ports.group_of(pod)
        if group is None:
            raise InvalidToken(
                f"pod {pod.name} of namespace {pod.namespace} does not belong to a ConsumerGroup, or is deleted"
            )
        principal = Principal(SidecarRef(pod.namespace, pod.name), group.group_id, pod.uid, group.key)
        expires_s = expiry_of(token)
        left_s = None if expires_s is None else expires_s - self._clocks.wall_s()
        return self._known.add(digest, principal, left_s, self._clocks.monotonic_s())
