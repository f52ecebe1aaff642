"""Rules for static members only: a restart is not noticed by any other member."""

from tests.sidecar.membership.rolling.history import History
from tests.sidecar.membership.rolling.tenures import Cause, plans


def moved(history: History) -> int:
    """Return the number of partitions that were revoked from members that were not to end."""
    return sum(gap.cause is Cause.MOVED for gap in history.gaps)


def generations(history: History) -> set[int]:
    """Return the generations that there were."""
    return {plan.generation for life in history.lives for plan in plans(life)}


def handed_on(history: History) -> set[bool]:
    """Return True if the partitions of a stopped or killed member went to the same member."""
    members = {life.name: life.member for life in history.lives}
    return {
        members[gap.before.life] == members[gap.after.life]
        for gap in history.gaps
        if gap.cause in (Cause.LEFT, Cause.KILLED)
    }
