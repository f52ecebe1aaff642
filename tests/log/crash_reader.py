"""
Reads the topic of the crashing producers at read_committed, all the time, and writes down what it gets and when.

Run as `python -m tests.log.crash_reader`; it reads to the end, and ends, once the file `--finish` is there.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import rota
from rota.connection import retry_until
from rota.log_reader import END, AsyncLogReader
from tests.log.crash_history import Fetch, Sent
from tests.log.crash_producer import PARTITIONS, TOPIC

WITHIN_S = 60
WAIT_MS = 100


def fetches_in(file: Path) -> Iterator[Fetch]:
    """Return the fetches in a reader's event log."""
    with file.open() as lines:
        for line in lines:
            partition, next_offset, stable, event_log_size, values = json.loads(line)
            sent = [Sent.of(value.encode()) for value in values]
            yield Fetch(partition, next_offset, stable, event_log_size, sent)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--event-log", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--finish", type=Path, required=True)
    options = parser.parse_args()
    clock = asyncio.get_running_loop().time
    reader = AsyncLogReader(options.address, read_committed=True)
    offsets = {rota.TopicPartition(TOPIC, index): 0 for index in range(PARTITIONS)}
    with options.output.open("w") as output:
        while True:
            is_last = options.finish.exists()
            found = await retry_until(
                lambda: reader.fetch(offsets, max_wait_ms=WAIT_MS),
                deadline_s=clock() + WITHIN_S,
                clock=clock,
            )
            size = options.event_log.stat().st_size if options.event_log.exists() else 0
            for part in found:
                if part.error is not None:
                    raise part.error
                offsets[rota.TopicPartition(TOPIC, part.partition)] = part.next_offset
                values = [(record.value or b"").decode() for record in part]
                json.dump((part.partition, part.next_offset, part.last_stable_offset, size, values), output)
                output.write("\n")
            if is_last and offsets == await reader.offsets_at(offsets, END):
                break
    await reader.close()


if __name__ == "__main__":
    asyncio.run(main())
