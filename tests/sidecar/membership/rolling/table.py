"""Table of the partitions of members that were restarted, killed and frozen, for human readers."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from tests.sidecar.membership.rolling.history import History
from tests.sidecar.membership.rolling.tenures import Cause, Did

TITLES = {
    Cause.LEFT: "SIGTERM",
    Cause.KILLED: "kill -9",
    Cause.FROZEN: "SIGSTOP beyond the session",
    Cause.MOVED: "moves to who joins",
}
HITS = {Cause.LEFT: Did.TERM, Cause.KILLED: Did.KILL, Cause.FROZEN: Did.STOP}
HEADER = f"{'what':<28}{'times':>7}{'moved':>7}{'unowned p50':>13}{'max ms':>8}{'limit':>7}{'repeats':>9}{'refused':>9}"


class Row(NamedTuple):
    """One kind of event."""

    cause: Cause
    times: int
    # By partition: from its owner's end to the next one's begin, and how long it might have been.
    unowned_ms: Sequence[int]
    limit_ms: int
    # Work that was done again, and commits for tenures that were over.
    repeats: int
    refused: int

    def line(self) -> str:
        """For people."""
        p50, highest = (
            (round(median(self.unowned_ms)), max(self.unowned_ms)) if self.unowned_ms else ("-", "-")
        )
        times = self.times or "-"
        return (
            f"{TITLES[self.cause]:<28}{times:>7}{len(self.unowned_ms):>7}{p50:>13}{highest:>8}"
            f"{self.limit_ms:>7}{self.repeats:>9}{self.refused:>9}"
        )


def row_of(history: History, cause: Cause) -> Row:
    """All that ended in this way."""
    gaps = [gap for gap in history.gaps if gap.cause is cause]
    refused = [
        partition
        for commit in history.commits
        for partition, tenure in commit.tenures.items()
        if partition in (commit.refused or {}) and history.cause_of(commit.life, tenure, partition) is cause
    ]
    return Row(
        cause,
        sum(hit.did is HITS.get(cause) for life in history.lives for hit in life.hits),
        [gap.unowned_ms for gap in gaps],
        max((gap.limit_ms(history.limits) for gap in gaps), default=0),
        sum(
            max(0, start.reached - start.offset)
            for start in history.starts
            if start.reached_in is not None and history.cause_of(*start.reached_in, start.partition) is cause
        ),
        len(refused),
    )


def lines(title: str, history: History) -> Iterator[str]:
    """The table."""
    commits = sum(len(commit.taken) for commit in history.commits)
    plural = (
        f"{len(history.partitions)} partitions, {len(history.lives)} processes, {commits} offsets committed"
    )
    yield f"{title}: {plural}, {len(history.reads)} looks at them"
    yield f"  {HEADER}"
    yield from (f"  {row_of(history, cause).line()}" for cause in TITLES)
