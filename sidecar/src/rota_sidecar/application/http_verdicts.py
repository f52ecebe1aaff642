"""
What an HTTP answer means for a record. Used by `http_delivery`.

A record becomes a dead letter at once only where the answer is about the record itself. Everything else may be the fault
of whoever answers, or of how it is set up; mending that must not cost records, so they are sent again, and become dead
letters after the last retry.
"""

from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

from rota_sidecar.core.ledger.rules import Verdict

AT_FAULT = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}
EXCERPT_LENGTH_MAX = 200
# A record holds up its partition, or its key, while it waits.
RETRY_AFTER_S_MAX = 3_600


class Answer(NamedTuple):
    """As far as it matters."""

    status: int
    phrase: str = ""
    # How the body begins.
    excerpt: bytes = b""
    retry_after: str = ""
    # By the clock of who answers.
    date: str = ""


class Outcome(NamedTuple):
    """What becomes of the record."""

    verdict: Verdict
    reason: str = ""
    # None: by the group's backoff.
    retry_after_ms: int | None = None


def outcome_of(answer: Answer) -> Outcome:
    """What becomes of the record that was answered so."""
    if 200 <= answer.status < 300:
        return Outcome(Verdict.ACK)
    reason = reason_of(answer)
    if answer.status in AT_FAULT:
        return Outcome(Verdict.DEAD_LETTER, reason)
    return Outcome(Verdict.RETRY, reason, wait_ms(answer))


def reason_of(answer: Answer) -> str:
    """The status, and how the body begins, on one line."""
    text = answer.excerpt.decode(errors="replace")
    parts = "".join(character if character.isprintable() else " " for character in text).split()
    status = f"{answer.status} {answer.phrase}".strip()
    excerpt = " ".join(parts)[:EXCERPT_LENGTH_MAX]
    return f"{status}: {excerpt}" if excerpt else status


def wait_ms(answer: Answer) -> int | None:
    """What Retry-After asks for, as seconds or as a date; None when it asks for nothing that can be understood."""
    text = answer.retry_after.strip()
    if text.isascii() and text.isdecimal():
        return min(int(text[:9]), RETRY_AFTER_S_MAX) * 1000
    try:
        # Both by the clock of who answers: ours need not agree with it.
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(answer.date)
    except (ValueError, TypeError):
        return None
    return int(min(max(wait.total_seconds(), 0), RETRY_AFTER_S_MAX) * 1000)
