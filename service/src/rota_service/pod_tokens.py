"""
Tokens of pods that the API server has reviewed: whose each one is, and for how long that may be believed.

A core: `token_review` asks the API server and passes the answers and the time in. Tokens are kept as SHA-256 digests only. Times
are seconds of the process's monotonic clock, except a token's own expiry, which is wall-clock time.
"""

import base64
import binascii
import hashlib
import json
import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

AUDIENCE = "rota"
# Metadata of a call to the coordinator: the namespace for which the operator makes it. It takes rights away, and gives none.
NAMESPACE_METADATA = "rota-namespace"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<account>[^:]+)")
# A review is repeated after this time: a deleted pod's stream ends within it, and the time of one review.
CACHE_S = 30.0
# For a token that has expired by this process's clock but not by the API server's.
CACHE_S_MIN = 5.0
# More than pods of one server; the ones that were used longest ago are forgotten first.
KNOWN_MAX = 20_000
# A token that the API server has rejected is not reviewed again before: the token of a pod that is new to it becomes valid.
REJECTED_S = 5.0
REJECTED_MAX = 10_000
Identity = TypeVar("Identity")


class PodRef(NamedTuple):
    """The name of a pod. At one time there is at most one pod of a name."""

    namespace: str
    name: str


class Pod(NamedTuple):
    """The pod that a token was issued to."""

    namespace: str
    name: str
    uid: str
    service_account: str

    @property
    def ref(self) -> PodRef:
        """Return the pod's name, which its successor may have too."""
        return PodRef(self.namespace, self.name)


class InvalidToken(Exception):
    """The token is not a pod's token for Rota; the message says why, without the token."""


def pod_of(status: Mapping[str, Any]) -> Pod:
    """Return the pod of a TokenReview's status. Raises InvalidToken."""
    if status.get("authenticated") is not True:
        reason = str(status.get("error") or "unknown token")
        raise InvalidToken(f"the API server rejects the token ({reason})")
    if AUDIENCE not in (status.get("audiences") or ()):
        raise InvalidToken(f"the token is not for the audience {AUDIENCE!r}")
    user: Mapping[str, Any] = status.get("user") or {}
    found = SERVICE_ACCOUNT.fullmatch(str(user.get("username") or ""))
    if found is None:
        raise InvalidToken("the token does not belong to a service account")
    extra: Mapping[str, Any] = user.get("extra") or {}
    name, uid = _only(extra.get(POD_NAME)), _only(extra.get(POD_UID))
    if not name or not uid:
        raise InvalidToken(
            "the token is not bound to a pod; use a projected service account token of the pod's own"
        )
    return Pod(found["namespace"], name, uid, found["account"])


def expiry_of(token: str) -> float | None:
    """
    Return the `exp` claim of a JWT in seconds since the epoch; None if there is none.

    The signature is not verified: the claim may only shorten the time for which an answer of the API server is believed.
    """
    expiry = _claims_of(token).get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
        return None
    return float(expiry)


def audiences_of(token: str) -> tuple[str, ...]:
    """Return the `aud` claim of a JWT, unverified: for choosing the audience to review the token for."""
    found = _claims_of(token).get("aud")
    values = found if isinstance(found, list) else [found]
    return tuple(each for each in values if isinstance(each, str))


def _claims_of(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT without verifying them; empty for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def digest_of(token: str) -> bytes:
    """Return the digest under which a token is kept."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


@dataclass(frozen=True, slots=True)
class KnownToken(Generic[Identity]):
    """An answer of the API server. Invariant: fresh_until_s <= usable_until_s."""

    pod: Pod
    # What the server that is asked makes of the pod.
    identity: Identity
    # It need not be asked again before.
    fresh_until_s: float
    # It must not be believed any longer, even while the API server cannot be asked: the token has expired.
    usable_until_s: float


class KnownTokens(Generic[Identity]):
    """Invariant: at most KNOWN_MAX tokens, and only those of the pod that was seen last under its name."""

    def __init__(self) -> None:
        # The one that was used last comes last.
        self._known: OrderedDict[bytes, KnownToken[Identity]] = OrderedDict()
        self._uids: dict[PodRef, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def fresh(self, digest: bytes, now_s: float) -> KnownToken[Identity] | None:
        """Return the token while the API server need not be asked."""
        known = self.usable(digest, now_s)
        return known if known is not None and now_s < known.fresh_until_s else None

    def usable(self, digest: bytes, now_s: float) -> KnownToken[Identity] | None:
        """Return the token while it may be believed without an answer of the API server."""
        known = self._known.get(digest)
        if known is None:
            return None
        if now_s >= known.usable_until_s or self._uids.get(known.pod.ref) != known.pod.uid:
            return None
        self._known.move_to_end(digest)
        return known

    def add(
        self, digest: bytes, pod: Pod, identity: Identity, expires_in_s: float | None, now_s: float
    ) -> KnownToken[Identity]:
        """Add an answer of the API server; `expires_in_s` is what is left of the token's own time, None: unknown."""
        left_s = CACHE_S if expires_in_s is None else max(0.0, expires_in_s)
        known = KnownToken(pod, identity, now_s + min(CACHE_S, left_s), now_s + left_s)
        self._uids[pod.ref] = pod.uid
        self._known[digest] = known
        self._known.move_to_end(digest)
        if len(self._known) > KNOWN_MAX:
            self._forget_some(now_s)
        return known

    def remove(self, digest: bytes) -> None:
        """Forget a token that the API server rejects."""
        self._known.pop(digest, None)

    def _forget_some(self, now_s: float) -> None:
        """Forget expired tokens, else a tenth of those that were used longest ago."""
        kept = [(digest, known) for digest, known in self._known.items() if now_s < known.usable_until_s]
        if len(kept) > KNOWN_MAX:
            kept = kept[KNOWN_MAX // 10 :]
        self._known = OrderedDict(kept)
        self._uids = {known.pod.ref: self._uids[known.pod.ref] for _, known in kept}


class RejectedTokens:
    """Tokens that the API server has rejected, with the reason. Invariant: at most REJECTED_MAX, the newest."""

    def __init__(self) -> None:
        # Digest -> reason, and the time until which it is believed; oldest first.
        self._rejected: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rejected)

    def reason(self, digest: bytes, now_s: float) -> str:
        """Return why a token was rejected a moment ago; empty if it is to be reviewed."""
        reason, until_s = self._rejected.get(digest, ("", 0.0))
        return reason if now_s < until_s else ""

    def add(self, digest: bytes, reason: str, now_s: float) -> None:
        """Add a token."""
        self._rejected[digest] = (reason, now_s + REJECTED_S)
        self._rejected.move_to_end(digest)
        while len(self._rejected) > REJECTED_MAX:
            self._rejected.popitem(last=False)


def _only(values: Sequence[Any] | None) -> str:
    """Return the single value of an extra field; empty if there is none, or more than one."""
    return str(values[0]) if isinstance(values, list | tuple) and len(values) == 1 else ""
