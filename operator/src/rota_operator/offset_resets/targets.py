"""Reads the target of a reset: times become milliseconds, which the core `resets.targets` compares."""

import re
from datetime import datetime, timedelta

from rota_operator.resets.plan import Plan, ResetRefused
from rota_operator.resets.targets import (
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToPlan,
    ToTime,
    time_problem,
)
from rota_operator.spec.offsets import ResetTo

DURATION = re.compile(r"PT(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]{1,3})?)S)?")


def target_of(to: ResetTo, now_ms: int, plan: Plan | None) -> Target:
    """Return the target; `plan` is the one of `fromConfigMap`. Raises ResetRefused."""
    if to.datetime is not None:
        at_ms = time_ms(to.datetime)
        time_problem("datetime", at_ms, now_ms)
        # Negative times have other meanings in ListOffsets.
        return ToTime(max(0, at_ms))
    if to.by_duration is not None:
        return ToTime(max(0, now_ms - duration_ms(to.by_duration)))
    if to.offset is not None:
        return ToOffset(to.offset)
    if to.shift_by is not None:
        return ShiftBy(to.shift_by)
    if plan is not None:
        return ToPlan(plan)
    return ToEarliest() if to.earliest else ToLatest()


def time_ms(text: str) -> int:
    """Return the time of an RFC 3339 text. Raises ResetRefused for one that does not exist, such as a 30th of February."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ResetRefused(
            f"spec.offsets.reset.to.datetime must be a time such as 2026-09-20T00:00:00Z; got {text}"
        ) from None


def duration_ms(text: str) -> int:
    """Return the length of an ISO 8601 duration. Raises ResetRefused for one that is empty or too long."""
    found = DURATION.fullmatch(text)
    try:
        if found is not None and any(found.groups()):
            hours, minutes, seconds = (float(each or 0) for each in found.groups())
            return int(timedelta(hours=hours, minutes=minutes, seconds=seconds).total_seconds() * 1000)
    except OverflowError:
        pass
    raise ResetRefused(f"spec.offsets.reset.to.byDuration must be a duration such as PT6H; got {text}")
