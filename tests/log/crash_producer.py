"""
A producer that may be killed at any moment: it begins anew where its event log ends.

Run as `python -m tests.log.crash_producer`. A record is acknowledged when the event log says so.
"""

import argparse
import os
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import rota
from rota.producer.futures import SendFuture
from tests.log.crash_history import CHUNKS_OF_A_LIFE, Sent, Word, lines_of

TOPIC = "crashes"
PARTITIONS = 3
CHUNK = 250
# Chunks under way together.
WINDOW = 4
ABORTED = 0.2
WITHIN_S = 60


class EventLog:
    """Event log of a producer; each line is one write, which a kill of the process does not undo."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        before = lines_of(path)
        self.life = 1 + sum(line.word == "life" for line in before)
        self.position = max((line.end for line in before if line.word == "done"), default=0)
        self.note("life", self.life * CHUNKS_OF_A_LIFE, self.position, self.position)

    def note(self, word: Word, chunk: int, first: int, end: int) -> None:
        """Write it down."""
        os.write(self._file, f"{word} {chunk} {first} {end}\n".encode())


def send(producer: rota.Producer, name: str, chunk: int, items: range) -> list[SendFuture]:
    """Each item has its partition."""
    return [
        producer.send(TOPIC, Sent(name, chunk, item).value(), partition=item % PARTITIONS) for item in items
    ]


def produce(producer: rota.Producer, name: str, event_log: EventLog, records: int) -> None:
    """Send, and await what was sent some chunks ago."""
    waiting: deque[tuple[int, range, Sequence[SendFuture]]] = deque()
    first, chunk = event_log.position, event_log.life * CHUNKS_OF_A_LIFE
    while first < records or waiting:
        if first < records and len(waiting) < WINDOW:
            items = range(first, min(first + CHUNK, records))
            waiting.append((chunk, items, send(producer, name, chunk, items)))
            first, chunk = items.stop, chunk + 1
            continue
        sent, items, futures = waiting.popleft()
        for future in futures:
            future.result(WITHIN_S)
        event_log.note("done", sent, items.start, items.stop)


def produce_transactions(
    producer: rota.Producer, name: str, event_log: EventLog, records: int, chance: random.Random
) -> None:
    """A chunk is a transaction; some of them are aborted."""
    producer.init_transactions()
    first, chunk = event_log.position, event_log.life * CHUNKS_OF_A_LIFE
    while first < records:
        items = range(first, min(first + CHUNK, records))
        producer.begin_transaction()
        send(producer, name, chunk, items)
        # Others write meanwhile, behind its first record.
        producer.flush(WITHIN_S)
        if chance.random() < ABORTED:
            event_log.note("abort", chunk, items.start, items.stop)
            producer.abort_transaction()
        else:
            event_log.note("commit", chunk, items.start, items.stop)
            producer.commit_transaction()
            event_log.note("done", chunk, items.start, items.stop)
            first = items.stop
        chunk += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--event-log", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--transactional", action="store_true")
    parser.add_argument("--seed", required=True)
    options = parser.parse_args()
    event_log = EventLog(options.event_log)
    if options.transactional:
        chance = random.Random(f"{options.seed}/{event_log.life}")
        with rota.Producer(options.address, transactional_id=options.name) as producer:
            produce_transactions(producer, options.name, event_log, options.records, chance)
    else:
        with rota.Producer(options.address) as producer:
            produce(producer, options.name, event_log, options.records)


if __name__ == "__main__":
    main()
