"""
The copy job: what is to be copied, how one transaction of it goes, and what is wrong with a copy.

On Rota's log and on Kafka alike; the copiers are `tests.log.copy_worker` and `tests.kafka.copy_worker`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import rota
from rota import GroupMetadata
from rota.offsets import Offsets

PARTITIONS = 2
KEYS = 97
# Records in a transaction of the source. Every so many of them are aborted, so that offsets have gaps.
CHUNK = 500
ABORTED_EACH = 5
WITHIN_S = 60

Pair = tuple[bytes | None, bytes | None]
"""Key and value."""
Content = Mapping[int, Sequence[Pair]]
"""By partition, in order."""
# Where a copier can stop in mid-transaction: its records are in the log; the group's offsets are part of it too.
POINTS = ("produced", "offered")


def fill(address: str, topic: str, records: int) -> Content:
    """Write the source, with aborted transactions between the others; what a copy must be equal to."""
    content: dict[int, list[Pair]] = {index: [] for index in range(PARTITIONS)}
    with rota.Producer(address, transactional_id=f"source-of-{topic}") as producer:
        producer.init_transactions()
        chunks = [range(first, min(first + CHUNK, records)) for first in range(0, records, CHUNK)]
        for number, chunk in enumerate(chunks):
            if number % ABORTED_EACH == 0:
                producer.begin_transaction()
                producer.send(topic, b"aborted", partition=number % PARTITIONS)
                producer.flush(WITHIN_S)
                producer.abort_transaction()
            with producer.transaction():
                for item in chunk:
                    key, value = b"%d" % (item % KEYS), b"%d" % item
                    producer.send(topic, value, key, partition=item % PARTITIONS)
                    content[item % PARTITIONS].append((key, value))
    return content


def copy(
    producer: rota.Producer,
    topic: str,
    records: Iterable[tuple[int, Pair]],
    offsets: tuple[Offsets, GroupMetadata],
    reached: Callable[[str], None],
) -> None:
    """One transaction: records, each to the partition of its own number, and the offsets behind them."""
    with producer.transaction():
        for partition, (key, value) in records:
            producer.send(topic, value, key, partition=partition)
        producer.flush(WITHIN_S)
        reached("produced")
        producer.send_offsets_to_transaction(*offsets)
        reached("offered")


def differences(source: Content, made: Content) -> list[str]:
    """What is wrong with a copy; a comparison of nothing is wrong too."""
    if not any(source.values()):
        return ["the source is empty: nothing was compared"]
    found: list[str] = []
    for partition in sorted({*source, *made}):
        expected, seen = source.get(partition, ()), made.get(partition, ())
        missing, surplus = Counter(expected) - Counter(seen), Counter(seen) - Counter(expected)
        if missing:
            found.append(_some("missing", partition, list(missing.elements())))
        if surplus:
            found.append(_some("too many", partition, list(surplus.elements())))
        if not missing and not surplus and list(expected) != list(seen):
            place = next(i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if a != b)
            found.append(f"out of order: partition {partition} from record {place} on")
    return found


def _some(what: str, partition: int, pairs: Collection[Pair]) -> str:
    first, *_ = pairs
    return f"{what}: {len(pairs)} in partition {partition}, such as {first}"
