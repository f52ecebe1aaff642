"""
The timeout of commits that wait for the store, Kafka's `offsets.commit.timeout.ms`. Called by a slot's timer, which passes the time.

A commit that times out is answered while its write still waits, so its outcome is unknown to the client, which repeats it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from rota_coordinator.core.group.effects import Call


class TimedOut(NamedTuple):
    """The commits whose timeout has passed."""

    calls: list[Call]
    # Time at which the next commit times out, in seconds; None: no other one waits.
    next_s: float | None


def timed_out(commits: Iterable[tuple[Call, float]], now_s: float, timeout_s: float) -> TimedOut:
    """Return the commits that have waited for the timeout; each comes with the time of its arrival, in ascending order."""
    calls: list[Call] = []
    for call, since_s in commits:
        if since_s + timeout_s > now_s:
            return TimedOut(calls, since_s + timeout_s)
        calls.append(call)
    return TimedOut(calls, None)
