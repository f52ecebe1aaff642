"""
Clicks and sessions, as the pipeline `clickstream_sessions` reads and merges them.

A click is a JSON object with `user`, which is the record's key too, and `at_ms`, its time. Two clicks of a user belong to one
session if no pause between them is longer than the gap. A task makes sessions of the clicks in its partitions; the sink merges
them with those of earlier batches by the same rule, so that the division into batches does not matter.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rota_spark.core.json_values import described, json_object, name_problem


class Click(NamedTuple):
    """A click. Invariant: without a problem, user and at_ms are valid."""

    user: str = ""
    # Milliseconds since the epoch.
    at_ms: int = 0
    # Text that says what is wrong with the record; empty: nothing.
    problem: str = ""


class Session(NamedTuple):
    """Consecutive clicks of a user. Invariant: first_ms <= last_ms."""

    user: str
    first_ms: int
    last_ms: int
    clicks: int


def click_of(key: bytes | None, value: bytes | None, logged_ms: int | None, late_ms: int) -> Click:
    """
    Read a click from a record that the log has since `logged_ms`.

    A click is late if it is more than `late_ms` older than that. The rule needs no watermark: a replayed record is judged alike.

    >>> click_of(b"ann", b'{"user": "ann", "at_ms": 5000}', 6000, 2000)
    Click(user='ann', at_ms=5000, problem='')
    >>> click_of(b"ann", b'{"user": "ann", "at_ms": 5000}', 9000, 2000).problem
    'late: at_ms is 4000 ms before the timestamp of the record, and 2000 ms are allowed'
    """
    fields = json_object(value)
    if isinstance(fields, str):
        return Click(problem=fields)
    if problem := name_problem(fields, "user"):
        return Click(problem=problem)
    user, at_ms = fields["user"], fields.get("at_ms")
    # All clicks of a user are in one partition, so that one member merges them.
    if key != user.encode():
        return Click(problem="the key is not the user: use the user as key of the record")
    if isinstance(at_ms, bool) or not isinstance(at_ms, int):
        return Click(problem=f"{described('at_ms', fields)}: set it to milliseconds since the epoch")
    if logged_ms is None:
        return Click(problem="the record has no timestamp")
    if logged_ms - at_ms > late_ms:
        return Click(
            problem=f"late: at_ms is {logged_ms - at_ms} ms before the timestamp of the record, and {late_ms} ms are allowed"
        )
    if at_ms - logged_ms > late_ms:
        return Click(
            problem=f"at_ms is {at_ms - logged_ms} ms after the timestamp of the record: check the clock of its producer"
        )
    return Click(user, at_ms)


def sessions_of(clicks: Iterable[Click], gap_ms: int) -> list[Session]:
    """
    Merge clicks into sessions, ordered by user and time.

    >>> sessions_of([Click("ann", 9), Click("ann", 1), Click("ann", 4), Click("bob", 5)], gap_ms=3)
    [Session(user='ann', first_ms=1, last_ms=4, clicks=2), Session(user='ann', first_ms=9, last_ms=9, clicks=1), Session(user='bob', first_ms=5, last_ms=5, clicks=1)]
    """
    found: list[Session] = []
    for user, at_ms, _ in sorted(clicks):
        last = found[-1] if found else None
        if last is not None and last.user == user and at_ms - last.last_ms <= gap_ms:
            found[-1] = last._replace(last_ms=at_ms, clicks=last.clicks + 1)
        else:
            found.append(Session(user, at_ms, at_ms, 1))
    return found
