"""
Resets the offsets of a group whose members run here, and stay: they stop to read, each sets what it has, and they go on.

Called by the page. What a rebalance left undone is done by the next owner; whatever happens, they go on in the end.
"""

import asyncio
from collections.abc import Callable, Sequence

from rota_operator.local.dashboard_state import Board
from rota_operator.local.fleet_server import LocalFleet
from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import Kind
from rota_operator.resets.orders import Offsets, Share, shares
from rota_proto.fleet.v1 import fleet_pb2 as pb

# For all of it; and for what one sidecar is told.
WITHIN_S = 60.0
ORDER_S = 15.0


class Resetting:
    """
    To be made and used on a running loop. `replicas` says who is to be a member of a group now, `is_suspended` whether a
    group is to read nothing anyway.
    """

    def __init__(
        self,
        fleet: LocalFleet,
        board: Board,
        replicas: Callable[[str], Sequence[str]],
        is_suspended: Callable[[str], bool],
    ) -> None:
        self._fleet = fleet
        self._board = board
        self._replicas = replicas
        self._is_suspended = is_suspended
        self._under_way: set[str] = set()

    async def reset(self, group_id: str, offsets: Offsets) -> str:
        """Why it is not done, or not all of it, in one sentence; empty: it is done."""
        if not self._replicas(group_id):
            return f"group {group_id} has no running replica here; reset it after stopping its members"
        if group_id in self._under_way:
            return f"a reset of group {group_id} is in progress; retry when it has finished"
        self._under_way.add(group_id)
        try:
            wrong = await self._while_suspended(group_id, dict(offsets))
        finally:
            # Not before they go on: the next reset would stop members that this one is still resuming.
            self._under_way.discard(group_id)
        said = f"reset of {len(offsets)} partitions: {wrong or 'done'}"
        self._board.happened(group_id, Kind.RESET, said)
        return wrong

    async def _while_suspended(self, group_id: str, left: dict[Partition, int]) -> str:
        try:
            wrong = await self._order_all(group_id, pb.SidecarOrder(suspend=pb.Suspend()))
            wrong = wrong or await self._set(group_id, left)
        finally:
            still = await self._go_on(group_id)
        return wrong or still

    async def _go_on(self, group_id: str) -> str:
        if self._is_suspended(group_id):
            return ""
        return await self._order_all(group_id, pb.SidecarOrder(resume=pb.Resume()))

    async def _order_all(self, group_id: str, order: pb.SidecarOrder) -> str:
        """The first reason why somebody has not done it."""
        orders = (self._fleet.order(replica, order, ORDER_S) for replica in self._replicas(group_id))
        return next((wrong for wrong in await asyncio.gather(*orders) if wrong), "")

    async def _set(self, group_id: str, left: dict[Partition, int]) -> str:
        wrong = "the partition has no owner"
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    due = shares(left, self._board.holdings(group_id))
                    said = await asyncio.gather(*(self._share(name, share) for name, share in due.items()))
                    for share, why_not in zip(due.values(), said, strict=True):
                        if not why_not:
                            for partition in share.offsets:
                                del left[partition]
                        wrong = why_not or wrong
                    if not left:
                        return ""
                    await self._board.change()
        except TimeoutError:
            first = min(left)
            return f"{len(left)} offsets not set, beginning with {first.text} ({wrong}); check the owners, and reset again"

    async def _share(self, sidecar: str, share: Share) -> str:
        topics: dict[str, list[pb.PartitionOffset]] = {}
        for partition, offset in sorted(share.offsets.items()):
            place = pb.PartitionOffset(topic=partition.topic, partition=partition.number, offset=offset)
            topics.setdefault(partition.topic, []).append(place)
        reset = pb.ResetOffsets(
            generation_id=share.generation,
            topics=[pb.TopicOffsets(topic=topic, offsets=found) for topic, found in topics.items()],
        )
        return await self._fleet.order(sidecar, pb.SidecarOrder(reset_offsets=reset), ORDER_S)
