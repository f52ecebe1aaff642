"""
Groups of members with their lanes, on Rota or on Kafka: the set-up that the benchmarks of a closed circle share.

Members of different groups share streams, as in sidecars; on Kafka they share connections, so that both get the same
load in the same number of pieces.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from google.protobuf.message import Message

from benchmarks.peers import rota, wire
from benchmarks.peers.members import gather, part
from benchmarks.peers.voice import Joined


class Size(NamedTuple):
    """Size of the load."""

    groups: int
    members: int  # of each group
    lanes: int
    partitions_each: int


class Seat(NamedTuple):
    """A member, and what it owns."""

    group: str
    joined: Joined
    partitions: range


async def on_rota(address: str, size: Size) -> list[Seat]:
    """Form all groups, on a stream that ends then."""
    async with rota.channel(address) as connection:
        stream = rota.Stream(connection)
        voices = {name: [rota.RotaVoice(stream, name) for _ in range(size.members)] for name in names(size)}
        formed = await asyncio.gather(*(gather(each, size.partitions_each) for each in voices.values()))
        stream.close()
    return seats(size, formed)


async def on_kafka(address: str, size: Size) -> list[Seat]:
    """The same at a broker, with a connection for each member until all groups are formed."""
    wires = {name: [await wire.Wire.open(address) for _ in range(size.members)] for name in names(size)}
    formed = await asyncio.gather(
        *(
            gather([wire.KafkaVoice(each, name, phase=0) for each in own], size.partitions_each)
            for name, own in wires.items()
        )
    )
    for connection in (each for own in wires.values() for each in own):
        connection.close()
    return seats(size, formed)


@asynccontextmanager
async def streams(
    address: str, size: Size, team: list[Seat], request: Callable[[Seat], dict[str, Message]]
) -> AsyncIterator[list[rota.StreamLane]]:
    """All members' requests, on streams with a connection each."""
    requests = [request(seat) for seat in team]
    connections = [rota.channel(address) for _ in range(size.lanes)]
    yield [
        rota.StreamLane(connection, requests[number :: size.lanes])
        for number, connection in enumerate(connections)
    ]
    for connection in connections:
        await connection.close()


@asynccontextmanager
async def wires(
    address: str, size: Size, team: list[Seat], request: Callable[[Seat], bytes]
) -> AsyncIterator[list[wire.WireLane]]:
    """The same at a broker."""
    requests = [request(seat) for seat in team]
    lanes = [await wire.WireLane.open(address) for _ in range(size.lanes)]
    for number, lane in enumerate(lanes):
        lane.requests = requests[number :: size.lanes]
    yield lanes
    for lane in lanes:
        lane.close()


def names(size: Size) -> list[str]:
    """The groups."""
    return [f"bench-{number}" for number in range(size.groups)]


def seats(size: Size, formed: list[list[Joined]]) -> list[Seat]:
    """All members, in the order in which they were given their parts."""
    return [
        Seat(name, joined, part(number, size.partitions_each))
        for name, members in zip(names(size), formed, strict=True)
        for number, joined in enumerate(members)
    ]
