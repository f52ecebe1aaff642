"""Parse times, durations and sizes of flags."""

import re
from datetime import datetime

from rota_cli.errors import WrongUsage
from rota_cli.output.units import UNITS_BYTES, UNITS_MS, UNLIMITED

INT64_MAX = 2**63 - 1
DURATION = re.compile(
    r"P(?!$)(?:(?P<days>\d+)D)?(?:T(?!$)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
SHORT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)")
SIZE = re.compile(r"(?P<number>\d+)(?P<unit>|KiB|MiB|GiB|TiB)")
PARTS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def duration_ms(flag: str, text: str) -> int:
    """
    Parse an ISO 8601 duration, or a number with a unit, into milliseconds.

    >>> duration_ms("--by-duration", "PT1H30M"), duration_ms("--by-duration", "90m")
    (5400000, 5400000)
    """
    if (short := SHORT.fullmatch(text)) is not None:
        return int(float(short["number"]) * UNITS_MS[short["unit"]])
    if (parts := DURATION.fullmatch(text)) is not None:
        return int(sum(float(value or 0) * PARTS_MS[name] for name, value in parts.groupdict().items()))
    raise WrongUsage(f"{flag} {text}: expected a duration such as PT1H30M, P7D, 90m or 7d")


def timestamp_ms(flag: str, text: str) -> int:
    """
    Parse an ISO 8601 time into milliseconds since the epoch. The time zone is required, because local time is ambiguous.

    >>> timestamp_ms("--to-datetime", "1970-01-01T00:00:01Z")
    1000
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(f"{flag} {text}: expected a time such as 2026-09-20T12:00:00Z") from None
    if found.tzinfo is None:
        raise WrongUsage(f"{flag} {text}: add a time zone, such as {text}Z for UTC or {text}+02:00")
    return int(found.timestamp() * 1000)


def retention_ms(text: str) -> int | None:
    """Parse `--retention`; None means the server's default."""
    if not text:
        return None
    return UNLIMITED if text == "forever" else duration_ms("--retention", text)


def retention_bytes(text: str) -> int | None:
    """Parse `--retention-bytes`; None means the server's default."""
    if not text:
        return None
    if text == "unlimited":
        return UNLIMITED
    size = SIZE.fullmatch(text)
    if size is None:
        raise WrongUsage(f"--retention-bytes {text}: expected a size such as 512MiB or 10GiB, or 'unlimited'")
    return int(size["number"]) * UNITS_BYTES[size["unit"]]
