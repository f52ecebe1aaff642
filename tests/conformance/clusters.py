"""Several processes that share the groups: three brokers, or three of Rota's coordinators on one database."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import grpc.aio
from confluent_kafka.admin import AdminClient
from google.protobuf.message import Message
from kafka.protocol.metadata import FindCoordinatorRequest

from rota_coordinator.core.group.answers import Request, group_of
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.driver import KAFKA, ROTA, FutureCall, Settings
from tests.conformance.kafka import GROUP_KEY, KafkaDriver
from tests.coordinator.fleet import Fleet, RoutingDriver
from tests.support.kafka import Kafka

OFFSETS_TOPIC = "__consumer_offsets"
SERVES_WITHIN_S = 30
POLL_S = 0.05


class RotaCluster(RoutingDriver):
    """Rota's coordinators. A process that is killed stays away: as many may be as there are others."""

    name = ROTA

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(lambda: fleet.addresses)
        self._fleet = fleet

    async def find_all(self, groups: Sequence[str]) -> list[str]:
        """The addresses of the processes that coordinate them, all asked for at once."""
        async with grpc.aio.insecure_channel(next(iter(self.addresses.values()))) as channel:
            reply = await CoordinatorStub(channel).FindCoordinator(
                pb.FindCoordinatorRequest(group_ids=groups)
            )
        assert all(each.error_code == pb.NONE for each in reply.coordinators)
        return [each.address for each in reply.coordinators]

    async def owners(self) -> list[str]:
        """The address of each slot's owner."""
        async with grpc.aio.insecure_channel(next(iter(self.addresses.values()))) as channel:
            reply = await AdminStub(channel).DescribeSlots(admin.DescribeSlotsRequest())
        return [slot.owner_address for slot in sorted(reply.slots, key=lambda slot: slot.slot)]

    async def fail_over(self, group: str) -> None:
        """Kill the process that coordinates the group; another one takes over when its lease has ended."""
        address = await self.find(group)
        (victim,) = (each for each in self._fleet.members.values() if each.address == address)
        victim.kill()
        # One that still reads the group believes every heartbeat; what was committed it tells when it has read it.
        asked = pb.FetchOffsetsRequest(group_id=group, all=True)
        async with asyncio.timeout(SERVES_WITHIN_S):
            while cast("pb.FetchOffsetsResponse", await self.send(asked).answer()).error_code != pb.NONE:
                await asyncio.sleep(POLL_S)


@dataclass(slots=True)
class KafkaCluster:
    """Brokers, each request sent to the one that coordinates its group."""

    kafka: Kafka
    settings: Settings
    name: str = KAFKA
    _drivers: dict[str, KafkaDriver] = field(default_factory=dict)
    _found: dict[str, str] = field(default_factory=dict)
    # Who is asked where a group is: a broker that runs.
    _guide: str = ""

    def send(self, request: Message) -> FutureCall:
        return FutureCall(asyncio.ensure_future(self._route(request)))

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await asyncio.gather(*(driver.close() for driver in self._drivers.values()))

    def at(self, address: str) -> KafkaDriver:
        """The connections to one broker."""
        return self._drivers.setdefault(address, KafkaDriver(address, self.settings))

    async def find_all(self, groups: Sequence[str]) -> list[str]:
        """The addresses of the brokers that coordinate them, all asked for at once; waits until each has one."""
        async with asyncio.timeout(SERVES_WITHIN_S):
            while True:
                request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=list(groups))
                reply = await self.at(self._guide or self.kafka.broker(1).address).ask(request)
                if all(each.error_code == pb.NONE for each in reply.coordinators):
                    found = {each.key: f"{each.host}:{each.port}" for each in reply.coordinators}
                    return [found[group] for group in groups]
                await asyncio.sleep(POLL_S)

    async def owners(self) -> list[str]:
        """The address of the leader of each partition in which Kafka keeps its groups."""
        return [self.kafka.broker(leader).address for leader, _ in await self._listed()]

    async def _listed(self) -> Sequence[tuple[int, Sequence[int]]]:
        """The leader and the replicas in sync of each partition in which Kafka keeps its groups."""
        known = AdminClient(self.kafka.client_config())
        listed = await asyncio.to_thread(known.list_topics, OFFSETS_TOPIC, SERVES_WITHIN_S)
        partitions = sorted(listed.topics[OFFSETS_TOPIC].partitions.items())
        return [(each.leader, each.isrs) for _, each in partitions]

    async def fail_over(self, group: str) -> None:
        """Kill the broker that coordinates the group, and start it again when another one serves the group."""
        (address,) = await self.find_all([group])
        (victim,) = (each for each in self.kafka.brokers if each.address == address)
        victim.kill()
        self._guide = next(each for each in self.kafka.brokers if each is not victim).address
        with suppress(OSError):
            await self._drivers.pop(address).close()
        # Started at once, the broker would lead again what it led, until the others have noticed that it was away.
        # One that still loads takes every heartbeat; what was committed it tells when it has loaded.
        async with asyncio.timeout(SERVES_WITHIN_S):
            while await self.find_all([group]) == [address] or await self._fetch_error(group) != pb.NONE:
                await asyncio.sleep(POLL_S)
        victim.begin_start()
        # Only the waiting may be in another thread: a process ends with the one that started it.
        await asyncio.to_thread(victim.end_start)
        # It answers before it has what it missed. Until then the others store nothing when the next one is killed.
        async with asyncio.timeout(SERVES_WITHIN_S):
            while not await self._are_all_in_sync() or await self._fetch_error(group) != pb.NONE:
                await asyncio.sleep(POLL_S)

    async def _are_all_in_sync(self) -> bool:
        """Return whether each broker has all records of Kafka's groups."""
        return all(len(in_sync) == len(self.kafka.brokers) for _, in_sync in await self._listed())

    async def _fetch_error(self, group: str) -> int:
        self._found.pop(group, None)
        reply = await self.send(pb.FetchOffsetsRequest(group_id=group, all=True)).answer()
        return cast("pb.FetchOffsetsResponse", reply).error_code

    async def _route(self, request: Message) -> Message:
        group = group_of(cast("Request", request))
        if group not in self._found:
            (self._found[group],) = await self.find_all([group])
        return await self.at(self._found[group]).send(request).answer(SERVES_WITHIN_S)
