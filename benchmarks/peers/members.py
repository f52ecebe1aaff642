"""Members of a benchmark's groups, which join, heartbeat and rejoin like clients."""

import asyncio
from collections.abc import Iterable, Sequence

from benchmarks.peers.voice import TOPIC, Joined, Voice, check
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import assignment, subscription

RETRY_S = 0.1
FORMED_S = 60
NOT_YET = (pb.COORDINATOR_LOAD_IN_PROGRESS, pb.COORDINATOR_NOT_AVAILABLE, pb.NOT_COORDINATOR)


async def enter(voice: Voice, metadata: bytes) -> Joined:
    """Run both steps of a dynamic member's first join."""
    first = await voice.join("", metadata)
    # A broker creates its internal topic at the first request about groups.
    while first.error in NOT_YET:
        await asyncio.sleep(RETRY_S)
        first = await voice.join("", metadata)
    if first.error != pb.MEMBER_ID_REQUIRED:
        check(first.error, "the first step of a join")
    joined = await voice.join(first.member_id, metadata)
    check(joined.error, "a join")
    return joined


async def gather(voices: Sequence[Voice], partitions_each: int) -> list[Joined]:
    """Form one group in one round; member n is assigned the n-th range of the topic's partitions."""
    metadata = subscription(TOPIC)
    async with asyncio.timeout(FORMED_S):
        joined = await asyncio.gather(*(enter(voice, metadata) for voice in voices))
    generations = {each.generation for each in joined}
    if len(generations) != 1:
        raise RuntimeError(f"the group needed the generations {generations}; lengthen the initial delay")
    parts = {
        each.member_id: assignment(*part(number, partitions_each), topic=TOPIC)
        for number, each in enumerate(joined)
    }
    errors = await asyncio.gather(
        *(voice.sync(each, parts if each.leads else {}) for voice, each in zip(voices, joined, strict=True))
    )
    for error in errors:
        check(error, "a sync")
    return joined


def part(number: int, partitions_each: int) -> range:
    """Return the partitions of the n-th member."""
    return range(number * partitions_each, (number + 1) * partitions_each)


class Crew:
    """Members that behave like clients: they heartbeat, and rejoin as soon as they learn of a rebalance."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._stable: dict[int, set[str]] = {}
        self._changed = asyncio.Event()
        self._nudged = asyncio.Event()
        # Metadata of all members in their next join.
        self._metadata = subscription(TOPIC)

    def send(self, voices: Iterable[Voice]) -> None:
        """Start the members, which join the group."""
        self._tasks += [asyncio.create_task(self._live(voice)) for voice in voices]

    def change(self, number: int) -> None:
        """Let all members rejoin at once with changed metadata, so that each join requires a rebalance."""
        self._metadata = subscription(TOPIC, user_data=number.to_bytes(4))
        nudged, self._nudged = self._nudged, asyncio.Event()
        nudged.set()

    async def all_stable(self, within_s: float) -> None:
        """Wait until all members have an assignment in the newest generation."""
        async with asyncio.timeout(within_s):
            while len(self._stable.get(max(self._stable, default=0), ())) != len(self._tasks):
                self._check()
                self._changed.clear()
                await self._changed.wait()

    def begin_anew(self) -> None:
        """Ignore the present generation: `all_stable` then waits for a later one."""
        self._stable.clear()

    async def dismiss(self) -> None:
        """Stop all members without leaving the group."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def _live(self, voice: Voice) -> None:
        try:
            joined = await enter(voice, self._metadata)
            while True:
                if await sync(voice, joined):
                    self._stable.setdefault(joined.generation, set()).add(joined.member_id)
                    self._changed.set()
                    await self._must_join(voice, joined)
                joined = await voice.join(joined.member_id, self._metadata)
                check(joined.error, "a join")
        finally:
            # Wakes `all_stable`, which raises the error of the member.
            self._changed.set()

    async def _must_join(self, voice: Voice, joined: Joined) -> None:
        """Wait until the coordinator or the benchmark requests a rejoin."""
        ways = [asyncio.ensure_future(self._nudged.wait()), asyncio.ensure_future(voice.must_join(joined))]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in done:
                way.result()
        finally:
            for way in ways:
                way.cancel()


async def sync(voice: Voice, joined: Joined) -> bool:
    """Send SyncGroup, as leader with an assignment for each member. Return False if another rebalance has begun."""
    parts = {member_id: assignment(number, topic=TOPIC) for number, member_id in enumerate(joined.members)}
    error = await voice.sync(joined, parts if joined.leads else {})
    if error == pb.REBALANCE_IN_PROGRESS:
        return False
    check(error, "a sync")
    return True
