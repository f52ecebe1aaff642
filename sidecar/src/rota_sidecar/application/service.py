"""
The gRPC service for the application beside the sidecar: `rota.sidecar.v1.Consumer`.

Created by `process/listeners.py`, on a server whose addresses `listening` binds. Every client that reaches the service is
authorized for everything; its socket is therefore private, and its port on loopback.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1 import sidecar_pb2_grpc as pb_grpc
from rota_service.validation_interceptor import UndecodableRequest
from rota_sidecar.application import streams
from rota_sidecar.application.attachment import Attachment
from rota_sidecar.application.calls import Calls
from rota_sidecar.application.outgoing import MESSAGE_BYTES_MAX
from rota_sidecar.application.port import AttachedAlready, Deliveries
from rota_sidecar.application.refusals import Refusal, failed_precondition
from rota_sidecar.application.translating import Sample, metrics_to
from rota_sidecar.application.validation_interceptor import ApplicationInterceptor
from rota_sidecar.engines.batch_slicing import BatchSlicer

# Limit of concurrent calls. An application needs a few.
CALLS_MAX = 256
# Time limit of a call without a deadline.
WITHIN_S_MAX = 300
KEEPALIVE_MS = 10_000
OPTIONS = (
    # gRPC itself rejects larger messages with RESOURCE_EXHAUSTED.
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    # Without the second option a silent peer is detected after a minute, whatever the first one is.
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    # Otherwise two sidecars could share a port, and each would get some of the application's calls.
    ("grpc.so_reuseport", 0),
)
Context = grpc.aio.ServicerContext[Any, Any]
Frames = AsyncIterator[Message | UndecodableRequest]
# Writes an event to the event log: its name and its message.
LogEvent = Callable[[str, str], None]
Samples = Callable[[], Iterable[Sample]]


class ConsumerService(pb_grpc.ConsumerServicer):
    """Implements the Consumer service. Invariant: at most one application is attached."""

    def __init__(
        self,
        deliveries: Deliveries,
        slicer: BatchSlicer,
        log_event: LogEvent,
        samples: Samples,
        frames_socket: str = "",
    ) -> None:
        """
        `samples` returns the present values of the sidecar's metrics, `frames_socket` is the name of the socket that serves Deliver in
        frames; empty: none.
        """
        self._deliveries = deliveries
        self._frames_socket = frames_socket
        self._samples = samples
        self._slicer = slicer
        self._log_event = log_event
        self._calls = Calls(deliveries)
        self._attachment: Attachment | None = None

    # -------------------------------------------------------------------------------------------- streams

    @override
    async def Attach(self, request_iterator: Frames, context: Context) -> None:  # type: ignore[override]  # writes for itself
        requests = streams.well_formed(request_iterator, pb.AttachRequest)
        hello = (await streams.hello(requests, "Attach")).hello
        attachment = Attachment(
            self._deliveries,
            self._slicer,
            reads_itself=hello.reads_itself,
            takes_errors=hello.takes_errors,
        )
        try:
            attachment.session = self._deliveries.attach(
                attachment,
                commits_itself=hello.commits_itself,
                reads_itself=hello.reads_itself,
                takes_many=True,
                takes_commits=hello.takes_commits,
            )
        except AttachedAlready as already:
            raise Refusal(grpc.StatusCode.ALREADY_EXISTS, str(already)) from None
        self._attachment = attachment
        name = hello.client_id or "an unnamed application"
        self._log_event("attached", f"{name} is attached")
        try:
            await streams.serve_attach(
                attachment, self._deliveries, self._frames_socket, requests, context.write
            )
        finally:
            self._detach(attachment, name)

    @override
    async def Deliver(self, request_iterator: Frames, context: Context) -> None:  # type: ignore[override]  # writes for itself
        requests = streams.well_formed(request_iterator, pb.DeliverRequest)
        hello = (await streams.hello(requests, "Deliver")).hello
        await streams.serve_deliver(self.attached(hello.session), requests, context.write)

    # -------------------------------------------------------------------------------------------- calls

    @override
    async def Subscribe(self, request: pb.SubscribeRequest, context: Context) -> pb.SubscribeResponse:
        return await self._calls.subscribe(request, within_s(context))

    @override
    async def Assign(self, request: pb.AssignRequest, context: Context) -> pb.AssignResponse:
        return await self._calls.assign(request, within_s(context))

    @override
    async def Poll(self, request: pb.PollRequest, context: Context) -> pb.PollResponse:
        return await self._calls.poll(self.attached(request.session), request, within_s(context))

    @override
    async def Commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        return await self._calls.commit(request, within_s(context))

    @override
    async def Seek(self, request: pb.SeekRequest, context: Context) -> pb.SeekResponse:
        return await self._calls.seek(self._attachment, request, within_s(context))

    @override
    async def Position(self, request: pb.PositionRequest, context: Context) -> pb.PositionResponse:
        return self._calls.position(request)

    @override
    async def Committed(self, request: pb.CommittedRequest, context: Context) -> pb.CommittedResponse:
        return await self._calls.committed(request, within_s(context))

    @override
    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.PauseResponse:
        return await self._calls.pause(request, within_s(context))

    @override
    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.ResumeResponse:
        return await self._calls.resume(request, within_s(context))

    @override
    async def Assignment(self, request: pb.AssignmentRequest, context: Context) -> pb.AssignmentResponse:
        return self._calls.assignment(self._attachment)

    @override
    async def OffsetsForTimes(
        self, request: pb.OffsetsForTimesRequest, context: Context
    ) -> pb.OffsetsForTimesResponse:
        return await self._calls.offsets_for_times(request, within_s(context))

    @override
    async def BeginningOffsets(
        self, request: pb.BeginningOffsetsRequest, context: Context
    ) -> pb.BeginningOffsetsResponse:
        return await self._calls.beginning_offsets(request, within_s(context))

    @override
    async def EndOffsets(self, request: pb.EndOffsetsRequest, context: Context) -> pb.EndOffsetsResponse:
        return await self._calls.end_offsets(request, within_s(context))

    @override
    async def Partitions(self, request: pb.PartitionsRequest, context: Context) -> pb.PartitionsResponse:
        return await self._calls.partitions(request, within_s(context))

    @override
    async def Topics(self, request: pb.TopicsRequest, context: Context) -> pb.TopicsResponse:
        return await self._calls.topics(within_s(context))

    @override
    async def Metrics(self, request: pb.MetricsRequest, context: Context) -> pb.MetricsResponse:
        return metrics_to(self._samples())

    # --------------------------------------------------------------------------------------------

    def attached(self, session: int) -> Attachment:
        """Return the attachment of a session. Raises a Refusal."""
        if self._attachment is None or self._attachment.session != session:
            raise failed_precondition(f"no application is attached with session {session}; open Attach first")
        return self._attachment

    def _detach(self, attachment: Attachment, name: str) -> None:
        self._attachment = None
        self._deliveries.detach(attachment.session, clean=attachment.is_clean)
        message = "the Attach stream of this session ended; attach again"
        attachment.end(Refusal(grpc.StatusCode.ABORTED, message))
        reason = "said goodbye" if attachment.is_clean else "disconnected without a goodbye"
        self._log_event("detached", f"{name} {reason}")


def within_s(context: Context) -> float:
    """Return the time that is left for a call, in seconds, at most `WITHIN_S_MAX`."""
    # None without a deadline, which gRPC's types do not declare.
    remaining_s: float | None = context.time_remaining()
    return WITHIN_S_MAX if remaining_s is None else min(remaining_s, WITHIN_S_MAX)


def make_server(service: ConsumerService) -> grpc.aio.Server:
    """Create a server with the service; it is neither bound nor started."""
    server = grpc.aio.server(
        interceptors=[ApplicationInterceptor()], options=OPTIONS, maximum_concurrent_rpcs=CALLS_MAX
    )
    pb_grpc.add_ConsumerServicer_to_server(service, server)
    return server
