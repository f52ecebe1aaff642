"""The Log service: topics, records and transactions of the embedded log, within the caller's rights to each topic."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.administration import Creator
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.log import Log
from rota_coordinator.core.quotas import Budget
from rota_coordinator.runtime.fetches import Fetches
from rota_coordinator.runtime.offset_lookups import OffsetLookups
from rota_coordinator.runtime.overload import Refusal
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.security.access_control import AccessControl, AuthorizedCaller
from rota_coordinator.security.policy import TopicAction
from rota_coordinator.security.topics import screened
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1 import log_pb2_grpc as pb_grpc

# Maximum bytes of accepted payloads that are not written yet.
WAITING_BYTES_MAX = 64 * 1024 * 1024
Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class LogService(pb_grpc.LogServicer):
    """Handles the calls of the Log service."""

    def __init__(self, access_control: AccessControl, log: TopicLog) -> None:
        self._access_control = access_control
        self._log = log
        self._fetches = Fetches(log, log.environment.store)
        self._lookups = OffsetLookups(log, log.environment.store)

    @override
    async def CreateTopics(
        self, request: pb.CreateTopicsRequest, context: Context
    ) -> pb.CreateTopicsResponse:
        new_uuid = self._log.environment.new_uuid
        caller = self._access_control.caller()
        creator = Creator(caller.principal.name, self._budget().reserve)
        return await self._screened(
            caller, request, lambda log, asked, effects: log.create_topics(asked, new_uuid, effects, creator)
        )

    @override
    async def DeleteTopics(
        self, request: pb.DeleteTopicsRequest, context: Context
    ) -> pb.DeleteTopicsResponse:
        return await self._about_topics(
            request, context, lambda log, asked, effects: log.delete_topics(asked, effects)
        )

    @override
    async def CreatePartitions(
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsResponse:
        return await self._about_topics(
            request,
            context,
            lambda log, asked, effects: log.create_partitions(asked, effects, self._budget().reserve),
        )

    @override
    async def AlterTopics(self, request: pb.AlterTopicsRequest, context: Context) -> pb.AlterTopicsResponse:
        return await self._about_topics(
            request, context, lambda log, asked, effects: log.alter_topics(asked, effects)
        )

    @override
    async def DescribeTopics(
        self, request: pb.DescribeTopicsRequest, context: Context
    ) -> pb.DescribeTopicsResponse:
        caller = self._access_control.caller()
        if request.names:
            return await self._screened(
                caller, request, lambda log, asked, effects: log.describe_topics(asked)
            )
        everything = await self._log.decide(lambda log, effects: log.describe_topics(request))
        seen = [each for each in everything.topics if caller.may_topic(TopicAction.CONSUME, each.name)]
        return pb.DescribeTopicsResponse(topics=seen)

    @override
    async def Produce(self, request: pb.ProduceRequest, context: Context) -> pb.ProduceResponse:
        caller = self._access_control.caller()
        waiting = self._log.environment.store.rows_waiting_bytes()
        if waiting > WAITING_BYTES_MAX:
            message = f"{waiting} bytes are waiting to be written to disk; nothing was appended, retry later"
            raise Refusal("RESOURCE_EXHAUSTED", message)
        if request.transactional_id and not may_transact(caller, request, request.transactional_id):
            return refused_producing(request, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return await screened(request, caller, self._produce)

    async def _produce(self, request: pb.ProduceRequest) -> pb.ProduceResponse:
        now_ms = self._log.environment.now_ms()
        reserve = self._budget().reserve

        def decide(log: Log, effects: Effects) -> pb.ProduceResponse:
            return pb.ProduceResponse(
                partitions=[
                    log.append(partition, request.transactional_id, now_ms, effects, reserve)
                    for partition in request.partitions
                ]
            )

        reply, write = self._log.start_decision(decide, flush=request.acks == pb.ACKS_ALL)
        if write is not None and request.acks != pb.ACKS_NONE:
            await self._log.wait(write)
        return reply

    @override
    async def Fetch(self, request: pb.FetchRequest, context: Context) -> pb.FetchResponse:
        caller = self._access_control.caller()
        return await screened(request, caller, self._fetches.fetch)

    @override
    async def ListOffsets(self, request: pb.ListOffsetsRequest, context: Context) -> pb.ListOffsetsResponse:
        caller = self._access_control.caller()
        return await screened(request, caller, self._lookups.list_offsets)

    @override
    async def InitProducer(
        self, request: pb.InitProducerRequest, context: Context
    ) -> pb.InitProducerResponse:
        caller = self._access_control.caller()
        error = self._transaction_error(caller, request)
        if error:
            return pb.InitProducerResponse(error_code=error)
        return await self._timed(lambda log, now_ms, effects: log.init_producer(request, now_ms, effects))

    @override
    async def AddOffsetsToTransaction(
        self, request: pb.AddOffsetsToTransactionRequest, context: Context
    ) -> pb.AddOffsetsToTransactionResponse:
        caller = self._access_control.caller()
        if not may_transact(caller, request, request.transactional_id):
            error: codes.ErrorCode.ValueType = codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return pb.AddOffsetsToTransactionResponse(error_code=error)
        if not caller.may_be_member(request.group_id):
            caller.denied(request, request.group_id, codes.GROUP_AUTHORIZATION_FAILED)
            return pb.AddOffsetsToTransactionResponse(error_code=codes.GROUP_AUTHORIZATION_FAILED)
        is_static = request.HasField("group_instance_id")
        if is_static and not caller.may_use_instance(request.group_id, request.group_instance_id):
            caller.denied(request, request.group_id, codes.FENCED_INSTANCE_ID)
            return pb.AddOffsetsToTransactionResponse(error_code=codes.FENCED_INSTANCE_ID)
        return await self._timed(lambda log, now_ms, effects: log.add_offsets(request, now_ms, effects))

    @override
    async def EndTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionResponse:
        caller = self._access_control.caller()
        error = self._transaction_error(caller, request)
        if error:
            return pb.EndTransactionResponse(error_code=error)
        members = self._log.core.memberships(request.transactional_id)
        refused = self._log.groups.commit_refusal(members) if request.commit else codes.NONE
        return await self._timed(lambda log, now_ms, effects: log.end(request, refused, now_ms, effects))

    @override
    async def DeleteRecords(
        self, request: pb.DeleteRecordsRequest, context: Context
    ) -> pb.DeleteRecordsResponse:
        caller = self._access_control.caller()
        act = self._log.delete_records
        return await screened(request, caller, act)

    def _budget(self) -> Budget:
        """Return the quota budget that the parts of one request share."""
        return Budget(self._log.environment.quotas)

    def _transaction_error(
        self, caller: AuthorizedCaller, request: pb.InitProducerRequest | pb.EndTransactionRequest
    ) -> codes.ErrorCode.ValueType:
        """
        Return the error of a transaction that cannot begin or end now; NONE if it can, or without a transactional id.
        """
        self._log.check_ready()
        transactional_id = request.transactional_id
        if not transactional_id:
            return codes.NONE
        if not may_transact(caller, request, transactional_id):
            return codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        members = self._log.core.memberships(transactional_id)
        # A group that is being loaded can take part shortly.
        may_end = self._log.groups.are_served(member.group_id for member in members)
        return codes.NONE if may_end else codes.CONCURRENT_TRANSACTIONS

    async def _about_topics(
        self, request: Request, context: Context, decide: Callable[[Log, Request, Effects], Reply]
    ) -> Reply:
        return await self._screened(self._access_control.caller(), request, decide)

    async def _screened(
        self, caller: AuthorizedCaller, request: Request, decide: Callable[[Log, Request, Effects], Reply]
    ) -> Reply:
        act: Callable[[Request], Awaitable[Reply]] = lambda asked: self._log.decide(
            lambda log, effects: decide(log, asked, effects)
        )
        return await screened(request, caller, act)

    async def _timed(self, decide: Callable[[Log, WallMs, Effects], Reply]) -> Reply:
        now_ms = self._log.environment.now_ms()
        return await self._log.decide(lambda log, effects: decide(log, now_ms, effects))


def may_transact(caller: AuthorizedCaller, request: Message, transactional_id: str) -> bool:
    """Return whether the caller may be the producer of this transactional id, and record it if not."""
    if caller.may_transact(transactional_id):
        return True
    caller.denied(request, transactional_id, codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return False


def refused_producing(request: pb.ProduceRequest, error: codes.ErrorCode.ValueType) -> pb.ProduceResponse:
    """Return a response with this error for every partition."""
    return pb.ProduceResponse(
        partitions=[
            pb.ProduceResponse.Partition(topic=each.topic, index=each.index, error_code=error, base_offset=-1)
            for each in request.partitions
        ]
    )
