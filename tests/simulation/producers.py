"""Producers that commit offsets of the groups within transactions, which overlap, and whose coordinator crashes meanwhile."""

import asyncio
import random

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import ProducerEnded
from tests.conformance.members import topic_offsets
from tests.simulation.host import Host
from tests.simulation.loop import Process
from tests.simulation.member import REQUEST_S
from tests.simulation.network import Request
from tests.simulation.transactions import PARTITIONS_OF_PRODUCERS, TOPIC_OF_PRODUCERS
from tests.simulation.world import World

# Of the seeds: in the others no transaction disturbs the members.
RATE = 0.3
PRODUCERS = (1, 2, 3)
EVERY_S = 0.3


class Producers:
    """Commit within transactions, and end them, until the world is healed."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.process = Process(world.loop)
        self._offset = 0

    def start(self) -> None:
        """Start committing."""
        self.process.spawn(self._live())

    async def _live(self) -> None:
        while not self.world.calm:
            await asyncio.sleep(self.chance.expovariate(1 / EVERY_S))
            host = self.chance.choice(self.world.hosts)
            group_id = self.chance.choice(self.world.plan.groups)
            producer_id = self.chance.choice(PRODUCERS)
            if self.chance.random() < 0.4:
                ended = ProducerEnded(producer_id=producer_id, committed=self.chance.random() < 0.8)
                self._end(host, group_id, ended)
            else:
                self.process.spawn(self._ask(host, self._commit(group_id, producer_id)))

    def _commit(self, group_id: str, producer_id: int) -> Request:
        self._offset += 1
        topics = [
            topic_offsets({self.chance.randrange(PARTITIONS_OF_PRODUCERS): self._offset}, TOPIC_OF_PRODUCERS)
        ]
        if self.chance.random() < 0.1:
            return pb.CommitOffsetsRequest(group_id=group_id, generation_id=-1, topics=topics)
        return pb.TxnCommitOffsetsRequest(
            group_id=group_id, generation_id=-1, producer_id=producer_id, topics=topics
        )

    async def _ask(self, host: Host, request: Request) -> None:
        try:
            await self.world.network.ask(host.connect(self.process, lambda notice: None), request, REQUEST_S)
        except (ConnectionError, TimeoutError):
            self.world.step("a producer is not answered")

    def _end(self, host: Host, group_id: str, ended: ProducerEnded) -> None:
        """The end of a transaction comes from the log, which is in the process of the coordinator."""
        process = host.process
        if process is not None:
            slot = host.running.slot_of(group_id)
            self.world.step("a transaction ends")
            self.world.loop.call_soon(slot.end_transaction, group_id, ended, context=process.context)
