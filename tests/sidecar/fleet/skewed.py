"""Two members of a topic of which one partition has most of the load, and the order to rebalance."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.sidecar.fleet.instances import started
from tests.support.load import Load
from tests.support.sidecar import Deliverer

PARTITIONS, HOT = 4, 0
# Records per second of all partitions; of ten records seven are for the hot one.
RATE = 20.0
TURNS = (0, 1, 0, 2, 0, 3, 0, 0, 0, 0)
STRATEGY = "load-aware-sticky"


@asynccontextmanager
async def member(folder: Path, servers: str, topic: str, name: str) -> AsyncIterator[Headquarters]:
    """A member with a Fleet server of its own."""
    async with serving() as fleet:
        flags = (f"--topics={topic}", f"--assignors={STRATEGY}", f"--fleet={fleet.address}")
        async with started(Deliverer(folder, servers, topic, flags, name=name)):
            yield fleet


def numbers(fleet: Headquarters) -> list[int]:
    return sorted(each.partition for each in fleet.last.partitions)


def rates(fleets: Sequence[Headquarters]) -> dict[int, float]:
    reported = (each for fleet in fleets for each in fleet.last.partitions)
    return {each.partition: each.arrival_rate for each in reported if each.HasField("arrival_rate")}


async def wait_until(fleets: Sequence[Headquarters], holds: Callable[[], bool]) -> None:
    """Return once that holds; it is looked at after each report of any of them."""
    waiting = [asyncio.ensure_future(each.wait_until(holds)) for each in fleets]
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in others:
        each.cancel()
    for found in done:
        found.result()


async def moves_the_neighbours(folder: Path, servers: str, topic: str, send: Callable[[int], object]) -> None:
    """
    The order to the leader moves the other partition away from the owner of the hot one; to the other member it changes nothing.

    `send` appends a record to a partition.
    """
    async with member(folder, servers, topic, "a") as a, member(folder, servers, topic, "b") as b:
        both = (a, b)

        def is_balanced() -> bool:
            members = [fleet.last.member for fleet in both if fleet.reports]
            is_stable = [each.state for each in members] == [pb.MEMBER_STATE_STABLE] * len(both)
            return is_stable and all(len(numbers(fleet)) == PARTITIONS // len(both) for fleet in both)

        await wait_until(both, is_balanced)
        leader = next(fleet for fleet in both if fleet.last.member.leads)
        follower = next(fleet for fleet in both if fleet is not leader)
        assert not follower.last.member.leads
        with Load(lambda number: send(TURNS[number % len(TURNS)]), RATE):
            await wait_until(both, lambda: len(rates(both)) == PARTITIONS and rates(both)[HOT] > RATE / 4)
            generation = leader.last.member.generation_id
            order = pb.Rebalance(reason="a partition is hot")
            assert (await follower.order(1, rebalance=order)).error == ""
            seen = len(leader.reports)
            await wait_until(both, lambda: len(leader.reports) > seen + 2)
            assert is_balanced(), "only the leader begins a rebalance"
            assert {fleet.last.member.generation_id for fleet in both} == {generation}

            assert (await leader.order(1, rebalance=order)).error == ""
            others = [each for each in range(PARTITIONS) if each != HOT]
            await wait_until(both, lambda: sorted(map(numbers, both)) == [[HOT], others])
            assert leader.last.member.generation_id > generation
