"""Cost of a record, counted in steps of the interpreter, so that a busy machine changes nothing."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import pytest

from rota_sidecar.core.ledger import ledger as ledger_module
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.ledger.steps import IN_ORDER, ack, batch, opened, take

Watch: TypeAlias = Callable[[FrameType, str, object], "Watch | None"]

FOLDER = str(Path(ledger_module.__file__).parent)
BATCHES = 100
BY_THEMSELVES = batch(0, keys="".join(chr(0x100 + number) for number in range(2_000)))
# Lines of ours for one record that goes by itself, there and back.
LINES_MAX = 300


def lines(work: Callable[[], None]) -> int:
    """Return the number of executed lines of the ledger."""
    count = 0

    def watch(frame: FrameType, event: str, _: object) -> Watch | None:
        nonlocal count
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        count += event == "line"
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def pass_through(ledger: Ledger, size: int) -> Callable[[], None]:
    """Batches of this size are read, handed out and acknowledged."""

    def work() -> None:
        for number in range(BATCHES):
            first = number * size
            ledger.fetched([batch(first, size)], first + size)
            assert sum(dispatch.count for dispatch in ledger.take(size, 1, 0, alone=False)) == size
            assert ledger.judge(first, first + size - 1, Verdict.ACK, 0).settled == size
            assert ledger.point.offset == first + size
            assert ledger.in_flight_since_ms is None

    return work


def test_in_order_a_batch_costs_the_same_whatever_is_in_it() -> None:
    assert lines(pass_through(opened(IN_ORDER), 500)) == lines(pass_through(opened(IN_ORDER), 5))


def test_in_order_a_batch_costs_the_same_however_many_were_there_before() -> None:
    ledger = opened(IN_ORDER)
    pass_through(ledger, 5)()
    begun = ledger.position

    def later() -> None:
        for first in range(begun, begun + 5 * BATCHES, 5):
            ledger.fetched([batch(first, 5)], first + 5)
            ledger.take(5, 1, 0, alone=False)
            ledger.judge(first, first + 4, Verdict.ACK, 0)

    once = lines(later)
    begun = ledger.position
    assert abs(lines(later) - once) <= BATCHES


@pytest.mark.parametrize("ordering", [Ordering.KEY, Ordering.UNORDERED])
def test_side_by_side_a_record_costs_the_same_however_many_are_in_hand(ordering: Ordering) -> None:
    costs = []
    for workers in (8, 800):
        ledger = opened(Rules(ordering=ordering), BY_THEMSELVES)
        held = take(ledger, workers)

        def one_by_one(ledger: Ledger = ledger, held: list[int] = held) -> None:
            for _ in range(100):
                ack(ledger, held.pop(len(held) // 2))
                held += take(ledger, 1)

        costs.append(lines(one_by_one) / 100)
    assert max(costs) < LINES_MAX
    assert costs[1] < 1.1 * costs[0]
