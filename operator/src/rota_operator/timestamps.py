"""Formats and parses times as the Kubernetes API does, in UTC. Called by the shells, in whose objects, plans and pages people read them."""

from datetime import UTC, datetime


def timestamp(ms: int) -> str:
    """Format a time in ms as a `Time` of the Kubernetes API: in seconds, rounded down."""
    return _rfc3339(datetime.fromtimestamp(ms // 1000, UTC), "seconds")


def micro_timestamp(ms: int) -> str:
    """Format a time in ms as a `MicroTime` of the Kubernetes API: in microseconds."""
    return _rfc3339(datetime.fromtimestamp(ms / 1000, UTC), "microseconds")


def milliseconds(text: str) -> int:
    """Parse a time of the Kubernetes API. Raises ValueError."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _rfc3339(at: datetime, precision: str) -> str:
    return at.isoformat(timespec=precision).replace("+00:00", "Z")
