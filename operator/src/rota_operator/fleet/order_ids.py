"""Ids of orders, unique over all lives of the operator; see docs/decisions/0019-fleet-orders-and-identity.md."""

from collections.abc import Iterator

# Orders carry a uint64.
IDS = 1 << 64


def order_ids(start: int) -> Iterator[int]:
    """Count from a random 64-bit `start` that the process draws once, modulo 2**64; 0 is skipped, it means "no id"."""
    number = start % IDS
    while True:
        if number:
            yield number
        number = (number + 1) % IDS
