"""
Instances that other processes have taken from sidecars (FENCED_INSTANCE_ID), as the sidecars report it. Part of `sidecars`.

A fenced sidecar waits without an instance. It gets its instance again once the coordinator describes the group without a member of
that instance; while the group is not described, as on Kafka, only another pod gets it. Nothing of this is remembered: each sidecar
keeps what it has lost, and reports it to the next operator.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rota_operator.cluster.pod_orders import holder_of
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import ANSWER_S, ROUND_S, Fleet, key_of
from rota_operator.fleet.principal import Principal
from rota_operator.overview.description import Description
from rota_operator.reconcile.instances import Holder
from rota_proto.fleet.v1 import fleet_pb2 as pb


class FencedPorts(NamedTuple):
    """Everything else that is known of a group and of its instances."""

    # None: the group is not described now.
    description: Callable[[Key], Description | None]
    # Returns whether an instance is the pod's own; of a StatefulSet it always is.
    is_holder: Callable[[Key, str, Holder], bool]
    on_change: Callable[[Key], None]
    warn: Callable[[str], None]


class FencedInstances:
    """Fenced sidecars that are connected; thread-confined to one event loop."""

    def __init__(self, fleet: Fleet, ports: FencedPorts) -> None:
        self._fleet = fleet
        self._ports = ports
        # By group and pod: the instance that it has lost.
        self._lost: dict[tuple[Key, Holder], str] = {}

    def reported(self, principal: Principal, member: pb.MemberReport) -> None:
        """Note whether a sidecar has been fenced."""
        pod, lost = (key_of(principal), holder_of(principal)), member.fenced_instance_id
        if lost == self._lost.get(pod, ""):
            return
        if lost:
            self._lost[pod] = lost
            self._ports.warn(f"{principal.group}: {self._message(pod, lost)}")
        else:
            del self._lost[pod]
        self._ports.on_change(pod[0])

    def messages(self, key: Key) -> Mapping[str, str]:
        """Return what has happened to the fenced pods of a group, by their names. A pod whose successor has its instance is left out."""
        return {
            pod[1].pod: self._message(pod, lost)
            for pod, lost in self._lost.items()
            if pod[0] == key and self._ports.is_holder(key, lost, pod[1])
        }

    async def run(self) -> None:
        """Give instances again until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(ROUND_S)

    async def look(self) -> None:
        """Give each instance again that no member has any more."""
        connected = {(key_of(each), holder_of(each)): each for each in self._fleet.connected}
        for pod in [each for each in self._lost if each not in connected]:
            del self._lost[pod]
            self._ports.on_change(pod[0])
        free = [(pod, lost) for pod, lost in self._lost.items() if self._is_free(pod, lost)]
        await asyncio.gather(*(self._give(connected[pod], lost) for pod, lost in free))

    def _is_free(self, pod: tuple[Key, Holder], lost: str) -> bool:
        described = self._ports.description(pod[0])
        return (
            described is not None
            and all(each.instance_id != lost for each in described.members)
            and self._ports.is_holder(pod[0], lost, pod[1])
        )

    async def _give(self, principal: Principal, name: str) -> None:
        order = pb.SidecarOrder(instance=pb.Instance(name=name, after_fencing=True))
        answer = await self._fleet.order(principal.sidecar, order, ANSWER_S)
        if answer.order_id and answer.error:
            self._ports.warn(f"{principal.sidecar.pod} of {principal.group} refuses {name}: {answer.error}")

    def _message(self, pod: tuple[Key, Holder], lost: str) -> str:
        described = self._ports.description(pod[0])
        members = () if described is None else described.members
        other = next((each for each in members if each.instance_id == lost), None)
        of = "another process" if other is None else f"client {other.client_id} at {other.host}"
        remedy = (
            f"end that process, then delete the pod: its successor gets {lost}"
            if described is None
            else f"end that process: the pod gets {lost} again when it has left the group"
        )
        return f"{of} has taken the instance {lost} of pod {pod[1].pod}; {remedy}"
