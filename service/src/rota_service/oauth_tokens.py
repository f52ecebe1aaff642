"""
OAuth bearer tokens: what a token says of itself, how long it may be used, and when it is renewed.

Pure. `oauth_sources` obtains tokens from a file or a token endpoint, `oauth_provider` keeps the current one, and asks here
what to do with it.
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, assert_never

# Part of its life after which a token is renewed: `sasl.login.refresh.window.factor` of Kafka's clients.
RENEWAL_PART = 0.8
# Difference of two clocks that is taken for granted: `sasl.oauthbearer.clock.skew.seconds` of Kafka's brokers.
CLOCK_SKEW_S = 30.0
# Life of a token that has expired by this machine's clock within that difference: the broker decides.
LIFETIME_MIN_S = 5.0
# No token is kept for longer, whatever it says of itself.
LIFETIME_MAX_S = 7 * 86_400.0
# Pause after a failed attempt. Meanwhile a valid token is used without another attempt.
RETRY_S = 5.0
TOKEN_LENGTH_MAX = 64 << 10
# RFC 6750. Other characters could end the message to the broker, or a header.
TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class NoToken(Exception):
    """
    A source has no token that can be used; the message is one sentence without any part of a token or secret.

    `may_heal`: asking again later may help, without a change of the settings.
    """

    def __init__(self, message: str, *, may_heal: bool) -> None:
        super().__init__(message)
        self.may_heal = may_heal


@dataclass(frozen=True, slots=True)
class Token:
    """A token as its source has it. Invariant: `value` matches TOKEN, and `lifetime_s` is from 5 s to 7 days."""

    value: str = field(repr=False)
    # Claim `sub`; empty: the token does not say it.
    subject: str
    # From the moment when it was obtained.
    lifetime_s: float


@dataclass(frozen=True, slots=True)
class HeldToken:
    """The token in use, and the monotonic time at which it was obtained."""

    token: Token
    obtained_s: float

    @property
    def expires_s(self) -> float:
        """Return the monotonic time at which it expires."""
        return self.obtained_s + self.token.lifetime_s

    @property
    def renewal_s(self) -> float:
        """Return the monotonic time from which on it is renewed."""
        return self.obtained_s + RENEWAL_PART * self.token.lifetime_s


class Need(Enum):
    """Ways for a caller to get a token now."""

    # The held one will do.
    NONE = "none"
    # The held one will do; a new one is due.
    RENEW = "renew"
    # There is none that can be used.
    OBTAIN = "obtain"


def need(held: HeldToken | None, now_s: float) -> Need:
    """Decide how a caller gets a token at this monotonic time."""
    if held is None or now_s >= held.expires_s:
        return Need.OBTAIN
    return Need.RENEW if now_s >= held.renewal_s else Need.NONE


def may_attempt(what: Need, failed_s: float | None, now_s: float) -> bool:
    """Return whether the source is asked now; `failed_s`: the monotonic time of a failure since the last success."""
    match what:
        case Need.NONE:
            return False
        case Need.RENEW | Need.OBTAIN:
            return failed_s is None or now_s >= failed_s + RETRY_S
        case _:
            assert_never(what)


def parse_token(text: str, source: str, wall_s: float, expires_in_s: float | None = None) -> Token:
    """
    Return the token of a file or of an endpoint's answer. Raises NoToken, which names the `source`.

    `expires_in_s`: its life as the endpoint states it. That needs no clock, so it precedes the claim `exp`.
    """
    if len(text) > TOKEN_LENGTH_MAX or TOKEN.fullmatch(text) is None:
        raise NoToken(f"{source} has no bearer token; expected one token, and nothing else", may_heal=True)
    claims = _claims(text)
    subject = claims.get("sub", "")
    lifetime_s = expires_in_s
    if lifetime_s is None:
        expiry_s = claims.get("exp")
        if isinstance(expiry_s, bool) or not isinstance(expiry_s, int | float):
            raise NoToken(
                f"{source} has a token without an expiry; expected a JWT with the claim exp", may_heal=False
            )
        lifetime_s = expiry_s - wall_s
    # Written so that it holds for NaN too.
    if not lifetime_s > -CLOCK_SKEW_S:
        raise NoToken(
            f"{source} has a token that expired {-lifetime_s:.0f} s ago; renew it, and check the clock of this machine",
            may_heal=True,
        )
    bounded_s = min(max(lifetime_s, LIFETIME_MIN_S), LIFETIME_MAX_S)
    return Token(text, subject if isinstance(subject, str) else "", bounded_s)


def _claims(text: str) -> Mapping[str, Any]:
    """Return the claims of a JWT, unverified: that is the broker's part. Empty: not a JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
