"""Counts what was sold and what has its price: none may be lost. Run it when the shop has closed."""

import json
import sys
from collections import Counter

import rota


def main() -> None:
    """Say it in a line; exit with 1 when an order has no price."""
    address = sys.argv[1]
    sold, priced = orders_in(address, "orders"), orders_in(address, "priced-orders")
    lost = len(sold.keys() - priced.keys())
    repeated = priced.total() - len(priced)
    print(f"produced {sold.total()}, processed {len(priced)}, lost {lost}, repeated {repeated}")
    sys.exit(1 if lost else 0)


def orders_in(address: str, topic: str) -> Counter[str]:
    """How often each is there."""
    with rota.Topics(address) as topics:
        (described,) = topics.describe([topic])
    positions = {(topic, number): 0 for number in range(described.partitions)}
    found: Counter[str] = Counter()
    with rota.LogReader(address) as reader:
        behind = True
        while behind:
            behind = False
            for fetched in reader.fetch(positions, max_wait_ms=0):
                found.update(json.loads(record.value or b"{}")["order"] for record in fetched)
                positions[fetched.topic, fetched.partition] = fetched.next_offset
                behind = behind or fetched.next_offset < fetched.high_watermark
    return found


if __name__ == "__main__":
    main()
