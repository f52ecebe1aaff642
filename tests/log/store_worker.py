"""
One owner of the store job, as a process: adds up what the records of its partitions hold, in PostgreSQL.

It says what it does, a line for each event, and stops itself (SIGSTOP) in mid-transaction where it is told to, so that
the test knows where it stands. Run as `python -m tests.log.store_worker`, with the database in STORE_JOB_DSN.
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import psycopg

from rota import LogReader
from rota.stores import Partition, SqlStore, StoreFenced, Tenure
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.support.member import GroupMember, in_turn, member

TOPIC = "orders"
PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]
RECORDS = 400
BATCH = 10
KEYS = 3
SESSION_MS = 2_000
# Where a worker can stop: its transaction is open, and holds no lock yet; its results are written, and their rows locked.
POINTS = ("begun", "written")
# Of a commit to the group by who is no member of this generation any more.
LATE = {pb.ILLEGAL_GENERATION, pb.UNKNOWN_MEMBER_ID, pb.REBALANCE_IN_PROGRESS}


def totals(records: Iterable[tuple[Partition, int, int]]) -> dict[str, int]:
    """The values of records (partition, offset, value), added up under some keys of each partition."""
    sums: dict[str, int] = {}
    for (_, index), offset, value in records:
        key = f"{index}/{offset % KEYS}"
        sums[key] = sums.get(key, 0) + value
    return sums


def say(event: str, *facts: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, (event, *facts))) + "\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Worker:
    """An owner."""

    member: GroupMember
    connection: "psycopg.Connection[tuple[object, ...]]"
    store: SqlStore
    reader: LogReader
    rounds: int
    stop_at: str
    # Transactions until it stops.
    stop_after: int

    async def work(self) -> None:
        """Until all records of all partitions are added up."""
        for _ in range(self.rounds):
            await self.member.join()
        while True:
            tenure = await self.take()
            try:
                if tenure is not None and await self.do_all(tenure):
                    break
            except StoreFenced as fenced:
                say("fenced", fenced)
            await self.member.rebalancing.wait()
            await self.member.join()
        await self.member.leave()
        say("done")

    async def take(self) -> Tenure | None:
        """Fence first, then the positions; the group's own offsets follow them. None for who is late already."""
        group = self.member.metadata
        try:
            tenure = await asyncio.to_thread(self.store.assign, group, self.member.partitions)
        except StoreFenced as fenced:
            say("fenced", fenced)
            return None
        await self.follow(known(tenure.positions))
        say("assigned", group.incarnation, group.generation_id, *sorted(tenure.positions.items()))
        return tenure

    async def do_all(self, tenure: Tenure) -> bool:
        """One batch of each partition in turn; whether there is nothing left to do for anybody."""
        while left := [each for each in PARTITIONS if (tenure.positions.get(each, RECORDS) or 0) < RECORDS]:
            for partition in left:
                if self.member.rebalancing.is_set():
                    return False
                await asyncio.to_thread(self.do_batch, tenure, partition)
                await self.follow({partition: tenure.positions[partition] or 0})
        stored = await asyncio.to_thread(self.store.stored_offsets, tenure.group.group_id)
        return stored == dict.fromkeys(PARTITIONS, RECORDS)

    def do_batch(self, tenure: Tenure, partition: Partition) -> None:
        start = tenure.positions[partition] or 0
        end = min(start + BATCH, RECORDS)
        with self.store.transaction(tenure) as tx:
            self.stop_after -= 1
            self.stop_if_told("begun", partition, start)
            for key, value in sorted(totals(self.records(partition, start, end)).items()):
                self.connection.execute(
                    "INSERT INTO totals VALUES (%s, %s) "
                    "ON CONFLICT (key) DO UPDATE SET value = totals.value + excluded.value",
                    (key, value),
                )
            self.stop_if_told("written", partition, start)
            tx.save({partition: end})
        say("kept", partition, end)

    def records(self, partition: Partition, start: int, end: int) -> Iterator[tuple[Partition, int, int]]:
        """What lies there in the log: partition, offset, value."""
        for batch in self.reader.read(*partition, start, end):
            for record in batch:
                if record.offset < end:
                    yield partition, record.offset, int(record.value or b"")

    async def follow(self, offsets: Mapping[Partition, int]) -> None:
        """The store is the truth; the group's offsets are for those who look on."""
        if offsets:
            errors = await self.member.commit(offsets)
            assert errors <= {pb.NONE, *LATE}, errors

    def stop_if_told(self, point: str, partition: Partition, offset: int) -> None:
        if (point, self.stop_after) == (self.stop_at, 0):
            say("stopping", point, partition, offset)
            # This very thread, so that it does not go on until another one has taken the signal.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def known(positions: Mapping[Partition, int | None]) -> dict[Partition, int]:
    """Those that the store has."""
    return {partition: offset for partition, offset in positions.items() if offset is not None}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--rounds", type=int, default=1, help="how often to join before the first batch")
    parser.add_argument("--stop-at", choices=POINTS, default="")
    parser.add_argument("--stop-after", type=int, default=0, help="in which transaction")
    options = parser.parse_args()
    with (
        psycopg.connect(os.environ["STORE_JOB_DSN"]) as connection,
        LogReader(f"rota://{options.coordinator}") as reader,
    ):
        async with member(
            options.coordinator, options.group, in_turn(PARTITIONS), session_ms=SESSION_MS
        ) as by_hand:
            await Worker(
                by_hand,
                connection,
                SqlStore(connection),
                reader,
                options.rounds,
                options.stop_at,
                options.stop_after,
            ).work()


if __name__ == "__main__":
    asyncio.run(main())
