"""
Measure what many groups, and many members of one group, cost a coordinator.

All clients run on the background loop of the SDK, which the sidecars' consumers use too: gRPC's poller calls loops that were closed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.peers import rota
from benchmarks.peers.growing import Cost
from benchmarks.peers.members import Crew
from benchmarks.peers.voice import TOPIC, Joined, check
from benchmarks.sidecar import memory
from rota.connection import background
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.support.coordinator import Coordinator
from tests.support.processes import processor_s
from tests.support.workdir import workdir

CONNECTIONS = 10
# Commits in flight on each of them.
TOGETHER = 10
# Identity of a commit from outside a group: no generation and no member id.
NO_MEMBER = Joined(pb.NONE, -1, "", "", ())
# Members of one stream, and so of one connection.
SHARED = 50
STABLE_S = 600
# A round of few members takes less than the system counts: it is repeated until so many members have rejoined.
REJOINS = 500


def groups(count: int, commits: int) -> list[Cost]:
    """Measure commits of one partition each that are spread over groups, and the coordinator that has all these groups."""
    with workdir("groups") as folder:
        coordinator = Coordinator(folder, ())
        coordinator.start()
        coordinator.make_topic(TOPIC, partitions=1)
        before_s = processor_s(coordinator.pid)
        background().run(commit_all(coordinator.address, count, commits))
        used_s = processor_s(coordinator.pid) - before_s
        mebibytes = memory(coordinator.pid)
        coordinator.stop()
        began = time.perf_counter()
        coordinator.start()
        started_s = time.perf_counter() - began
        coordinator.stop()
    return [
        Cost(f"processor time of {commits:,} commits", used_s, "s"),
        Cost("memory", mebibytes, "MiB"),
        Cost("from its start until it serves", started_s, "s"),
    ]


async def commit_all(address: str, groups: int, commits: int) -> None:
    """Send commits to all groups in turn; the first commit of each creates it."""
    numbers = iter(range(commits))

    async def commit(stream: rota.Stream) -> None:
        # All tasks share the iterator, so each commit is sent once.
        for number in numbers:
            request = rota.commit_request(f"group-{number % groups}", NO_MEMBER, [0])
            answer = (await stream.ask(commit_offsets=request)).commit_offsets
            for topic in answer.topics:
                for partition in topic.partitions:
                    check(partition.error_code, "a commit")

    async with streams(address, CONNECTIONS) as found:
        await asyncio.gather(*(commit(stream) for stream in found for _ in range(TOGETHER)))


@asynccontextmanager
async def streams(address: str, count: int) -> AsyncIterator[Sequence[rota.Stream]]:
    """Open streams, each with its own connection."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(count):
            connection = rota.channel(address)
            stack.push_async_callback(connection.close)
            stream = rota.Stream(connection)
            stack.callback(stream.close)
            found.append(stream)
        yield found


def members(count: int) -> list[Cost]:
    """Measure members that join a new group at once, and rejoin it at once."""
    with workdir("members") as folder:
        coordinator = Coordinator(folder, ())
        coordinator.start()
        try:
            return background().run(join_and_rejoin(coordinator, count))
        finally:
            coordinator.kill()


async def join_and_rejoin(coordinator: Coordinator, count: int) -> list[Cost]:
    """Form a group, and let all members rejoin several times."""
    rounds = max(REJOINS // count, 1)
    async with streams(coordinator.address, -(-count // SHARED)) as found:
        voices = [rota.RotaVoice(found[number // SHARED], "grown") for number in range(count)]
        crew = Crew()
        before_s = processor_s(coordinator.pid)
        crew.send(voices)
        await crew.all_stable(STABLE_S)
        joined_s, began = processor_s(coordinator.pid), time.perf_counter()
        for number in range(rounds):
            crew.begin_anew()
            crew.change(number)
            await crew.all_stable(STABLE_S)
        took_s = (time.perf_counter() - began) / rounds
        rejoined_s = (processor_s(coordinator.pid) - joined_s) / rounds
        mebibytes = memory(coordinator.pid)
        await crew.dismiss()
    return [
        Cost("all join and sync, processor time", joined_s - before_s, "s"),
        Cost("all rejoin and sync, processor time", rejoined_s, "s"),
        Cost("all rejoin and sync", took_s, "s"),
        Cost("memory", mebibytes, "MiB"),
    ]
