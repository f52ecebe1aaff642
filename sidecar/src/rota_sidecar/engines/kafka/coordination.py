"""
The coordinator of one group on Kafka: the broker that leads the group's partition of `__consumer_offsets`.

The member's shell makes it. Joins and syncs wait for other members, and a broker answers a connection's requests one
after the other; so they go on a connection apart from heartbeats and commits.
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
# A member has one; the one before may still wait when its answer does not count any more.
PATIENT_MAX = 16


class KafkaCoordination:
    """`Coordination` of the port. A broker says nothing unasked: what is heard is the end of the connection."""

    def __init__(self, settings: KafkaSettings, group_id: str, on_event: OnCoordinatorEvent) -> None:
        self._settings = settings
        self._group_id = group_id
        self._on_event = on_event
        self._bootstrap = Bootstrap(settings)
        self._coordinator: Address | None = None
        self._quick: Connection | None = None
        # For joins and syncs: made for the join, kept for the sync of the same round. A round may be hours away from the
        # next one, and a connection that the network has forgotten meanwhile would look like one whose join waits.
        self._patient: set[Connection] = set()
        self._idle: Connection | None = None

    @property
    def coordinator(self) -> Address | None:
        """Who was found last, whether or not it still answers."""
        return self._coordinator

    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        """Look it up and connect to it. Raises Unreachable, Refused."""
        await self.close()
        known = () if self._coordinator is None else (self._coordinator,)
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        # A third of the time is left to connect to the coordinator itself.
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
                    f"Kafka says that {address} coordinates group {self._group_id!r}, but {failure}"
                ) from None
        return error_of(found.error_code)

    async def ask(self, request: Request, within_s: float) -> Response:
        """Ask the coordinator that was found. Raises Unreachable, Refused."""
        message = to_kafka(request)
        match request:
            case pb.JoinGroupRequest():
                return await self._ask_patiently(message, within_s, request.client_id)
            case pb.SyncGroupRequest():
                answer = await self._ask_patiently(message, within_s)
                await self._end_round()
                return answer
            case _:
                return await _ask(self._connected(), message, within_s)

    async def incarnation(self, within_s: float) -> int | None:
        """Kafka has none."""
        return None

    async def protocol_of_group(self, within_s: float) -> str:
        """
        What the coordinator takes the group for: `classic` as we do, or another type of Kafka's; empty: it has none.

        A join that succeeds and names no leader is the sign of another one: a consumer of KIP-848 has converted the
        group, and the broker assigns from now on. Raises Unreachable, Refused.
        """
        connection = self._connected()
        if not connection.knows(ListGroupsRequest):
            # Brokers that do not tell types do not convert groups.
            return CLASSIC
        answer = await connection.ask(ListGroupsRequest(states_filter=[], types_filter=[]), within_s)
        if answer.error_code:
            raise Unreachable(
                f"Kafka at {connection.address} does not list its groups (error {answer.error_code})"
            )
        types = (each.group_type for each in answer.groups if each.group_id == self._group_id)
        return next(types, "").lower()

    async def close(self) -> None:
        """End all connections; nothing is heard any more."""
        ending = [*self._patient, *([] if self._quick is None else [self._quick])]
        self._quick = self._idle = None
        for connection in ending:
            await connection.close()

    def _serve(self, connection: Connection) -> None:
        self._coordinator, self._quick = connection.address, connection
        connection.ended.add_done_callback(lambda _: self._lost(connection))

    def _lost(self, connection: Connection) -> None:
        if self._quick is connection:
            self._quick = None
            self._on_event(Disconnected(str(connection.failure)))

    def _connected(self) -> Connection:
        if self._quick is None:
            raise Unreachable(
                f"there is no connection to the coordinator of group {self._group_id!r}; find it first"
            )
        return self._quick

    async def _ask_patiently(
        self, message: ApiMessage, within_s: float, client_id: str | None = None
    ) -> Response:
        quick = self._connected()
        connection, self._idle = self._idle, None
        try:
            async with asyncio.timeout(within_s):
                if connection is None or connection.failure is not None:
                    connection = await self._another(quick, within_s)
                answer = await _ask(connection, message, within_s, client_id)
        except BaseException as error:
            # What was asked may be answered late: nothing else is to wait behind it.
            if connection is not None:
                await connection.close()
            if isinstance(error, TimeoutError):
                raise failures.silent(quick.address, within_s) from None
            raise
        await self._keep(connection)
        return answer

    async def _end_round(self) -> None:
        """Nobody waits for others now."""
        idle, self._idle = self._idle, None
        if idle is not None:
            await idle.close()

    async def _keep(self, connection: Connection) -> None:
        """For the rest of the round."""
        if self._idle is None and connection.failure is None:
            self._idle = connection
        else:
            await connection.close()

    async def _another(self, quick: Connection, within_s: float) -> Connection:
        """One more to the same broker."""
        if len(self._patient) >= PATIENT_MAX:
            raise Unreachable(f"{PATIENT_MAX} joins of group {self._group_id!r} wait already; wait for some")
        connection = await connect(quick.address, self._settings, within_s)
        self._patient.add(connection)
        connection.ended.add_done_callback(lambda _: self._patient.discard(connection))
        if self._quick is not quick:
            await connection.close()
            raise Unreachable(
                f"the coordinator of group {self._group_id!r} was lost meanwhile; find it again"
            )
        return connection


async def _ask(
    connection: Connection, message: ApiMessage, within_s: float, client_id: str | None = None
) -> Response:
    """The answer in our words."""
    answer = await connection.ask(message, within_s, client_id)
    try:
        return from_kafka(answer)
    except UNREADABLE:
        raise connection.end_garbled() from None
