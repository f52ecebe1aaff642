"""Members of a benchmark: they form a group, and stay in it as clients do."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.peers.voice import TOPIC, Joined, Voice, check
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import assignment, subscription

RETRY_S = 0.1
FORMED_S = 60
NOT_YET = (pb.COORDINATOR_LOAD_IN_PROGRESS, pb.COORDINATOR_NOT_AVAILABLE, pb.NOT_COORDINATOR)


async def enter(voice: Voice, metadata: bytes) -> Joined:
    """Both steps of a dynamic member's first join."""
    first = await voice.join("", metadata)
    # A broker that is asked for groups for the first time prepares itself.
    while first.error in NOT_YET:
        await asyncio.sleep(RETRY_S)
        first = await voice.join("", metadata)
    if first.error != pb.MEMBER_ID_REQUIRED:
        check(first.error, "the first step of a join")
    joined = await voice.join(first.member_id, metadata)
    check(joined.error, "a join")
    return joined


async def gather(voices: Sequence[Voice], partitions_each: int) -> list[Joined]:
    """Form one group in one round; member n gets the n-th stretch of the topic's partitions."""
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
    """The partitions of the n-th member."""
    return range(number * partitions_each, (number + 1) * partitions_each)


@dataclass(slots=True)
class Board:
    """Who is stable in which generation."""

    _stable: dict[int, set[str]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def stable(self, joined: Joined) -> None:
        """A member has its part."""
        self._stable.setdefault(joined.generation, set()).add(joined.member_id)
        self._changed.set()

    async def all_stable(self, count: int) -> None:
        """Return when the newest generation is that of so many members, and all have their part."""
        while not self._stable or len(self._stable[max(self._stable)]) != count:
            self._changed.clear()
            await self._changed.wait()


async def live(voice: Voice, board: Board, metadata: bytes) -> None:
    """A member from its first join on: it heartbeats, and joins again when it is told to."""
    joined = await enter(voice, metadata)
    while True:
        if await sync(voice, joined):
            board.stable(joined)
            await voice.must_join(joined)
        joined = await voice.join(joined.member_id, metadata)
        check(joined.error, "a join")


async def sync(voice: Voice, joined: Joined) -> bool:
    """Get one's part; the leader gives everybody one. False when another round began meanwhile."""
    parts = {member_id: assignment(number, topic=TOPIC) for number, member_id in enumerate(joined.members)}
    error = await voice.sync(joined, parts if joined.leads else {})
    if error == pb.REBALANCE_IN_PROGRESS:
        return False
    check(error, "a sync")
    return True
