"""The example of transactions, on a laptop: every payment has one receipt, though everything is killed in between."""

from collections import Counter
from pathlib import Path

import pytest

from tests.examples.laptop import WITHIN_S, Laptop

pytestmark = pytest.mark.process

ENOUGH = 100


def receipts(laptop: Laptop) -> list[str]:
    """Of which payment each is."""
    return laptop.values_in("receipts", "payment")


def test_every_payment_has_one_receipt_whoever_is_killed(tmp_path: Path) -> None:
    laptop = Laptop("exactly-once", tmp_path / ".rota", partitions=6)
    killed = laptop.start("killed")
    killed.wait_until(lambda: len(receipts(laptop)) >= ENOUGH, within_s=WITHIN_S)
    paid = laptop.values_in("payments", "payment")
    killed.kill()
    last = laptop.start("last")
    last.wait_until(lambda: set(paid) <= set(receipts(laptop)), within_s=WITHIN_S)
    billed_times = Counter(receipts(laptop))
    assert [payment for payment in paid if billed_times[payment] != 1] == []
    last.stop(within_s=WITHIN_S)
    assert last.exit_code == 0
