"""The Log service: topics, records and transactions of the embedded log, for callers that `security.door` lets in."""

from collections.abc import Callable
from typing import Any, TypeVar

import grpc.aio
from typing_extensions import override

from rota_coordinator.fetches import Fetches
from rota_coordinator.log.effects import Effects
from rota_coordinator.log.log import Log
from rota_coordinator.lookups import Lookups
from rota_coordinator.overload import Refusal
from rota_coordinator.security.door import Door
from rota_coordinator.topic_log import TopicLog
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1 import log_pb2_grpc as pb_grpc

# Of payloads that are taken and not written yet.
WAITING_BYTES_MAX = 64 * 1024 * 1024
Context = grpc.aio.ServicerContext[Any, Any]
Reply = TypeVar("Reply")


class LogServer(pb_grpc.LogServicer):
    """The calls of the service."""

    def __init__(self, door: Door, log: TopicLog) -> None:
        self._door = door
        self._log = log
        self._fetches = Fetches(log, log.shell.store)
        self._lookups = Lookups(log, log.shell.store)

    @override
    async def CreateTopics(
        self, request: pb.CreateTopicsRequest, context: Context
    ) -> pb.CreateTopicsResponse:
        await self._door.admit(context)
        return await self._log.decide(
            lambda log, effects: log.create_topics(request, self._log.shell.fresh, effects)
        )

    @override
    async def DeleteTopics(
        self, request: pb.DeleteTopicsRequest, context: Context
    ) -> pb.DeleteTopicsResponse:
        await self._door.admit(context)
        return await self._log.decide(lambda log, effects: log.delete_topics(request, effects))

    @override
    async def DescribeTopics(
        self, request: pb.DescribeTopicsRequest, context: Context
    ) -> pb.DescribeTopicsResponse:
        await self._door.admit(context)
        return await self._log.decide(lambda log, effects: log.describe_topics(request))

    @override
    async def CreatePartitions(
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsResponse:
        await self._door.admit(context)
        return await self._log.decide(lambda log, effects: log.create_partitions(request, effects))

    @override
    async def Produce(self, request: pb.ProduceRequest, context: Context) -> pb.ProduceResponse:
        await self._door.admit(context)
        waiting = self._log.shell.store.rows_waiting_bytes()
        if waiting > WAITING_BYTES_MAX:
            sentence = f"{waiting} bytes wait for the disk; nothing was appended, try again in a moment"
            raise Refusal("RESOURCE_EXHAUSTED", sentence)
        now_ms = self._log.shell.now_ms()

        def decide(log: Log, effects: Effects) -> pb.ProduceResponse:
            return pb.ProduceResponse(
                partitions=[
                    log.append(partition, request.transactional_id, now_ms, effects)
                    for partition in request.partitions
                ]
            )

        reply, written = self._log.decided(decide, flush=request.acks == pb.ACKS_ALL)
        if written is not None and request.acks != pb.ACKS_NONE:
            await self._log.wait(written)
        return reply

    @override
    async def Fetch(self, request: pb.FetchRequest, context: Context) -> pb.FetchResponse:
        await self._door.admit(context)
        return await self._fetches.fetch(request)

    @override
    async def ListOffsets(self, request: pb.ListOffsetsRequest, context: Context) -> pb.ListOffsetsResponse:
        await self._door.admit(context)
        return await self._lookups.list_offsets(request)

    @override
    async def InitProducer(
        self, request: pb.InitProducerRequest, context: Context
    ) -> pb.InitProducerResponse:
        await self._door.admit(context)
        if not self._may_end(request.transactional_id):
            return pb.InitProducerResponse(error_code=codes.CONCURRENT_TRANSACTIONS)
        return await self._timed(lambda log, now_ms, effects: log.init_producer(request, now_ms, effects))

    @override
    async def AddOffsetsToTransaction(
        self, request: pb.AddOffsetsToTransactionRequest, context: Context
    ) -> pb.AddOffsetsToTransactionResponse:
        await self._door.admit(context)
        return await self._timed(lambda log, now_ms, effects: log.add_offsets(request, now_ms, effects))

    @override
    async def EndTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionResponse:
        await self._door.admit(context)
        if not self._may_end(request.transactional_id):
            return pb.EndTransactionResponse(error_code=codes.CONCURRENT_TRANSACTIONS)
        refused = self._log.refusal_of(request.transactional_id) if request.commit else codes.NONE
        return await self._timed(lambda log, now_ms, effects: log.end(request, refused, now_ms, effects))

    @override
    async def DeleteRecords(
        self, request: pb.DeleteRecordsRequest, context: Context
    ) -> pb.DeleteRecordsResponse:
        await self._door.admit(context)
        return await self._log.delete_records(request)

    def _may_end(self, transactional_id: str) -> bool:
        self._log.check()
        members = self._log.core.memberships(transactional_id)
        return self._log.may_end(member.group_id for member in members)

    async def _timed(self, decide: Callable[[Log, int, Effects], Reply]) -> Reply:
        now_ms = self._log.shell.now_ms()
        return await self._log.decide(lambda log, effects: decide(log, now_ms, effects))
