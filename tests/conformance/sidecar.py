"""
The sidecar's ways to the engines under test: what a member asks for goes through the adapters that ship.

The same servers answer as without them, so a case that fails here alone is a fault of the adapter or of its words.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.messages import Request
from rota_sidecar.engines.kafka.coordination import KafkaCoordination
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.port import Coordination, CoordinatorEvent, Disconnected, OnCoordinatorEvent
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.engines.rota.coordination import RotaCoordination
from tests.conformance import cases_joining, cases_leaving, cases_offsets, cases_rounds
from tests.conformance.driver import DEFAULT, FutureCall, Settings
from tests.conformance.kafka import NOT_YET
from tests.conformance.registry import EVERYWHERE, Case, cases_on

MEMBERS_SECTIONS = {
    section.__name__ for section in (cases_joining, cases_leaving, cases_offsets, cases_rounds)
}
# They commit within a transaction, which the application's producer does, not its member.
TRANSACTIONS = {"2", "73b", "110", "119b"}
WITHIN_S = 60
POLL_S = 0.05


# From a group and who hears of it.
Open = Callable[[str, OnCoordinatorEvent], Coordination]


def on_kafka(bootstrap: str) -> Open:
    """The way to a broker."""
    return lambda group, post: KafkaCoordination(KafkaSettings((bootstrap,)), group, post)


def on_rota(address: str) -> Open:
    """The way to a coordinator of ours."""
    return lambda group, post: RotaCoordination(group, [address], Credentials(), post)


def cases(coordinator: str) -> Sequence[Case]:
    """Return the cases that need member requests only, on the shared server."""
    return [
        case
        for case in cases_on(coordinator)
        if case.body.__module__ in MEMBERS_SECTIONS
        and case.settings == DEFAULT
        and case.on == EVERYWHERE
        and case.id not in TRANSACTIONS
    ]


@dataclass(slots=True)
class SidecarDriver:
    """One coordination for each group that a case speaks of, as each sidecar has one."""

    opened: Open
    settings: Settings
    name: str
    events: list[CoordinatorEvent] = field(default_factory=list)
    open: list["asyncio.Task[Message]"] = field(default_factory=list)
    _groups: dict[str, "asyncio.Task[Coordination]"] = field(default_factory=dict)

    def send(self, request: Message) -> FutureCall:
        task = asyncio.create_task(self._exchange(cast("Request", request)))
        self.open.append(task)
        return FutureCall(task)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Drop what is still open."""
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)
        for group in self._groups.values():
            await (await group).close()
        ended = [event for event in self.events if isinstance(event, Disconnected)]
        assert ended == [], "the server has ended a connection"

    async def _exchange(self, request: Request) -> Message:
        group = request.group_id
        if group not in self._groups:
            self._groups[group] = asyncio.create_task(self._find(group))
        return await (await asyncio.shield(self._groups[group])).ask(request, WITHIN_S)

    async def _find(self, group: str) -> Coordination:
        coordination = self.opened(group, self.events.append)
        while (error := await coordination.find(WITHIN_S)) != pb.NONE:
            assert error in NOT_YET, f"the coordinator of group {group!r} is not found: error {error}"
            await asyncio.sleep(POLL_S)
        return coordination
