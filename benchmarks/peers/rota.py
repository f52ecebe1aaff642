"""
Client of Rota's coordinator: members that share a Session stream, as in a sidecar.

Frames are encoded before the measurement where possible, so that the coordinator is measured and not the client.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Mapping, Sequence

import grpc
import grpc.aio
from google.protobuf.message import Message

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

SESSION = "/rota.coordinator.v1.Coordinator/Session"
# Separate connections for all channels, as from separate pods.
CHANNEL = (("grpc.use_local_subchannel_pool", 1),)
NO_EPOCH = -1


def channel(address: str) -> grpc.aio.Channel:
    """Open a channel with its own connection."""
    return grpc.aio.insecure_channel(address, options=CHANNEL)


def heartbeat_request(group: str, joined: Joined) -> pb.HeartbeatRequest:
    """Return a Heartbeat request."""
    return pb.HeartbeatRequest(group_id=group, generation_id=joined.generation, member_id=joined.member_id)


def commit_request(group: str, joined: Joined, partitions: Sequence[int]) -> pb.CommitOffsetsRequest:
    """Return a CommitOffsets request with one offset per partition."""
    offsets = [pb.PartitionOffset(index=index, offset=1, leader_epoch=NO_EPOCH) for index in partitions]
    return pb.CommitOffsetsRequest(
        group_id=group,
        generation_id=joined.generation,
        member_id=joined.member_id,
        topics=[pb.TopicOffsets(name=TOPIC, partitions=offsets)],
    )


class Stream:
    """One Session stream, for any number of members; closed by its channel."""

    def __init__(self, connection: grpc.aio.Channel) -> None:
        self._answers: dict[int, asyncio.Future[pb.SessionResponse]] = {}
        self._numbers = itertools.count(1)
        self._frames: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        # Members by their id, to be notified of rebalances.
        self.members: dict[str, RotaVoice] = {}
        self._call = connection.stream_stream(
            SESSION,
            request_serializer=pb.SessionRequest.SerializeToString,
            response_deserializer=pb.SessionResponse.FromString,
        )(self._outgoing())
        self._reader = asyncio.create_task(self._read())

    async def ask(self, **request: Message) -> pb.SessionResponse:
        """Send a frame, and return its response."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._frames.put_nowait(pb.SessionRequest(request_id=number, **request))  # type: ignore[arg-type]
        reply: pb.SessionResponse = await answer
        return reply

    def close(self) -> None:
        """End the stream."""
        self._reader.cancel()

    async def _outgoing(self) -> AsyncIterator[pb.SessionRequest]:
        while True:
            yield await self._frames.get()

    async def _read(self) -> None:
        try:
            async for frame in self._call:
                if not frame.request_id:
                    notice = frame.rebalance_notice
                    self.members[notice.member_id].notify(notice.generation_id)
                elif not (answer := self._answers.pop(frame.request_id)).done():
                    answer.set_result(frame)
        except grpc.aio.AioRpcError as error:
            for answer in self._answers.values():
                answer.set_exception(error)


class RotaVoice:
    """The requests of one member on a stream."""

    def __init__(self, stream: Stream, group: str) -> None:
        self._stream = stream
        self._group = group
        self._notified = asyncio.Event()
        # The ended generation of the last notice.
        self._over = -1

    def notify(self, generation: int) -> None:
        """Record a notice of a rebalance, and end the wait for the next heartbeat."""
        self._over = generation
        self._notified.set()

    async def join(self, member_id: str, metadata: bytes) -> Joined:
        request = pb.JoinGroupRequest(
            group_id=self._group,
            member_id=member_id,
            client_id=CLIENT_ID,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type=PROTOCOL_TYPE,
            protocols=[pb.Protocol(name=PROTOCOL, metadata=metadata)],
        )
        reply = (await self._stream.ask(join_group=request)).join_group
        self._stream.members[reply.member_id] = self
        members = tuple(member.member_id for member in reply.members)
        return Joined(reply.error_code, reply.generation_id, reply.member_id, reply.leader, members)

    async def sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> int:
        request = pb.SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=[
                pb.Assignment(member_id=each, assignment=data) for each, data in assignments.items()
            ],
        )
        return (await self._stream.ask(sync_group=request)).sync_group.error_code

    async def must_join(self, joined: Joined) -> None:
        pause_s = HEARTBEAT_S * random.random()
        # A notice may arrive after the member has rejoined; it is then about an earlier generation.
        while self._over < joined.generation:
            self._notified.clear()
            try:
                await asyncio.wait_for(self._notified.wait(), pause_s)
            except TimeoutError:
                reply = await self._stream.ask(heartbeat=heartbeat_request(self._group, joined))
                if reply.heartbeat.error_code == pb.REBALANCE_IN_PROGRESS:
                    return
                check(reply.heartbeat.error_code, "a heartbeat")
                pause_s = HEARTBEAT_S


class StreamLane:
    """A closed-loop stream: each frame is sent again as soon as it is answered."""

    def __init__(self, connection: grpc.aio.Channel, requests: Sequence[Mapping[str, Message]]) -> None:
        # Undecoded bytes in both directions, which keeps the client's own work small.
        self._call: grpc.aio.StreamStreamCall[bytes, bytes] = connection.stream_stream(SESSION)()
        self._frames = {
            number: pb.SessionRequest(request_id=number, **request).SerializeToString()  # type: ignore[arg-type]
            for number, request in enumerate(requests, 1)
        }

    async def drive(self, tally: Tally) -> None:
        """Keep all requests in flight until the time is up."""
        sent_at: dict[int, float] = {}
        for number, frame in self._frames.items():
            sent_at[number] = tally.now()
            await self._call.write(frame)
        while sent_at:
            data = await self._call.read()
            assert isinstance(data, bytes), "the stream has ended"
            number = pb.SessionResponse.FromString(data).request_id
            tally.answered(sent_at.pop(number), data)
            if not tally.over:
                sent_at[number] = tally.now()
                await self._call.write(self._frames[number])
