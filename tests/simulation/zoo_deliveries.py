"""
Known bugs of deliveries, each put into the shipping cores of the sidecar: the simulation must catch every one of them.

The bugs of members are in zoo_members.py, those of coordinators in zoo.py.
"""

from collections.abc import Sequence
from typing import Any

from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.delivery import Core
from rota_sidecar.core.delivery.dispatch import Dispatcher
from rota_sidecar.core.delivery.membership import Membership
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.ledger.batches import DueDeadLetter, Judged
from rota_sidecar.core.ledger.commit_points import CommitPoint
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.orders import InOrder, Lanes
from rota_sidecar.core.ledger.rules import Verdict
from tests.simulation.zoo_members import Bug, replaced


def commits_what_was_handed_out(self: Ledger) -> CommitPoint:
    return CommitPoint(self.dispatch_position, POINT(self).metadata)


def late_verdicts_count(self: Core, event: on.Judged) -> None:
    """For the ledger that the partition has now."""
    now = {}
    for judgement in event.judgements:
        partition_state = self.partition_states.get(judgement.partition)
        session = None if partition_state is None else partition_state.session
        now[judgement] = judgement.delivery_epoch if session is None else session.number
    renamed = [
        on.Judgement(ledger, each.partition, each.first, each.last, each.verdict)
        for each, ledger in now.items()
    ]
    JUDGED(self, on.Judged(renamed))


def passes_a_dead_letter_before_it_is_written(self: Ledger) -> Sequence[DueDeadLetter]:
    due = DEAD_LETTERS(self)
    for dead_letter in due:
        self.dead_letter_written(dead_letter.offset)
    return due


def gives_up_before_all_is_committed(self: PartitionState) -> bool:
    return True


def forgets_a_crash(self: Ledger, now_ms: int, *, clean: bool) -> None:
    """Count the records in flight as completed after a crash."""
    offset = self.dispatch_position
    GONE(self, now_ms, clean=True)
    self.settle_below(offset, now_ms)


def does_not_call_back(self: InOrder, partition_state: int) -> None:
    pass


def begins_where_reading_has_come_to(self: PartitionState, stored: on.Stored) -> None:
    BEGIN(self, on.Stored(stored.offset + 1 if stored.offset >= 0 else -1, stored.metadata))


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
JUDGED = Core._judged
DEAD_LETTERS = Ledger.dead_letters
GONE = Ledger.application_gone
BEGIN = PartitionState._begin
JUDGE = Ledger.judge

ZOO_DELIVERIES: dict[str, Bug] = {
    "commits what was handed out": replaced(Ledger, "point", property(commits_what_was_handed_out)),
    "late verdicts count": replaced(Core, "_judged", late_verdicts_count),
    "passes a letter before it is written": replaced(
        Ledger, "dead_letters", passes_a_dead_letter_before_it_is_written
    ),
    "gives up before all is committed": replaced(
        PartitionState, "is_releasable", property(gives_up_before_all_is_committed)
    ),
    "what a crashed application held is done": replaced(Ledger, "application_gone", forgets_a_crash),
    "those behind a retry stay in hand": replaced(InOrder, "call_back", does_not_call_back),
    "keys do not wait": replaced(Lanes, "_is_free", lambda self, partition_state, key: True),
    "begins behind what is committed": replaced(PartitionState, "_begin", begins_where_reading_has_come_to),
    "a retry is a skip": replaced(Ledger, "judge", skips_what_is_to_be_retried),
    "a hung application keeps its partitions": replaced(
        Membership, "check_progress", lambda self, unacknowledged_since_ms: None
    ),
    "credit is endless": replaced(Dispatcher, "_budget", lambda self: 1_000),
    "nothing is committed": replaced(PartitionState, "_own_point", lambda self: None),
}
# Where to begin to look: the first seeds that meet what these need.
HINTS_OF_DELIVERIES = {
    "late verdicts count": 68,
    "gives up before all is committed": 14,
    "those behind a retry stay in hand": 29,
    "a hung application keeps its partitions": 4,
}
