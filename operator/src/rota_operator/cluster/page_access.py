"""
Authenticates readers of the operator's page by their bearer tokens, and decides which ConsumerGroups they may see.

A TokenReview says whose the token is, SubjectAccessReviews whether that user may `get` ConsumerGroups: in the cluster, in a namespace,
or one by name. Answers are believed for FRESH_S; while the API server does not answer, those that were positive for USABLE_S. Tokens
are kept as digests only.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from rota_operator.cluster.errors import ApiError, Unavailable
from rota_operator.cluster.kinds import CONSUMER_GROUP
from rota_operator.cluster.queues import Key
from rota_operator.page.server import Refused
from rota_operator.reconcile.observed import Object
from rota_service.pod_tokens import audiences_of, digest_of

# Of tokens that service accounts request for the page alone: nothing else accepts them.
AUDIENCE = "rota-page"
FRESH_S, USABLE_S = 30.0, 300.0
# Answers that are kept; those that were asked for first are forgotten first.
KNOWN_MAX = 5_000
# Reviews under way, and those of one request.
REVIEWS_MAX, REVIEWS_OF_REQUEST_MAX = 10, 500
NO_TOKEN = "send a bearer token in the header Authorization; `kubectl rota ui` does"
REJECTED = "the API server rejects the token; log in again, and run `kubectl rota ui` again"
TOO_MANY = "there are too many ConsumerGroups to ask for each whether you may see it; name one namespace, as `kubectl rota ui -n` does"

T = TypeVar("T")


class Reader(NamedTuple):
    """An authenticated user, as the API server names it."""

    name: str
    # Spec of a SubjectAccessReview about the user, but for the question.
    subject: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AccessPorts:
    """Requests to the API server; both raise ApiError."""

    # Posts a TokenReview for these audiences, none: the API server's own; returns its status.
    review_token: Callable[[str, tuple[str, ...]], Awaitable[Object]]
    # Posts a SubjectAccessReview with this spec; returns whether it is allowed.
    review_access: Callable[[Object], Awaitable[bool]]
    monotonic_s: Callable[[], float]


class Answer(NamedTuple):
    """An answer of the API server; a Reader or whether access is allowed, None and False are negative."""

    value: Reader | bool | None
    at_s: float


class PageAccess:
    """
    Readers and their rights; thread-confined to one event loop.

    Invariant: at most KNOWN_MAX answers are kept, and REVIEWS_MAX reviews are under way.
    """

    def __init__(self, ports: AccessPorts) -> None:
        self._ports = ports
        self._known: OrderedDict[tuple[object, ...], Answer] = OrderedDict()
        self._slots = asyncio.Semaphore(REVIEWS_MAX)

    async def authenticate(self, authorization: str) -> Reader:
        """Return the user whose token is in the header. Raises Refused."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, NO_TOKEN)
        found = await self._answer(
            ("token", digest_of(token.strip())), lambda: self._review_token(token.strip())
        )
        if not isinstance(found, Reader):
            raise Refused(401, REJECTED)
        return found

    async def visible(self, reader: Reader, keys: Sequence[Key], namespace: str) -> Sequence[Key]:
        """Return the ConsumerGroups that a reader may `get`, of one namespace unless that is empty. Raises Refused."""
        if namespace:
            keys = [each for each in keys if each.namespace == namespace]
        if await self._may_get(reader, "", "") or (namespace and await self._may_get(reader, namespace, "")):
            return keys
        spaces = {namespace} if namespace else {each.namespace for each in keys}
        if len(spaces) > REVIEWS_OF_REQUEST_MAX:
            raise Refused(400, TOO_MANY)
        whole = await self._allowed(spaces, lambda each: self._may_get(reader, each, ""))
        others = [each for each in keys if each.namespace not in whole]
        if len(others) > REVIEWS_OF_REQUEST_MAX:
            raise Refused(400, TOO_MANY)
        single = await self._allowed(others, lambda each: self._may_get(reader, *each))
        found = [each for each in keys if each.namespace in whole or each in single]
        if not found and not whole:
            where = f" in namespace {namespace}" if namespace else ""
            raise Refused(
                403, f"{reader.name} may not get consumergroups.rota.dev{where}; ask for this right"
            )
        return found

    async def _allowed(self, asked: Collection[T], may_get: Callable[[T], Awaitable[bool]]) -> set[T]:
        answers = await asyncio.gather(*map(may_get, asked))
        return {each for each, is_allowed in zip(asked, answers, strict=True) if is_allowed}

    async def _may_get(self, reader: Reader, namespace: str, name: str) -> bool:
        attributes = {
            "verb": "get",
            "group": CONSUMER_GROUP.api_version.partition("/")[0],
            "resource": CONSUMER_GROUP.plural,
            # Empty: in all namespaces, or all objects.
            **({"namespace": namespace} if namespace else {}),
            **({"name": name} if name else {}),
        }
        spec = {**reader.subject, "resourceAttributes": attributes}
        key = ("access", repr(reader.subject), namespace, name)
        return bool(await self._answer(key, lambda: self._ports.review_access(spec)))

    async def _answer(
        self, key: tuple[object, ...], ask: Callable[[], Awaitable[Reader | bool | None]]
    ) -> Reader | bool | None:
        now_s, known = self._ports.monotonic_s(), self._known.get(key)
        if known is not None and now_s - known.at_s < FRESH_S:
            return known.value
        try:
            async with self._slots:
                value = await ask()
        except Unavailable as error:
            if known is not None and known.value and now_s - known.at_s < USABLE_S:
                return known.value
            raise Refused(503, f"your rights cannot be checked now: {error}") from None
        except ApiError as error:
            raise Refused(503, f"your rights cannot be checked: {error}") from None
        self._known[key] = Answer(value, now_s)
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return value

    async def _review_token(self, token: str) -> Reader | None:
        audiences = (AUDIENCE,) if AUDIENCE in audiences_of(token) else ()
        status = await self._ports.review_token(token, audiences)
        user: Mapping[str, Any] = status.get("user") or {}
        name = str(user.get("username") or "")
        if status.get("authenticated") is not True or not name:
            return None
        if audiences and AUDIENCE not in (status.get("audiences") or ()):
            return None
        subject = {
            "user": name,
            "groups": list(user.get("groups") or ()),
            "extra": dict(user.get("extra") or {}),
            "uid": str(user.get("uid") or ""),
        }
        return Reader(name, subject)
