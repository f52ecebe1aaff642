"""Times, durations and sizes, as people write them and as they are shown to them."""

import re
from datetime import UTC, datetime

from rota_cli.failures import WrongUsage
from rota_cli.values import FOR_EVER

DURATION = re.compile(
    r"P(?!$)(?:(?P<days>\d+)D)?(?:T(?!$)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
SHORT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)")
SIZE = re.compile(r"(?P<number>\d+)(?P<unit>|KiB|MiB|GiB|TiB)")
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
PARTS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}
UNITS_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
# Beyond it nobody could write the year.
TIMESTAMP_MS_MAX = 253_402_300_799_999


def duration_ms(flag: str, text: str) -> int:
    """
    ISO 8601, or a number with a unit.

    >>> duration_ms("--by-duration", "PT1H30M"), duration_ms("--by-duration", "90m")
    (5400000, 5400000)
    """
    if (short := SHORT.fullmatch(text)) is not None:
        return int(float(short["number"]) * UNITS_MS[short["unit"]])
    if (parts := DURATION.fullmatch(text)) is not None:
        return int(sum(float(value or 0) * PARTS_MS[name] for name, value in parts.groupdict().items()))
    raise WrongUsage(f"{flag} {text}: give a duration as PT1H30M or P7D, or as 90m, 2h, 7d")


def timestamp_ms(flag: str, text: str) -> int:
    """
    ISO 8601 with a zone: what midnight is depends on where one is.

    >>> timestamp_ms("--to-datetime", "1970-01-01T00:00:01Z")
    1000
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"{flag} {text}: give a time as 2026-09-20T12:00:00Z") from None
    if found.tzinfo is None:
        raise WrongUsage(f"{flag} {text}: say in which zone, as {text}Z for UTC or {text}+02:00")
    return int(found.timestamp() * 1000)


def retention_ms(text: str) -> int | None:
    """Of `--retention`; None when the server is to decide."""
    if not text:
        return None
    return FOR_EVER if text == "forever" else duration_ms("--retention", text)


def retention_bytes(text: str) -> int | None:
    """Of `--retention-bytes`; None when the server is to decide."""
    if not text:
        return None
    if text == "unlimited":
        return FOR_EVER
    size = SIZE.fullmatch(text)
    if size is None:
        raise WrongUsage(f"--retention-bytes {text}: give a size as 512MiB or 10GiB, or 'unlimited'")
    return int(size["number"]) * UNITS_BYTES[size["unit"]]


def spoken_retention(value_ms: int | None) -> str | None:
    """For people: as long as possible in one unit that fits."""
    if value_ms is None or value_ms == FOR_EVER:
        return None if value_ms is None else "forever"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if value_ms % UNITS_MS[unit] == 0)
    return f"{value_ms // UNITS_MS[unit]}{unit}"


def spoken_size(value: int | None) -> str | None:
    """For people."""
    if value is None or value == FOR_EVER:
        return None if value is None else "unlimited"
    unit = next(unit for unit in ("TiB", "GiB", "MiB", "KiB", "") if value % UNITS_BYTES[unit] == 0)
    return f"{value // UNITS_BYTES[unit]}{unit}"


def spoken_time(value_ms: int) -> str:
    """In UTC, to the millisecond; a number where there is no such year."""
    if not 0 <= value_ms <= TIMESTAMP_MS_MAX:
        return str(value_ms)
    return (
        datetime.fromtimestamp(value_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def many(count: int, noun: str) -> str:
    """
    A number of things.

    >>> many(1, "partition"), many(3, "partition")
    ('1 partition', '3 partitions')
    """
    return f"{count} {noun}{'s' * (count != 1)}"
