"""
Authenticates sidecars by their projected service account tokens: the token names the pod, the pod its ConsumerGroup.

Called by the Fleet server through `sidecars`. What a review's answer means, and for how long, is decided in `rota_service`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rota_operator.cluster.errors import ApiError
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.reconcile.observed import Object
from rota_service.pod_tokens import InvalidToken, Pod
from rota_service.token_review import ReviewClocks, ReviewPorts, ReviewUnavailable, TokenReviewer


class PodGroup(NamedTuple):
    """The ConsumerGroup that a pod belongs to."""

    # As namespace/name.
    key: str
    group_id: str


@dataclass(frozen=True, slots=True)
class SidecarPorts:
    """Requests of the authenticator to the cluster. Both raise ApiError."""

    # Posts a TokenReview for these audiences; returns its status.
    review: Callable[[str, tuple[str, ...]], Awaitable[Object]]
    # Returns the ConsumerGroup of a pod; None if there is no such pod with this uid, or it belongs to none.
    group_of: Callable[[Pod], Awaitable[PodGroup | None]]


class SidecarAuthenticator:
    """Authenticator of the cluster operator; thread-confined to one event loop."""

    def __init__(self, ports: SidecarPorts, clocks: ReviewClocks) -> None:
        self._ports = ports
        self._reviewer = TokenReviewer(ReviewPorts(self._review, self._identify), clocks)

    async def authenticate(self, token: str) -> Principal:
        """Return the sidecar that a token belongs to. Raises Unauthenticated, AuthenticationUnavailable."""
        found = await self._reviewer.authenticate(token)
        return replace(found.identity, valid_for_s=found.valid_for_s)

    async def _review(self, token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        try:
            return await self._ports.review(token, audiences)
        except ApiError as error:
            raise ReviewUnavailable(str(error)) from None

    async def _identify(self, pod: Pod) -> Principal:
        try:
            group = await self._ports.group_of(pod)
        except ApiError as error:
            raise ReviewUnavailable(str(error)) from None
        if group is None:
            raise InvalidToken(
                f"pod {pod.name} of namespace {pod.namespace} does not belong to a ConsumerGroup, or is deleted"
            )
        return Principal(SidecarRef(pod.namespace, pod.name), group.group_id, pod.uid, group.key)
