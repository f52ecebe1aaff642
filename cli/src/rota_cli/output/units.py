"""Format times, durations and sizes for people."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rota.records import TopicPartition

# Kafka's value for "unlimited".
UNLIMITED = -1
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# Times after year 9999 cannot be formatted.
TIMESTAMP_MS_MAX = 253_402_300_799_999


def humanize_retention(value_ms: int | None) -> str | None:
    """Format a duration in its largest exact unit."""
    if value_ms is None or value_ms == UNLIMITED:
        return None if value_ms is None else "forever"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if value_ms % UNITS_MS[unit] == 0)
    return f"{value_ms // UNITS_MS[unit]}{unit}"


def humanize_size(value: int | None) -> str | None:
    """Format a size in its largest exact unit."""
    if value is None or value == UNLIMITED:
        return None if value is None else "unlimited"
    unit = next(unit for unit in ("TiB", "GiB", "MiB", "KiB", "") if value % UNITS_BYTES[unit] == 0)
    return f"{value // UNITS_BYTES[unit]}{unit}"


def format_timestamp(value_ms: int) -> str:
    """Format a timestamp in UTC, to the millisecond; as a plain number beyond year 9999."""
    if not 0 <= value_ms <= TIMESTAMP_MS_MAX:
        return str(value_ms)
    return (
        datetime.fromtimestamp(value_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def pluralize(count: int, noun: str) -> str:
    """
    Format a number of things.

    >>> pluralize(1, "partition"), pluralize(3, "partition")
    ('1 partition', '3 partitions')
    """
    return f"{count} {noun}{'s' * (count != 1)}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition numbers by topic, both sorted."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """
    Format partitions by topic, with ranges of numbers.

    >>> format_partitions([TopicPartition("orders", number) for number in (0, 1, 2, 5)])
    'orders[0-2,5]'
    """
    return " ".join(f"{topic}[{_runs(numbers)}]" for topic, numbers in by_topic(partitions).items())


def _runs(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
