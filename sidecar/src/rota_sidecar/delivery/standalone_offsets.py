"""
Offsets of a group without membership, as Kafka's simple consumer commits them: for manually assigned partitions.

Used by the delivery driver's effects. The connection is made on first use.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.events import Stored
from rota_sidecar.core.member.config import MemberConfig
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.partitions import Offset, Partition
from rota_sidecar.core.member.reactions import Error
from rota_sidecar.core.member.requests import Requests
from rota_sidecar.engines.port import Coordination, CoordinatorEvent, OnCoordinatorEvent, Unreachable

# Errors after which the coordinator has to be found again.
ELSEWHERE = {pb.NOT_COORDINATOR, pb.COORDINATOR_NOT_AVAILABLE}


class StandaloneOffsets:
    """Commits and fetches offsets under no generation. Must be used on a running loop."""

    def __init__(self, group_id: str, connect: Callable[[OnCoordinatorEvent], Coordination]) -> None:
        self._requests = Requests(MemberConfig(group_id))
        self._connect = connect
        self._coordination: Coordination | None = None
        self._is_found = False
        self._finding = asyncio.Lock()

    async def commit(self, offsets: Mapping[Partition, Offset], within_s: float) -> Mapping[Partition, Error]:
        """Commit offsets; return the error of each. Raises Unreachable, Refused."""
        coordination = await self._found(within_s)
        response = await coordination.ask(self._requests.commit(Identity(), offsets), within_s)
        assert isinstance(response, pb.CommitOffsetsResponse)
        # A partition that the response leaves out was not committed.
        unsaid = response.error_code or pb.UNKNOWN_SERVER_ERROR
        errors = dict.fromkeys(offsets, unsaid)
        for topic in response.topics:
            for each in topic.partitions:
                errors[Partition(topic.name, each.index)] = each.error_code
        self._mind(errors.values())
        return errors

    async def fetch(
        self, partitions: Sequence[Partition], within_s: float
    ) -> tuple[Error, Mapping[Partition, Stored]]:
        """Fetch committed offsets; an error stands for all. Raises Unreachable, Refused."""
        coordination = await self._found(within_s)
        response = await coordination.ask(self._requests.fetch(partitions), within_s)
        assert isinstance(response, pb.FetchOffsetsResponse)
        self._mind([response.error_code])
        return response.error_code, stored(response.topics)

    async def close(self) -> None:
        """Close the connection; the next call opens another one."""
        self._is_found = False
        coordination, self._coordination = self._coordination, None
        if coordination is not None:
            await coordination.close()

    async def _found(self, within_s: float) -> Coordination:
        async with self._finding:
            if self._coordination is None:
                self._coordination = self._connect(self._on_coordinator_event)
            if not self._is_found:
                error = await self._coordination.find(within_s)
                if error != pb.NONE:
                    raise Unreachable(
                        f"the group's coordinator is not available ({pb.ErrorCode.Name(error)}); retrying"
                    )
                self._is_found = True
            return self._coordination

    def _mind(self, errors: Iterable[Error]) -> None:
        if not ELSEWHERE.isdisjoint(errors):
            self._is_found = False

    def _on_coordinator_event(self, _: CoordinatorEvent) -> None:
        """Find the coordinator again before the next request: its connection ended, or the group moves."""
        self._is_found = False


def stored(topics: Iterable[pb.FetchedTopic]) -> Mapping[Partition, Stored]:
    """Return the fetched offsets by partition."""
    return {
        Partition(topic.name, each.index): Stored(
            each.offset, each.metadata, each.leader_epoch, each.error_code
        )
        for topic in topics
        for each in topic.partitions
    }
