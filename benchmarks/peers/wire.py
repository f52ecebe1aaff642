"""

Client of a Kafka broker: the part of Kafka's wire protocol that the benchmarks need.
Encoded here, so that the broker is measured and not a client library, in the last versions without tagged fields.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Mapping
from typing import Self

from typing_extensions import override

from benchmarks.peers.lanes import Tally
from benchmarks.peers.voice import (
    CLIENT_ID,
    HEARTBEAT_S,
    PROTOCOL,
    PROTOCOL_TYPE,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    TOPIC,
    Joined,
    check,
)
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# (key, version)
COMMIT, FETCH, FIND, JOIN, HEARTBEAT, SYNC = (8, 7), (9, 5), (10, 1), (11, 5), (12, 3), (14, 3)
NULL = struct.pack(">h", -1)
NO_EPOCH = -1
# Constant, because responses arrive in the order of the requests.
CORRELATION = 1


def string(text: str) -> bytes:
    """Encode a string."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def block(data: bytes) -> bytes:
    """Encode bytes."""
    return struct.pack(">i", len(data)) + data


def array(items: list[bytes]) -> bytes:
    """Encode an array."""
    return struct.pack(">i", len(items)) + b"".join(items)


def request(api: tuple[int, int], body: bytes) -> bytes:
    """Return a complete request with its header."""
    return block(struct.pack(">hhi", *api, CORRELATION) + string(CLIENT_ID) + body)


def join_request(group: str, member_id: str, metadata: bytes) -> bytes:
    """Return a JoinGroup request."""
    times = struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
    protocols = array([string(PROTOCOL) + block(metadata)])
    return request(JOIN, string(group) + times + string(member_id) + NULL + string(PROTOCOL_TYPE) + protocols)


def sync_request(group: str, joined: Joined, assignments: Mapping[str, bytes]) -> bytes:
    """Return a SyncGroup request."""
    parts = array([string(member_id) + block(data) for member_id, data in assignments.items()])
    return request(SYNC, identity(group, joined) + parts)


def heartbeat_request(group: str, joined: Joined) -> bytes:
    """Return a Heartbeat request."""
    return request(HEARTBEAT, identity(group, joined))


def commit_request(group: str, joined: Joined, partitions: range) -> bytes:
    """Return an OffsetCommit request with one offset per partition."""
    offsets = [struct.pack(">iqi", index, 1, NO_EPOCH) + string("") for index in partitions]
    return request(COMMIT, identity(group, joined) + array([string(TOPIC) + array(offsets)]))


def fetch_request(group: str) -> bytes:
    """Return an OffsetFetch request without partitions, whose response shows whether the group is available."""
    return request(FETCH, string(group) + array([]))


def find_request(group: str) -> bytes:
    """Return a FindCoordinator request; the first one makes the broker create its internal topic."""
    of_a_group = b"\0"
    return request(FIND, string(group) + of_a_group)


def identity(group: str, joined: Joined) -> bytes:
    """Encode the identity of a member, which is the same in all its requests."""
    return string(group) + struct.pack(">i", joined.generation) + string(joined.member_id) + NULL


class Reader:
    """Decodes the fields of a response in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        # After the correlation id and the throttle time.
        self._at = 8

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def string(self) -> str:
        return self._take(self.number(">h")).decode()

    def block(self) -> bytes:
        return self._take(self.number(">i"))

    def _take(self, length: int) -> bytes:
        length = max(length, 0)
        self._at += length
        return self._data[self._at - length : self._at]


def read_join(data: bytes) -> Joined:
    """Decode the response to JoinGroup."""
    answer = Reader(data)
    error, generation = answer.number(">h"), answer.number(">i")
    answer.string()
    leader, member_id = answer.string(), answer.string()
    members = []
    for _ in range(answer.number(">i")):
        members.append(answer.string())
        answer.string()
        answer.block()
    return Joined(error, generation, member_id, leader, tuple(members))


def commit_errors(data: bytes) -> set[int]:
    """Return the error codes of a response to OffsetCommit."""
    answer = Reader(data)
    errors = set()
    for _ in range(answer.number(">i")):
        answer.string()
        for _ in range(answer.number(">i")):
            answer.number(">i")
            errors.add(answer.number(">h"))
    return errors


def fetch_error(data: bytes) -> int:
    """Return the error code of a response to OffsetFetch without partitions."""
    answer = Reader(data)
    answer.number(">i")
    return answer.number(">h")


class Wire(asyncio.Protocol):
    """One connection to a broker. Requests may be pipelined; responses arrive in their order."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._data = bytearray()

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connect to HOST:PORT."""
        host, _, port = address.rpartition(":")
        _, wire = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return wire

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(exc or ConnectionError("the broker has hung up"))
        self._waiting.clear()

    @override
    def data_received(self, data: bytes) -> None:
        self._data += data
        at = 0
        while len(self._data) - at >= 4:
            (length,) = struct.unpack_from(">i", self._data, at)
            if len(self._data) - at - 4 < length:
                break
            answer = bytes(self._data[at + 4 : at + 4 + length])
            at += 4 + length
            self.answered(answer)
        del self._data[:at]

    def answered(self, data: bytes) -> None:
        """Handle a complete response."""
        answer = self._waiting.popleft()
        if not answer.done():  # the caller may have been cancelled
            answer.set_result(data)

    def send(self, data: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self._transport.write(data)

    async def ask(self, data: bytes) -> bytes:
        """Send a request, and return its response."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self.send(data)
        return await answer

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()


class KafkaVoice:
    """The requests of one member on its own connection, as for every Kafka consumer."""

    def __init__(self, wire: Wire, group: str, phase: float) -> None:
        self._wire = wire
        self._group = group
        # Offset of the first heartbeat within the interval, because consumers do not send heartbeats in step.
        self._phase = phase

    async def join(self, member_id: str, metadata: bytes) -> Joined:
        if not member_id:
            await self._wire.ask(find_request(self._group))
        return read_join(await self._wire.ask(join_request(self._group, member_id, metadata)))

    async def sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> int:
        return Reader(await self._wire.ask(sync_request(self._group, joined, assignments))).number(">h")

    async def must_join(self, joined: Joined) -> None:
        pause_s = HEARTBEAT_S * self._phase
        while True:
            await asyncio.sleep(pause_s)
            error = Reader(await self._wire.ask(heartbeat_request(self._group, joined))).number(">h")
            if error == pb.REBALANCE_IN_PROGRESS:
                return
            check(error, "a heartbeat")
            pause_s = HEARTBEAT_S


class WireLane(Wire):
    """A closed-loop connection: each request is sent again as soon as it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[bytes] = []
        # Requests in flight: index of the request, and the time at which it was sent.
        self._open: deque[tuple[int, float]] = deque()
        self._tally = Tally()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def drive(self, tally: Tally) -> None:
        """Keep all requests in flight until the time is up."""
        self._tally = tally
        self._done = asyncio.get_running_loop().create_future()
        for number in range(len(self.requests)):
            self._send_again(number)
        await self._done

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the broker has hung up"))

    @override
    def answered(self, data: bytes) -> None:
        number, sent_at = self._open.popleft()
        self._tally.answered(sent_at, data)
        if not self._tally.over:
            self._send_again(number)
        elif not self._open:
            self._done.set_result(None)

    def _send_again(self, number: int) -> None:
        self._open.append((number, self._tally.now()))
        self.send(self.requests[number])
