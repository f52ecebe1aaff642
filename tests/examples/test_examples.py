"""The examples' manifests, on a laptop."""

import subprocess
import sys
from pathlib import Path

import pytest

import rota
from tests.examples import stories
from tests.examples.laptop import WITHIN_S, Laptop
from tests.support.coordinator import QUICK, serving
from tests.support.tree import REPO

pytestmark = pytest.mark.process


def test_every_order_has_its_price_once(tmp_path: Path) -> None:
    stories.every_order_has_its_price_once(Laptop("orders", tmp_path / ".rota", partitions=12))


def test_an_order_without_its_price_is_unprocessed_and_not_lost(tmp_path: Path) -> None:
    with serving(tmp_path, QUICK) as coordinator:
        servers = f"rota://{coordinator.address}"
        rota.create_topics(servers, {"orders": 2, "priced-orders": 1})
        with rota.Producer(servers) as producer:
            for topic, orders in (("orders", "abc"), ("priced-orders", "aab")):
                for order in orders:
                    producer.send(topic, b'{"order": "%s"}' % order.encode())
        done = subprocess.run(
            [sys.executable, REPO / "examples/orders/audit.py", servers],
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
    assert (done.returncode, done.stdout) == (1, "produced 3, processed 2, unprocessed 1, repeated 1\n")


def test_every_payment_has_one_receipt_whoever_is_killed(tmp_path: Path) -> None:
    laptop = Laptop("exactly-once", tmp_path / ".rota", partitions=6)
    stories.every_payment_has_one_receipt_whoever_is_killed(laptop)
