"""
Known bugs of deliveries, each put into the shipping cores of the sidecar: the simulation must catch every one of them.

The bugs of members are in zoo_members.py, those of coordinators in zoo.py.
"""

from collections.abc import Sequence
from typing import Any

from rota_sidecar.core.delivery import commits, dispatch, initial_position, progress, revocation, verdicts
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.core import Core
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.ledger.commit_points import CommitPoint
from rota_sidecar.core.ledger.in_order import InOrder
from rota_sidecar.core.ledger.lanes import Lanes
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.outcomes import DueDeadLetter, Judged
from rota_sidecar.core.ledger.rules import Verdict
from tests.simulation.zoo_members import Bug, replaced


def commits_what_was_handed_out(self: Ledger) -> CommitPoint:
    return CommitPoint(self.dispatch_position, POINT(self).metadata)


def late_verdicts_count(core: Core, event: on.Judged) -> None:
    """For the ledger that the partition has now."""
    now = {}
    for judgement in event.judgements:
        partition_state = core.partition_states.get(judgement.partition)
        fetch_session = None if partition_state is None else partition_state.fetch_session
        now[judgement] = judgement.delivery_epoch if fetch_session is None else fetch_session.number
    renamed = [
        on.Judgement(ledger, each.partition, each.first, each.last, each.verdict)
        for each, ledger in now.items()
    ]
    JUDGED(core, on.Judged(renamed))


def passes_a_dead_letter_before_it_is_written(self: Ledger) -> Sequence[DueDeadLetter]:
    due = DEAD_LETTERS(self)
    for dead_letter in due:
        self.dead_letter_written(dead_letter.offset)
    return due


def gives_up_before_all_is_committed(core: Core, partition_state: PartitionState) -> bool:
    return True


def forgets_a_crash(self: Ledger, now_ms: int, *, clean: bool) -> None:
    """Count the records in flight as completed after a crash."""
    offset = self.dispatch_position
    GONE(self, now_ms, clean=True)
    self.settle_below(offset, now_ms)


def does_not_call_back(self: InOrder, partition_state: int) -> None:
    pass


def begins_where_reading_has_come_to(core: Core, partition_state: PartitionState, stored: on.Stored) -> None:
    BEGIN(core, partition_state, on.Stored(stored.offset + 1 if stored.offset >= 0 else -1, stored.metadata))


def skips_what_is_to_be_retried(
    self: Ledger,
    first: int,
    last: int,
    verdict: Verdict,
    now_ms: int,
    **options: Any,  # noqa: ANN401  as they come
) -> Judged:
    kind = Verdict.SKIP if verdict is Verdict.RETRY else verdict
    return JUDGE(self, first, last, kind, now_ms, **options)


# What is replaced, for those that only change a part of it.
POINT = Ledger.point.fget  # type: ignore[attr-defined]
JUDGED = verdicts.judged
DEAD_LETTERS = Ledger.dead_letters
GONE = Ledger.application_gone
BEGIN = initial_position._begin
JUDGE = Ledger.judge

ZOO_DELIVERIES: dict[str, Bug] = {
    "commits what was handed out": replaced(Ledger, "point", property(commits_what_was_handed_out)),
    "late verdicts count": replaced(verdicts, "judged", late_verdicts_count),
    "passes a letter before it is written": replaced(
        Ledger, "dead_letters", passes_a_dead_letter_before_it_is_written
    ),
    "gives up before all is committed": replaced(revocation, "_has_gone", gives_up_before_all_is_committed),
    "what a crashed application held is done": replaced(Ledger, "application_gone", forgets_a_crash),
    "those behind a retry stay in hand": replaced(InOrder, "call_back", does_not_call_back),
    "keys do not wait": replaced(Lanes, "_is_free", lambda self, partition_state, key: True),
    "begins behind what is committed": replaced(initial_position, "_begin", begins_where_reading_has_come_to),
    "a retry is a skip": replaced(Ledger, "judge", skips_what_is_to_be_retried),
    "a hung application keeps its partitions": replaced(progress, "check", lambda core: None),
    "credit is endless": replaced(dispatch, "_budget", lambda core: 1_000),
    "nothing is committed": replaced(commits, "own_point", lambda core, partition_state: None),
}
# Where to begin to look: the first seeds that meet what these need.
HINTS_OF_DELIVERIES = {
    "late verdicts count": 68,
    "gives up before all is committed": 14,
    "those behind a retry stay in hand": 23,
    "a hung application keeps its partitions": 4,
}
