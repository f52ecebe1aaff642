"""
Several coordinators on one PostgreSQL, and clients that find the right one: what a sidecar does when its coordinator
dies, is slow, or sends it away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self, cast

import grpc.aio
from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request, group_of
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.conformance.driver import DEFAULT, FutureCall
from tests.conformance.server import Login, ServerDriver, channel_to
from tests.support.coordinator import QUICK, Coordinator

LEASE_MS = 2_000
# What a client does not wait longer for before it asks somebody else.
TRY_S = 1.5
GIVES_UP_S = 30
AGAIN = {pb.NOT_COORDINATOR, pb.COORDINATOR_NOT_AVAILABLE, pb.COORDINATOR_LOAD_IN_PROGRESS}
LOOK_S = 0.05


class Access(NamedTuple):
    """Access control of servers as flags, and the login of their clients."""

    flags: Sequence[str] = ()
    login: Login | None = None
    # Of a caller that has no token.
    without_token: Login | None = None


OPEN = Access()


class Fleet:
    """The processes by name."""

    def __init__(
        self, folder: Path, database: str, names: str, lease_ms: int = LEASE_MS, access: Access = OPEN
    ) -> None:
        flags = (*QUICK, f"--slot-lease-ms={lease_ms}", *access.flags)
        self.members = {name: Coordinator(folder, flags, store=database, name=name) for name in names}
        self.access = access

    def __enter__(self) -> Self:
        for coordinator in self.members.values():
            coordinator.start()
        return self

    def __exit__(self, *raised: object) -> None:
        for coordinator in self.members.values():
            coordinator.stop()

    @property
    def addresses(self) -> dict[str, str]:
        return {name: coordinator.address for name, coordinator in self.members.items()}

    async def shares(self, asked: str) -> dict[str, int]:
        """Return the number of slots of each process, as one process sees it."""
        async with channel_to(self.members[asked].address, self.access.login) as channel:
            reply = await AdminStub(channel).DescribeSlots(admin.DescribeSlotsRequest(), timeout=GIVES_UP_S)
        owners = [slot.owner_address for slot in reply.slots]
        return {name: owners.count(address) for name, address in self.addresses.items()}

    async def is_shared_equally(self) -> bool:
        """Return whether all processes agree that their numbers of slots differ by one at most."""
        seen = [await self.shares(name) for name in self.members]
        counts = list(seen[0].values())
        return seen.count(seen[0]) == len(seen) and sum(counts) == 50 and max(counts) - min(counts) <= 1


async def until(holds: Callable[[], Awaitable[bool]], within_s: float = GIVES_UP_S) -> None:
    """Return as soon as it holds."""
    async with asyncio.timeout(within_s):
        while not await holds():
            await asyncio.sleep(LOOK_S)


class RoutingDriver:
    """Sends every request to the process that serves its group, and finds out anew when that one does not answer."""

    name = "fleet"

    def __init__(
        self,
        addresses: Callable[[], Mapping[str, str]],
        login: Login | None = None,
        try_s: float = TRY_S,
    ) -> None:
        """A request without an answer within `try_s` is sent again, while the first may still be on its way."""
        self._addresses_now = addresses
        self._login = login
        self._try_s = try_s
        self._drivers: dict[str, ServerDriver] = {}
        # By address, for the search: a new connection for each look is what takes the time.
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._found: dict[str, str] = {}

    @property
    def addresses(self) -> Mapping[str, str]:
        return self._addresses_now()

    def send(self, request: Message) -> FutureCall:
        return FutureCall(asyncio.ensure_future(self._route(request)))

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await asyncio.gather(*(driver.close() for driver in self._drivers.values()))
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))

    def at(self, address: str) -> ServerDriver:
        """The stream to one process."""
        if address not in self._drivers:
            self._drivers[address] = ServerDriver(address, DEFAULT, login=self._login)
        return self._drivers[address]

    async def find(self, group: str) -> str:
        """The address of the process that serves the group now; any process may answer."""
        found = self._found.get(group)
        if found in self.addresses.values():
            return str(found)
        async with asyncio.timeout(GIVES_UP_S):
            while True:
                for address in self.addresses.values():
                    with suppress(grpc.aio.AioRpcError):
                        reply = await self._ask(address, group)
                        if reply.error_code == pb.NONE:
                            self._found[group] = reply.address
                            return reply.address
                await asyncio.sleep(LOOK_S)

    async def _ask(self, address: str, group: str) -> pb.FindCoordinatorResponse.Coordinator:
        if address not in self._channels:
            self._channels[address] = channel_to(address, self._login)
        ask = self._channels[address].unary_unary(
            "/rota.coordinator.v1.Coordinator/FindCoordinator",
            request_serializer=pb.FindCoordinatorRequest.SerializeToString,
            response_deserializer=pb.FindCoordinatorResponse.FromString,
        )
        found: pb.FindCoordinatorResponse = await ask(
            pb.FindCoordinatorRequest(group_ids=[group]), timeout=TRY_S
        )
        return found.coordinators[0]

    async def _route(self, request: Message) -> Message:
        group = group_of(cast("Request", request))
        waits = isinstance(request, pb.JoinGroupRequest | pb.SyncGroupRequest)
        while True:
            address = await self.find(group)
            try:
                reply = await self.at(address).send(request).answer(GIVES_UP_S if waits else self._try_s)
            except (ConnectionError, TimeoutError):
                self._drivers.pop(address, None)
            else:
                if cast("pb.HeartbeatResponse", reply).error_code not in AGAIN:
                    return reply
            self._found.pop(group, None)
            await asyncio.sleep(LOOK_S)
