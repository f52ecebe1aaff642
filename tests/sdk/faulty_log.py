"""
A Log service with injected faults: lost answers, hanging calls, and errors that a client cannot cause.

The coordinator's own core, in memory, decides every request; only the faults are artificial.
"""

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from rota.connection import background
from rota_coordinator.core.group.answers import copied
from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.batch import Control, Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.log import Log
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import unpack
from rota_proto.log.v1 import log_pb2 as pb

TOPIC = "orders"
PARTITIONS = 3
WITHIN_S = 60
Context = grpc.aio.ServicerContext[Any, Any]
Reply = TypeVar("Reply", bound=Message)


class Fault(enum.Enum):
    """Fault of one call."""

    LOST_REQUEST = enum.auto()
    LOST_ANSWER = enum.auto()
    # Taken, and never answered.
    HANG = enum.auto()
    NOT_KNOWN = enum.auto()


class FaultyLog:
    """A log with one topic. `faults` are those of the next calls, by the call's name; None: none."""

    def __init__(self) -> None:
        self._log = Log(LogConfig())
        self._log.loaded(WallMs(0))
        self.faults: dict[str, deque[Fault | codes.ErrorCode.ValueType | None]] = {}
        self.seen: list[Message] = []
        # Of every call.
        self.user_agents: list[str] = []
        self._rows: list[Row] = []
        # Held back while it is clear.
        self.open = asyncio.Event()
        self.open.set()
        self.most_together = 0
        self._together = 0
        topic = pb.CreateTopicsRequest.Topic(
            name=TOPIC, partitions=PARTITIONS, retention_ms=-1, retention_bytes=-1
        )
        effects = Effects()
        self._log.create_topics(pb.CreateTopicsRequest(topics=[topic]), lambda: b"0" * 16, effects)

    def _write(self, effects: Effects) -> None:
        self._rows += effects.rows
        self._log.written(effects.rows)

    def handlers(self) -> grpc.GenericRpcHandler:
        """The calls that there are."""
        calls: dict[str, tuple[Callable[..., Any], type[Message]]] = {
            "DescribeTopics": (self.describe_topics, pb.DescribeTopicsRequest),
            "Produce": (self.produce, pb.ProduceRequest),
            "InitProducer": (self.init_producer, pb.InitProducerRequest),
            "AddOffsetsToTransaction": (self.add_offsets, pb.AddOffsetsToTransactionRequest),
            "EndTransaction": (self.end_transaction, pb.EndTransactionRequest),
        }
        return handler_of("rota.log.v1.Log", calls)

    def coordinator_handlers(self) -> grpc.GenericRpcHandler:
        """The calls of the coordinator that serves the log."""
        calls: dict[str, tuple[Callable[..., Any], type[Message]]] = {
            "TxnCommitOffsets": (self.txn_commit_offsets, codes.TxnCommitOffsetsRequest),
        }
        return handler_of("rota.coordinator.v1.Coordinator", calls)

    def fail(self, call: str, *faults: Fault | codes.ErrorCode.ValueType | None) -> None:
        """Inject these faults into the next calls of that name."""
        self.faults[call] = deque(faults)

    def produced(self) -> list[pb.ProduceRequest]:
        """All that was sent, also again."""
        return [request for request in self.seen if isinstance(request, pb.ProduceRequest)]

    def batches(self) -> list[tuple[int, int, int, int]]:
        """Partition, producer id, epoch and base sequence of every batch that came, also again."""
        return [
            (part.index, batch.producer_id, batch.producer_epoch, batch.base_sequence)
            for request in self.produced()
            for part in request.partitions
            for batch in part.batches
        ]

    def values(self, index: int) -> list[bytes | None]:
        """Batches that were written to a partition."""
        partition = self._log.partition(TOPIC, index)
        assert not isinstance(partition, int)
        return [
            value
            for row in self._rows
            if row.log_id == partition.log_id and row.header.control is Control.RECORDS
            for value in unpack(row.payload, row.header.count, row.header.base_timestamp_ms).values or ()
        ]

    def ends(self) -> dict[int, int]:
        """Number of offsets that each partition has assigned."""
        found = {}
        for index in range(PARTITIONS):
            partition = self._log.partition(TOPIC, index)
            assert not isinstance(partition, int)
            found[index] = partition.end
        return found

    async def _answer(
        self,
        request: Message,
        context: Context,
        decide: Callable[[Effects], Reply],
        refuse: Callable[[codes.ErrorCode.ValueType], Reply],
    ) -> Reply:
        call = type(request).__name__.removesuffix("Request")
        self.seen.append(request)
        metadata = dict(context.invocation_metadata() or ())
        self.user_agents.append(str(metadata["user-agent"]))
        self._together += 1
        self.most_together = max(self.most_together, self._together)
        try:
            await self.open.wait()
            waiting = self.faults.get(call)
            fault = waiting.popleft() if waiting else None
            if fault is Fault.NOT_KNOWN:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
            if fault is Fault.LOST_REQUEST:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the request was lost")
            if isinstance(fault, int):
                return refuse(fault)
            effects = Effects()
            reply = decide(effects)
            self._write(effects)
            if fault is Fault.LOST_ANSWER:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
            if fault is Fault.HANG:
                await asyncio.Event().wait()
            return reply
        finally:
            self._together -= 1

    async def describe_topics(
        self, request: pb.DescribeTopicsRequest, context: Context
    ) -> pb.DescribeTopicsResponse:
        return await self._answer(
            request,
            context,
            lambda effects: self._log.describe_topics(request),
            lambda code: pb.DescribeTopicsResponse(
                topics=[pb.DescribeTopicsResponse.Topic(name=name, error_code=code) for name in request.names]
            ),
        )

    async def produce(self, request: pb.ProduceRequest, context: Context) -> pb.ProduceResponse:
        def decide(effects: Effects) -> pb.ProduceResponse:
            parts = [
                self._log.append(part, request.transactional_id, WallMs(1), effects)
                for part in request.partitions
            ]
            return pb.ProduceResponse(partitions=parts)

        def refuse(code: codes.ErrorCode.ValueType) -> pb.ProduceResponse:
            # The first partition alone; the others are served.
            first, *others = request.partitions
            refused = pb.ProduceResponse.Partition(
                topic=first.topic,
                index=first.index,
                error_code=code,
                base_offset=-1,
                error_message="refused on purpose",
            )
            effects = Effects()
            served = [self._log.append(part, request.transactional_id, WallMs(1), effects) for part in others]
            self._write(effects)
            return pb.ProduceResponse(partitions=[*reversed(served), refused])

        return await self._answer(request, context, decide, refuse)

    async def init_producer(
        self, request: pb.InitProducerRequest, context: Context
    ) -> pb.InitProducerResponse:
        return await self._answer(
            request,
            context,
            lambda effects: self._log.init_producer(request, WallMs(1), effects),
            lambda code: pb.InitProducerResponse(error_code=code, producer_id=-1, producer_epoch=-1),
        )

    async def add_offsets(
        self, request: pb.AddOffsetsToTransactionRequest, context: Context
    ) -> pb.AddOffsetsToTransactionResponse:
        return await self._answer(
            request,
            context,
            lambda effects: self._log.add_offsets(request, WallMs(1), effects),
            lambda code: pb.AddOffsetsToTransactionResponse(error_code=code),
        )

    async def txn_commit_offsets(
        self, request: codes.TxnCommitOffsetsRequest, context: Context
    ) -> codes.TxnCommitOffsetsResponse:
        """Check the transaction, and store no offsets: the group is not part of this service."""

        def answered(code: codes.ErrorCode.ValueType) -> codes.TxnCommitOffsetsResponse:
            return codes.TxnCommitOffsetsResponse(error_code=code, topics=copied(request, code))

        return await self._answer(
            request, context, lambda effects: answered(self._log.txn_offsets_error(request)), answered
        )

    async def end_transaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionResponse:
        return await self._answer(
            request,
            context,
            lambda effects: self._log.end(request, codes.NONE, WallMs(1), effects),
            lambda code: pb.EndTransactionResponse(error_code=code, producer_id=-1, producer_epoch=-1),
        )


def handler_of(
    service: str, calls: dict[str, tuple[Callable[..., Any], type[Message]]]
) -> grpc.GenericRpcHandler:
    """Return the handler of a service with these calls, by their names."""
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=kind.FromString,
                response_serializer=lambda reply: reply.SerializeToString(),
            )
            for name, (call, kind) in calls.items()
        },
    )


@contextmanager
def faulty_log() -> Iterator[tuple[FaultyLog, str]]:
    """One that serves, and its address. It runs on the loop of the producers that it is for."""

    async def start() -> tuple[grpc.aio.Server, FaultyLog, int]:
        log = FaultyLog()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((log.handlers(), log.coordinator_handlers()))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, log, port

    server, log, port = background().run(start(), WITHIN_S)
    try:
        yield log, f"rota://127.0.0.1:{port}"
    finally:
        background().run(server.stop(None), WITHIN_S)
