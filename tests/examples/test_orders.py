"""The orders example, on a laptop: every order has its price, once, over a clean stop and a new start."""

from collections import Counter
from pathlib import Path

import pytest

from tests.examples.laptop import WITHIN_S, Laptop

pytestmark = pytest.mark.process

ENOUGH = 100


def test_every_order_has_its_price_once(tmp_path: Path) -> None:
    laptop = Laptop("orders", tmp_path / ".rota", partitions=12)
    first = laptop.start("first")
    first.wait_until(lambda: len(laptop.values_in("priced-orders", "order")) >= ENOUGH, within_s=WITHIN_S)
    sold = laptop.values_in("orders", "order")
    first.stop(within_s=WITHIN_S)
    assert first.exit_code == 0

    second = laptop.start("second")
    second.wait_until(lambda: set(sold) <= set(laptop.values_in("priced-orders", "order")), within_s=WITHIN_S)
    priced = Counter(laptop.values_in("priced-orders", "order"))
    assert [order for order in sold if priced[order] != 1] == []
    second.stop(within_s=WITHIN_S)
    assert second.exit_code == 0
    # Nobody fell and had to be started again.
    assert all("started again" not in each.log.read_text() for each in (first, second))
