"""Failures of dead-letter writes to Kafka, in the words of both clients. Used by `writing.py` and `python_client/writing.py`."""

from rota_sidecar.engines.port import Refused, Unreachable


def missing_topic(topic: str) -> Refused:
    """Return the failure for a dead-letter topic that does not exist."""
    return Refused(
        f"the dead-letter topic {topic!r} does not exist; create it, or name another topic in the group's settings"
    )


def rejection_of(topic: str, reason: str) -> str:
    """Return the message for dead letters that the broker rejects."""
    return (
        f"Kafka rejected dead letters for {topic!r} ({reason}); "
        "check the topic's settings, and that this user may write to it"
    )


def too_late(left: int, count: int, within_s: float) -> Unreachable:
    """Return the failure for dead letters that were not acknowledged in time."""
    return Unreachable(
        f"Kafka has not acknowledged {left} of {count} dead letters within {within_s:g} s; they are retried later"
    )
