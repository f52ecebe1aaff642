"""
Decides what has to be issued: pure, by the certificates that exist and the time.

An authority is replaced in three steps, so that at any time clients trust the certificates of both: its successor is announced in
the bundle, then it issues, and the bundle keeps the former one until its certificates have expired. Between the first two steps
lies ANNOUNCE_S, in which every client reads the bundle.
"""

import enum
from dataclasses import dataclass

DAY_S = 24 * 3600
AUTHORITY_DAYS = 3650
# Of an authority's life: then its successor is announced. Longer than any certificate lives.
SUCCEED_BEFORE_S = 850 * DAY_S
ANNOUNCE_S = 7 * DAY_S
# A certificate is renewed after two thirds of its life.
RENEW_FRACTION = 3


@dataclass(frozen=True, slots=True)
class Certificate:
    """Content of a certificate. Times in seconds since the epoch."""

    not_before_s: int
    not_after_s: int
    # DNS names; none for an authority.
    names: frozenset[str] = frozenset()

    def is_valid(self, now_s: float) -> bool:
        """Return whether it has not expired."""
        return now_s < self.not_after_s


class AuthorityStep(enum.Enum):
    """The next step in the life of the authority."""

    KEEP = "keep"
    # There is none, or it has expired.
    CREATE = "create"
    # Create its successor, and add it to the bundle.
    ANNOUNCE = "announce"
    # The successor issues from now on.
    SUCCEED = "succeed"


def authority_step(current: Certificate | None, successor: Certificate | None, now_s: float) -> AuthorityStep:
    """Return the step that is due."""
    if current is None or not current.is_valid(now_s):
        return AuthorityStep.CREATE
    if successor is not None and successor.is_valid(now_s):
        announced = now_s - successor.not_before_s >= ANNOUNCE_S
        return AuthorityStep.SUCCEED if announced else AuthorityStep.KEEP
    if current.not_after_s - now_s < SUCCEED_BEFORE_S:
        return AuthorityStep.ANNOUNCE
    return AuthorityStep.KEEP


def renewal_reason(
    certificate: Certificate | None, names: frozenset[str], *, is_issued_by_authority: bool, now_s: float
) -> str:
    """Return why a server's certificate has to be issued; empty: it need not."""
    if certificate is None:
        return "there is none"
    if certificate.names != names:
        return "its names have changed"
    if not is_issued_by_authority:
        return "another authority issues"
    life_s = certificate.not_after_s - certificate.not_before_s
    if certificate.not_after_s - now_s < life_s / RENEW_FRACTION:
        return "it expires"
    return ""
