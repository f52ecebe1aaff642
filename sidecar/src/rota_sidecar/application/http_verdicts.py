"""
The verdict for an HTTP response. Used by `http_delivery`.

Only a status that blames the record itself makes it a dead letter at once. Every other error may come from the endpoint or
its configuration; its correction must not cost records, so they are retried and become dead letters after the last retry.
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
# A record delays its partition, or its key, while it waits.
RETRY_AFTER_S_MAX = 3_600


class Answer(NamedTuple):
    """The parts of an HTTP response that determine the verdict."""

    status: int
    phrase: str = ""
    # The first bytes of the body.
    excerpt: bytes = b""
    retry_after: str = ""
    # The Date header: the endpoint's clock.
    date: str = ""


class Outcome(NamedTuple):
    """The verdict on a record, with its reason."""

    verdict: Verdict
    reason: str = ""
    # None: the group's backoff applies.
    retry_after_ms: int | None = None


def outcome_of(answer: Answer) -> Outcome:
    """Return the verdict for a response."""
    if 200 <= answer.status < 300:
        return Outcome(Verdict.ACK)
    reason = reason_of(answer)
    if answer.status in AT_FAULT:
        return Outcome(Verdict.DEAD_LETTER, reason)
    return Outcome(Verdict.RETRY, reason, wait_ms(answer))


def reason_of(answer: Answer) -> str:
    """Return the status and an excerpt of the body, on one line."""
    text = answer.excerpt.decode(errors="replace")
    parts = "".join(character if character.isprintable() else " " for character in text).split()
    status = f"{answer.status} {answer.phrase}".strip()
    excerpt = " ".join(parts)[:EXCERPT_LENGTH_MAX]
    return f"{status}: {excerpt}" if excerpt else status


def wait_ms(answer: Answer) -> int | None:
    """Return the wait of Retry-After in milliseconds, from seconds or a date; None: no valid value."""
    text = answer.retry_after.strip()
    if text.isascii() and text.isdecimal():
        return min(int(text[:9]), RETRY_AFTER_S_MAX) * 1000
    try:
        # Both times are of the endpoint's clock, which may differ from the sidecar's.
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(answer.date)
    except (ValueError, TypeError):
        return None
    return int(min(max(wait.total_seconds(), 0), RETRY_AFTER_S_MAX) * 1000)
