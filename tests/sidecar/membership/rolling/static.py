"""What is told apart of static members: whether a restart was noticed by anybody else."""

from tests.sidecar.membership.rolling.history import History
from tests.sidecar.membership.rolling.tenures import Cause, plans


def moved(history: History) -> int:
    """How often a partition was given up by who was not to end."""
    return sum(gap.cause is Cause.MOVED for gap in history.gaps)


def generations(history: History) -> set[int]:
    """Those that there were."""
    return {plan.generation for life in history.lives for plan in plans(life)}


def handed_on(history: History) -> set[bool]:
    """Whether what was left, by a stop or a kill, went to the same member."""
    members = {life.name: life.member for life in history.lives}
    return {
        members[gap.before.life] == members[gap.after.life]
        for gap in history.gaps
        if gap.cause in (Cause.LEFT, Cause.KILLED)
    }
