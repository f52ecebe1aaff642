"""
Hastens rebalances of groups on Kafka: orders a heartbeat of each member when another one joins or has left. Part of `sidecars`.

Brokers tell members of a rebalance only in answers to heartbeats, so that it takes up to a heartbeat interval until all have joined again;
Rota's coordinator tells them itself. Nothing depends on these orders: without them each heartbeat is sent when it is due.
"""

import asyncio
from collections.abc import Callable, Sequence

from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet, key_of
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.overview.reported_group import MEMBER_STATES
from rota_proto.fleet.v1 import fleet_pb2 as pb

ANSWER_S = 2.0
# Members report a change within 0.1 s: those of one moment are worth one order.
INTERVAL_S = 0.1
ORDER = pb.SidecarOrder(heartbeat=pb.Heartbeat())


class HeartbeatOrders:
    """The states of members of groups on Kafka as they were reported; thread-confined to one event loop."""

    def __init__(self, fleet: Fleet, is_on_kafka: Callable[[Key], bool]) -> None:
        self._fleet = fleet
        self._is_on_kafka = is_on_kafka
        self._states: dict[SidecarRef, pb.MemberState.ValueType] = {}
        # Groups that rebalance, and whose other members may not know it.
        self._due: set[Key] = set()
        self._is_due = asyncio.Event()

    def reported(self, principal: Principal, member: pb.MemberReport) -> None:
        """Note the state of a member, and whether it has begun to join, or has left."""
        key = key_of(principal)
        if not self._is_on_kafka(key):
            return
        before = self._states.get(principal.sidecar)
        self._states[principal.sidecar] = member.state
        joins = member.state == pb.MEMBER_STATE_JOINING != before
        has_left = before in MEMBER_STATES and member.state not in MEMBER_STATES
        if joins or has_left:
            self._due.add(key)
            self._is_due.set()

    async def run(self) -> None:
        """Send orders until cancelled."""
        while True:
            await self._is_due.wait()
            await self.send()
            await asyncio.sleep(INTERVAL_S)

    async def send(self) -> None:
        """Order one heartbeat of each connected member that is in a generation of a group that rebalances."""
        self._is_due.clear()
        due, self._due = self._due, set()
        connected = self._fleet.connected
        self._forget_all_but(connected)
        ordered = [
            each.sidecar
            for each in connected
            if key_of(each) in due and self._states.get(each.sidecar) == pb.MEMBER_STATE_STABLE
        ]
        # An older sidecar answers that it does not know the order; its next heartbeat is sent when it is due.
        await asyncio.gather(*(self._fleet.order(sidecar, ORDER, ANSWER_S) for sidecar in ordered))

    def _forget_all_but(self, connected: Sequence[Principal]) -> None:
        """Forget sidecars that are not connected any more."""
        known = {each.sidecar for each in connected}
        self._states = {sidecar: state for sidecar, state in self._states.items() if sidecar in known}
