"""
A pod with an application that one record kills, each time, and a sidecar that dies with it, or does not.

The sidecar here does what the delivery core does with its ledgers: commits what they wait for at once and the rest now
and then, and offers to be alone to one of them at a time.
"""

from dataclasses import dataclass
from random import Random

from rota_sidecar.core.ledger.batches import Batch, Ordering
from rota_sidecar.core.ledger.commit_points import CommitPoint, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules, Verdict

RECORDS = 400
KEYS = 40
WORKERS = 16


@dataclass(frozen=True)
class Case:
    """Records that crash their application."""

    ordering: Ordering
    # The sidecar too; else the application alone.
    pod_dies: bool
    takes_many: bool = True
    partitions: int = 3


class Pod:
    """Outcome of a run."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.random = Random(seed)
        self.rules = Rules(
            ordering=case.ordering, takes_many=case.takes_many, retries=2, has_dead_letters=True
        )
        self.poison = (self.random.randrange(case.partitions), self.random.randrange(RECORDS))
        self.durable = [CommitPoint(0, "") for _ in range(case.partitions)]
        self.dead_letters: list[tuple[int, int]] = []
        self.done: set[tuple[int, int]] = set()
        self.deaths = 0
        self._start()

    def _start(self) -> None:
        self.ledgers = [
            Ledger(point.offset, self.rules, parse_commit_metadata(point.metadata)) for point in self.durable
        ]
        for ledger in self.ledgers:
            first = ledger.position
            if first < RECORDS:
                keys = [b"%d" % (offset % KEYS) for offset in range(RECORDS)]
                ledger.fetched([Batch(0, RECORDS, RECORDS, None, keys)], RECORDS)
        self._restart()

    def _restart(self) -> None:
        """Records of the application, and those that it completed without a verdict so far."""
        self.held: list[tuple[int, int]] = []
        self.unsaid: list[tuple[int, int]] = []
        self.quiet: Ledger | None = None

    def run(self, deaths_max: int) -> None:
        """Until everything is done."""
        while len(self.done) < RECORDS * self.case.partitions:
            self._commit()
            self._take()
            self._work()
            self._write_dead_letters()
            assert self.deaths <= deaths_max

    def _commit(self) -> None:
        for at, ledger in enumerate(self.ledgers):
            if ledger.awaits_commit or self.random.random() < 0.05:
                point = ledger.point
                assert all((at, offset) in self.done for offset in range(point.offset))
                self.durable[at] = point
                ledger.committed(point)

    def _take(self) -> None:
        if self.quiet is None or not self.quiet.wants_alone:
            self.quiet = next((ledger for ledger in self.ledgers if ledger.wants_alone), None)
        for at, ledger in enumerate(self.ledgers):
            if self.quiet not in (None, ledger):
                continue
            free = WORKERS - sum(each.lanes_busy for each in self.ledgers)
            alone = not any(each.in_flight for each in self.ledgers) and self.quiet is ledger
            for dispatch in ledger.take(self.random.randint(1, 100), free, 0, alone=alone):
                for batch_slice in dispatch.slices:
                    self.held += [(at, offset) for offset in range(batch_slice.first, batch_slice.end)]

    def _work(self) -> None:
        """Some records are done, and said to be so some time later; or the poison is taken up."""
        for _ in range(self.random.randint(1, 10)):
            doable = self._doable()
            if not doable:
                break
            chosen = self.random.choice(doable)
            if chosen == self.poison:
                self._die()
                return
            self.held.remove(chosen)
            self.unsaid.append(chosen)
        if self.random.random() < 0.5 or not self.held:
            for at, offset in self.unsaid:
                assert self.ledgers[at].judge(offset, offset, Verdict.ACK, 0).settled
            self.done.update(self.unsaid)
            self.unsaid.clear()

    def _doable(self) -> list[tuple[int, int]]:
        if self.case.ordering is not Ordering.PARTITION:
            return self.held
        first: dict[int, tuple[int, int]] = {}
        for each in self.held:
            first.setdefault(each[0], each)
        return list(first.values())

    def _die(self) -> None:
        self.deaths += 1
        if self.case.pod_dies:
            self._start()
            return
        for ledger in self.ledgers:
            ledger.application_gone(0, clean=False)
        self._restart()

    def _write_dead_letters(self) -> None:
        for at, ledger in enumerate(self.ledgers):
            for dead_letter in ledger.dead_letters():
                ledger.dead_letter_written(dead_letter.offset)
                self.dead_letters.append((at, dead_letter.offset))
                self.done.add((at, dead_letter.offset))
