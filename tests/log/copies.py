"""The copy job: what is to be copied, and what is wrong with a copy. On Rota's log and on Kafka alike."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import rota
from rota.producer.futures import SendFuture

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


class Source(NamedTuple):
    """The source that a copy must be equal to, and the end offsets."""

    content: Content
    ends: Mapping[int, int]


def fill(address: str, topic: str, records: int) -> Source:
    """Write the source, with aborted transactions between the others."""
    content: dict[int, list[Pair]] = {index: [] for index in range(PARTITIONS)}
    last: dict[int, SendFuture] = {}
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
                    last[item % PARTITIONS] = producer.send(topic, value, key, partition=item % PARTITIONS)
                    content[item % PARTITIONS].append((key, value))
    return Source(content, {index: sent.result(WITHIN_S).offset + 1 for index, sent in last.items()})


def differences(source: Content, made: Content) -> list[str]:
    """Return the differences of a copy; an empty comparison is a difference, too."""
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
            index = next(i for i, (a, b) in enumerate(zip(expected, seen, strict=True)) if a != b)
            found.append(f"out of order: partition {partition} from record {index} on")
    return found


def _some(what: str, partition: int, pairs: Collection[Pair]) -> str:
    first, *_ = pairs
    return f"{what}: {len(pairs)} in partition {partition}, such as {first}"
