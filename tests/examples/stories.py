"""Scenarios of the examples, the same on every engine."""

from collections import Counter

from tests.examples.laptop import WITHIN_S, Laptop

ENOUGH = 100


def every_order_has_its_price_once(laptop: Laptop) -> None:
    """Over a clean stop, and a new start."""
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


def every_payment_has_one_receipt_whoever_is_killed(laptop: Laptop) -> None:
    """Everything is, in the midst of it."""

    def receipts() -> list[str]:
        return laptop.values_in("receipts", "payment")

    killed = laptop.start("killed")
    killed.wait_until(lambda: len(receipts()) >= ENOUGH, within_s=WITHIN_S)
    paid = laptop.values_in("payments", "payment")
    killed.kill()
    last = laptop.start("last")
    last.wait_until(lambda: set(paid) <= set(receipts()), within_s=WITHIN_S)
    billed_times = Counter(receipts())
    assert [payment for payment in paid if billed_times[payment] != 1] == []
    last.stop(within_s=WITHIN_S)
    assert last.exit_code == 0
