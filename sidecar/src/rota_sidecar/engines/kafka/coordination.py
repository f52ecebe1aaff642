"""
The client of one group's coordinator on Kafka: the broker that leads the group's partition of `__consumer_offsets`.

Created by `wiring.py` for the membership driver. JoinGroup and SyncGroup wait for other members, and a broker answers the
requests of a connection in order; they therefore use a connection apart from heartbeats and commits.
"""

import asyncio

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import FindCoordinatorRequest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.messages import Request, Response
from rota_sidecar.engines.kafka import failures
from rota_sidecar.engines.kafka.bootstrap import Bootstrap
from rota_sidecar.engines.kafka.connection import UNREADABLE, Connection, connect
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings
from rota_sidecar.engines.kafka.translate import error_of, from_kafka, to_kafka
from rota_sidecar.engines.port import Disconnected, OnCoordinatorEvent, Unreachable

GROUP_KEY = 0
CLASSIC = "classic"
# Limit of connections with a JoinGroup or SyncGroup in flight. A member needs one; abandoned requests keep theirs for a while.
BLOCKING_MAX = 16


class KafkaCoordination:
    """
    Implements `Coordination` of the port. The only event is Disconnected: brokers send nothing unrequested.

    Invariant: all connections lead to one broker, the coordinator found last.
    """

    def __init__(self, settings: KafkaSettings, group_id: str, on_event: OnCoordinatorEvent) -> None:
        self._settings = settings
        self._group_id = group_id
        self._on_event = on_event
        self._bootstrap = Bootstrap(settings)
        self._coordinator: Address | None = None
        self._main: Connection | None = None
        # For JoinGroup and SyncGroup: opened for the join, reused for the sync of the same rebalance, then closed. The next
        # rebalance may be hours away, and a connection that a firewall has dropped looks like one whose join waits.
        self._blocking: set[Connection] = set()
        self._idle: Connection | None = None

    @property
    def coordinator(self) -> Address | None:
        """The coordinator found last; it may be unreachable meanwhile."""
        return self._coordinator

    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        """Find the coordinator and connect to it. Raises Unreachable, Refused."""
        await self.close()
        known = () if self._coordinator is None else (self._coordinator,)
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        # A third of the time remains for the connection to the coordinator itself.
        answer, connection = await self._bootstrap.ask(request, within_s * 2 / 3, known)
        if len(answer.coordinators) != 1:
            raise connection.end_garbled()
        (found,) = answer.coordinators
        address = Address(found.host, found.port)
        if found.error_code == pb.NONE and connection.address == address:
            self._serve(connection)
            return pb.NONE
        await connection.close()
        if found.error_code == pb.NONE:
            try:
                self._serve(await connect(address, self._settings, within_s / 3))
            except Unreachable as failure:
                raise Unreachable(
                    f"{address} is the coordinator of group {self._group_id!r}, but {failure}"
                ) from None
        return error_of(found.error_code)

    async def ask(self, request: Request, within_s: float) -> Response:
        """Send a request to the coordinator found last. Raises Unreachable, Refused."""
        message = to_kafka(request)
        match request:
            case pb.JoinGroupRequest():
                return await self._ask_blocking(message, within_s, request.client_id)
            case pb.SyncGroupRequest():
                answer = await self._ask_blocking(message, within_s)
                await self._close_idle()
                return answer
            case _:
                return await _ask(self._connected(), message, within_s)

    async def incarnation(self, within_s: float) -> int | None:
        """Return None: Kafka's groups have no incarnations."""
        return None

    async def protocol_of_group(self, within_s: float) -> str:
        """
        Return the group's protocol type at the coordinator: `classic`, as the sidecar uses, or another one; empty: no group.

        Called after a join that succeeds without naming a leader, which is the sign of another protocol: a consumer of
        KIP-848 has converted the group, and the broker assigns the partitions. Raises Unreachable, Refused.
        """
        connection = self._connected()
        if not connection.knows(ListGroupsRequest):
            # Brokers without types of groups do not convert groups.
            return CLASSIC
        answer = await connection.ask(ListGroupsRequest(states_filter=[], types_filter=[]), within_s)
        if answer.error_code:
            raise Unreachable(
                f"Kafka at {connection.address} does not list its groups (error {answer.error_code})"
            )
        types = (each.group_type for each in answer.groups if each.group_id == self._group_id)
        return next(types, "").lower()

    async def close(self) -> None:
        """Close all connections; no event follows."""
        ending = [*self._blocking, *([] if self._main is None else [self._main])]
        self._main = self._idle = None
        for connection in ending:
            await connection.close()

    def _serve(self, connection: Connection) -> None:
        self._coordinator, self._main = connection.address, connection
        connection.ended.add_done_callback(lambda _: self._lost(connection))

    def _lost(self, connection: Connection) -> None:
        if self._main is connection:
            self._main = None
            self._on_event(Disconnected(str(connection.failure)))

    def _connected(self) -> Connection:
        if self._main is None:
            raise Unreachable(
                f"not connected to the coordinator of group {self._group_id!r}; call find first"
            )
        return self._main

    async def _ask_blocking(
        self, message: ApiMessage, within_s: float, client_id: str | None = None
    ) -> Response:
        main = self._connected()
        connection, self._idle = self._idle, None
        try:
            async with asyncio.timeout(within_s):
                if connection is None or connection.failure is not None:
                    connection = await self._open_blocking(main, within_s)
                answer = await _ask(connection, message, within_s, client_id)
        except BaseException as error:
            # The broker may answer late; no other request waits behind that response.
            if connection is not None:
                await connection.close()
            if isinstance(error, TimeoutError):
                raise failures.silent(main.address, within_s) from None
            raise
        await self._keep(connection)
        return answer

    async def _close_idle(self) -> None:
        """Close the idle connection: the rebalance is over."""
        idle, self._idle = self._idle, None
        if idle is not None:
            await idle.close()

    async def _keep(self, connection: Connection) -> None:
        """Keep the connection for the SyncGroup of the same rebalance."""
        if self._idle is None and connection.failure is None:
            self._idle = connection
        else:
            await connection.close()

    async def _open_blocking(self, main: Connection, within_s: float) -> Connection:
        """Open another connection to the coordinator."""
        if len(self._blocking) >= BLOCKING_MAX:
            raise Unreachable(
                f"{BLOCKING_MAX} joins of group {self._group_id!r} are in flight already; retry when some have ended"
            )
        connection = await connect(main.address, self._settings, within_s)
        self._blocking.add(connection)
        connection.ended.add_done_callback(lambda _: self._blocking.discard(connection))
        if self._main is not main:
            await connection.close()
            raise Unreachable(
                f"the connection to the coordinator of group {self._group_id!r} was lost meanwhile; find it again"
            )
        return connection


async def _ask(
    connection: Connection, message: ApiMessage, within_s: float, client_id: str | None = None
) -> Response:
    """Send a request and translate the response. Raises Unreachable, Refused."""
    answer = await connection.ask(message, within_s, client_id)
    try:
        return from_kafka(answer)
    except UNREADABLE:
        raise connection.end_garbled() from None
