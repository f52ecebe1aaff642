"""The examples' manifests, on a laptop."""

from pathlib import Path

import pytest

from tests.examples import stories
from tests.examples.laptop import Laptop

pytestmark = pytest.mark.process


def test_every_order_has_its_price_once(tmp_path: Path) -> None:
    stories.every_order_has_its_price_once(Laptop("orders", tmp_path / ".rota", partitions=12))


def test_every_payment_has_one_receipt_whoever_is_killed(tmp_path: Path) -> None:
    laptop = Laptop("exactly-once", tmp_path / ".rota", partitions=6)
    stories.every_payment_has_one_receipt_whoever_is_killed(laptop)
