"""
Tokens of sidecars that the API server has reviewed: whose each one is, and for how long that may be believed.

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
from typing import Any, NamedTuple

from rota_operator.fleet.principal import Principal, SidecarRef

AUDIENCE = "rota"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:(?P<namespace>[^:]+):(?P<account>[^:]+)")
# A review is repeated after this time: a deleted pod's stream ends within it, and the time of one review.
CACHE_S = 30.0
# For a token that has expired by this process's clock but not by the API server's.
CACHE_S_MIN = 5.0
# More than sidecars of one operator; the ones that were used longest ago are forgotten first.
KNOWN_MAX = 20_000


class Pod(NamedTuple):
    """The pod that a token was issued to."""

    namespace: str
    name: str
    uid: str
    service_account: str


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
            "the token is not bound to a pod; the sidecar needs a projected service account token"
        )
    return Pod(found["namespace"], name, uid, found["account"])


def expiry_of(token: str) -> float | None:
    """
    Return the `exp` claim of a JWT in seconds since the epoch; None if there is none.

    The signature is not verified: the claim may only shorten the time for which an answer of the API server is believed.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
        return None
    return float(expiry)


def digest_of(token: str) -> bytes:
    """Return the digest under which a token is kept."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


@dataclass(frozen=True, slots=True)
class KnownToken:
    """An answer of the API server. Invariant: fresh_until_s <= usable_until_s."""

    principal: Principal
    # It need not be asked again before.
    fresh_until_s: float
    # It must not be believed any longer, even while the API server cannot be asked: the token has expired.
    usable_until_s: float


class KnownTokens:
    """Invariant: at most KNOWN_MAX tokens, and only those of the pod that was seen last under its name."""

    def __init__(self) -> None:
        # The one that was used last comes last.
        self._known: OrderedDict[bytes, KnownToken] = OrderedDict()
        self._uids: dict[SidecarRef, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def fresh(self, digest: bytes, now_s: float) -> KnownToken | None:
        """Return the token while the API server need not be asked."""
        known = self.usable(digest, now_s)
        return known if known is not None and now_s < known.fresh_until_s else None

    def usable(self, digest: bytes, now_s: float) -> KnownToken | None:
        """Return the token while it may be believed without an answer of the API server."""
        known = self._known.get(digest)
        if known is None:
            return None
        principal = known.principal
        if now_s >= known.usable_until_s or self._uids.get(principal.sidecar) != principal.uid:
            return None
        self._known.move_to_end(digest)
        return known

    def add(
        self, digest: bytes, principal: Principal, expires_in_s: float | None, now_s: float
    ) -> KnownToken:
        """Add an answer of the API server; `expires_in_s` is what is left of the token's own time, None: unknown."""
        left_s = CACHE_S if expires_in_s is None else max(0.0, expires_in_s)
        known = KnownToken(principal, now_s + min(CACHE_S, left_s), now_s + left_s)
        self._uids[principal.sidecar] = principal.uid
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
        self._uids = {known.principal.sidecar: self._uids[known.principal.sidecar] for _, known in kept}


def _only(values: Sequence[Any] | None) -> str:
    """Return the single value of an extra field; empty if there is none, or more than one."""
    return str(values[0]) if isinstance(values, list | tuple) and len(values) == 1 else ""
