"""
One copier of the copy job on Rota's log, as a process: a member of a group, each of whose transactions copies a few
hundred records and commits the offsets behind them.

It says what it does, a line for each event, and stops itself (SIGSTOP) in mid-transaction where it is told to. When the
server is gone it waits for it, and joins anew. Run as `python -m tests.log.copy_worker`.
"""

import argparse
import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import rota
from rota import errors
from rota.log_reader import END
from tests.log.copies import PARTITIONS, POINTS, copy
from tests.support.member import GroupMember, Partition, in_turn, member

GROUP = "copiers"
SOURCE = "originals"
TARGET = "copies"
ALL = [(SOURCE, index) for index in range(PARTITIONS)]
# One batch of each partition: there is always one, however large.
PAGE_BYTES = 1
# The transaction is not this copier's to end any more: somebody else owns the partitions, or its transactional id.
LATE = (
    errors.UnknownMemberId,
    errors.IllegalGeneration,
    errors.RebalanceInProgress,
    errors.FencedInstanceId,
    errors.ProducerFenced,
)


def say(event: str, *facts: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, (event, *facts))) + "\n")
    sys.stdout.flush()


@dataclass(slots=True)
class Copier:
    """A copier, over all its memberships."""

    reader: rota.LogReader
    new_producer: Callable[[], rota.Producer]
    stop_at: str
    # Transactions until it stops.
    stop_after: int
    _producer: rota.Producer = field(init=False)

    def __post_init__(self) -> None:
        self._start_producer()

    def _start_producer(self) -> None:
        """Also ends what a former one with its transactional id has left open."""
        self._producer = self.new_producer()
        self._producer.init_transactions()

    async def work(self, by_hand: GroupMember) -> None:
        """As this member, until everything is copied, or its name is another's."""
        is_done = False
        while not is_done:
            partitions = await by_hand.join()
            say("assigned", by_hand.metadata.generation_id, len(partitions))
            positions = dict.fromkeys(partitions, 0) | await by_hand.fetch(partitions)
            try:
                is_done = await self.copy_all(by_hand, positions)
            except LATE as refused:
                say("refused", refused.name, refused)
                if isinstance(refused, errors.FencedInstanceId):
                    # Another process has this one's name: to join again would only throw that one out.
                    return
                if refused.fatal:
                    self._producer.close()
                    await asyncio.to_thread(self._start_producer)
            if not is_done:
                await by_hand.rebalancing.wait()
        await by_hand.leave()

    async def copy_all(self, by_hand: GroupMember, positions: dict[Partition, int]) -> bool:
        """Until there is nothing left to do for this member; whether there is nothing for anybody."""
        ends = await asyncio.to_thread(self.reader.offsets_at, ALL, END)
        while any(positions[each] < ends[rota.TopicPartition(*each)] for each in positions):
            if by_hand.rebalancing.is_set():
                return False
            positions |= await asyncio.to_thread(self.copy_some, by_hand, positions)
            say("copied", sum(positions.values()))
        return await by_hand.fetch(ALL) == ends

    def copy_some(self, by_hand: GroupMember, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """One transaction; the positions after it."""
        found = self.reader.fetch(positions, max_wait_ms=0, partition_max_bytes=PAGE_BYTES)
        for part in found:
            if part.error is not None:
                raise part.error
        records = [(part.partition, (record.key, record.value)) for part in found for record in part]
        after = {(part.topic, part.partition): part.next_offset for part in found}
        self.stop_after -= 1
        copy(self._producer, TARGET, records, (after, by_hand.metadata), self.stop_if_told)
        return after

    def stop_if_told(self, point: str) -> None:
        if point == self.stop_at and self.stop_after <= 0:
            self.stop_at = ""
            say("stopping", point)
            # This very thread, so that it does not go on until another one has taken the signal.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def close(self) -> None:
        self._producer.close()


async def stay(copier: Copier, address: str, instance_id: str | None, session_ms: int) -> None:
    """Be a member again whenever the server was gone."""
    is_done = False
    while not is_done:
        try:
            async with member(
                address, GROUP, in_turn(ALL), instance_id=instance_id, session_ms=session_ms
            ) as by_hand:
                await copier.work(by_hand)
            is_done = True
        except (ConnectionError, TimeoutError, errors.Disconnected, errors.TimedOut) as gone:
            say("gone", gone)
            # Asks until it is answered.
            with rota.Topics(f"rota://{address}") as topics:
                await asyncio.to_thread(topics.describe)
    say("done")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--transaction-timeout-ms", type=int, default=60_000)
    parser.add_argument("--instance", help="a static member, whose place a later one takes at once")
    parser.add_argument("--session-ms", type=int, default=6_000)
    parser.add_argument("--stop-at", choices=POINTS, default="")
    parser.add_argument("--stop-after", type=int, default=0, help="in which transaction, at the earliest")
    options = parser.parse_args()
    address = f"rota://{options.coordinator}"

    def new_producer() -> rota.Producer:
        return rota.Producer(
            address,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
        )

    with rota.LogReader(address, read_committed=True) as reader:
        copier = Copier(reader, new_producer, options.stop_at, options.stop_after)
        asyncio.run(stay(copier, options.coordinator, options.instance, options.session_ms))
        copier.close()


if __name__ == "__main__":
    main()
