"""
Form groups on Rota or on Kafka, and open their lanes: the setup of the closed-loop benchmarks.

Members of different groups share streams, as in sidecars, and connections on Kafka, so that both servers receive the
same load on the same number of connections.
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
    """A member and its assigned partitions."""

    group: str
    joined: Joined
    partitions: range


async def on_rota(address: str, size: Size) -> list[Seat]:
    """Form all groups on Rota, on a stream that is closed afterwards."""
    async with rota.channel(address) as connection:
        stream = rota.Stream(connection)
        voices = {name: [rota.RotaVoice(stream, name) for _ in range(size.members)] for name in names(size)}
        formed = await asyncio.gather(*(gather(each, size.partitions_each) for each in voices.values()))
        stream.close()
    return seats(size, formed)


async def on_kafka(address: str, size: Size) -> list[Seat]:
    """Form all groups on a Kafka broker, with a connection per member until all groups are formed."""
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
    """Open Rota's lanes with the requests of all members: streams with one connection each."""
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
    """Open the lanes with the requests of all members to a Kafka broker: one connection each."""
    requests = [request(seat) for seat in team]
    lanes = [await wire.WireLane.open(address) for _ in range(size.lanes)]
    for number, lane in enumerate(lanes):
        lane.requests = requests[number :: size.lanes]
    yield lanes
    for lane in lanes:
        lane.close()


def names(size: Size) -> list[str]:
    """Return the names of the groups."""
    return [f"bench-{number}" for number in range(size.groups)]


def seats(size: Size, formed: list[list[Joined]]) -> list[Seat]:
    """Return all members, in the order of their assignments."""
    return [
        Seat(name, joined, part(number, size.partitions_each))
        for name, members in zip(names(size), formed, strict=True)
        for number, joined in enumerate(members)
    ]
