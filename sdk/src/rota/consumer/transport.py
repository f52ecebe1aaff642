"""
Transports to a sidecar, used by the engines of consumers and handlers: gRPC here, memory in `rota.testing`.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import grpc.aio
from typing_extensions import override

from rota import errors
from rota.connection import OPTIONS
from rota.consumer.deliver_streams import DeliverStream, closed, open_stream, raise_status
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub

if TYPE_CHECKING:
    from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerAsyncStub

Code = grpc.StatusCode
ATTACH_S = 10.0
# Maximum delay of a verdict. After a crash of the application, the records finished meanwhile are delivered
# again.
LINGER_S = 0.005


class SidecarListener(Protocol):
    """Receives what the sidecar sends on an attachment's streams."""

    async def on_event(self, event: pb.AttachResponse.Event) -> None:
        """Handle a rebalance event."""
        ...

    async def on_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        """Handle a fetch error of partitions."""
        ...

    async def on_committed(self, committed: pb.AttachResponse.Committed) -> None:
        """Handle offsets that the sidecar has committed by itself."""
        ...

    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        """Handle records or rejected verdicts; the stream is read on after it returns."""
        ...


class Attachment(Protocol):
    """The two open streams of an application at its sidecar."""

    @property
    def settings(self) -> pb.AttachResponse.Attached:
        """Settings of the sidecar."""
        ...

    @property
    def linger_s(self) -> float:
        """Seconds that verdicts may wait to be batched."""
        ...

    async def send(self, request: pb.DeliverRequest) -> None:
        """Send verdicts, credit or an acknowledgement, in order. Raises Disconnected."""
        ...

    async def wait_ended(self) -> errors.RotaError:
        """Wait until the attachment has ended; return the reason."""
        ...

    async def detach(self) -> None:
        """Detach cleanly: records without a verdict were not begun."""
        ...


class Transport(Protocol):
    """A way to call a sidecar."""

    async def attach(self, hello: pb.AttachRequest.Hello, listener: SidecarListener) -> Attachment:
        """Attach as the sidecar's application. Raises Disconnected, or the sidecar's error."""
        ...

    async def ask(self, call: str, request: Any, within_s: float) -> Any:  # noqa: ANN401  one of many calls
        """Make a unary call once and return the response; raises one of `rota.errors`."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class GrpcTransport(Transport):
    """Transport over gRPC; created and used on a running event loop."""

    def __init__(self, address: str) -> None:
        """`unix:/path` or `host:port`."""
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub: ConsumerAsyncStub = ConsumerStub(self._channel)

    @override
    async def attach(self, hello: pb.AttachRequest.Hello, listener: SidecarListener) -> Attachment:
        attachment = GrpcAttachment(self._address, self._stub, listener)
        try:
            async with asyncio.timeout(ATTACH_S):
                await attachment.begin(hello)
        except BaseException as error:
            await attachment.cancel()
            if isinstance(error, grpc.aio.AioRpcError):
                raise error_of(error, self._address) from error
            if isinstance(error, TimeoutError):
                raise errors.Disconnected(
                    f"the sidecar at {self._address} did not accept this application within {ATTACH_S:.0f} s: "
                    "see its log"
                ) from error
            raise
        return attachment

    @override
    async def ask(self, call: str, request: Any, within_s: float) -> Any:
        try:
            return await getattr(self._stub, call)(request, timeout=max(within_s, 0.001))
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self._address) from error

    @override
    async def close(self) -> None:
        await self._channel.close()


class GrpcAttachment(Attachment):
    """Attach over gRPC, and Deliver over gRPC or in frames. Invariant: when one of them ends, so does the other."""

    def __init__(self, address: str, stub: "ConsumerAsyncStub", listener: SidecarListener) -> None:
        self._address = address
        self._stub = stub
        self._listener = listener
        self._attached = pb.AttachResponse.Attached()
        self._events = stub.Attach()
        self._deliveries: DeliverStream | None = None
        self._reading: list[asyncio.Task[None]] = []
        self._is_detaching = False

    async def begin(self, hello: pb.AttachRequest.Hello) -> None:
        """Open both streams. Raises AioRpcError."""
        await self._events.write(pb.AttachRequest(hello=hello))
        first = await self._events.read()
        if not isinstance(first, pb.AttachResponse):
            await raise_status(self._events)
            raise errors.Disconnected(f"the sidecar at {self._address} closed the attachment: see its log")
        self._attached = first.attached
        deliveries = await open_stream(self._stub, self._address, first.attached.frames_socket)
        self._deliveries = deliveries
        await deliveries.write(
            pb.DeliverRequest(hello=pb.DeliverRequest.Hello(session=first.attached.session))
        )
        self._reading = [
            asyncio.create_task(self._read_events()),
            asyncio.create_task(self._read_records(deliveries)),
        ]

    @property
    @override
    def settings(self) -> pb.AttachResponse.Attached:
        return self._attached

    @property
    @override
    def linger_s(self) -> float:
        return LINGER_S

    async def _read_events(self) -> None:
        while isinstance(response := await self._events.read(), pb.AttachResponse):
            if response.HasField("event"):
                await self._listener.on_event(response.event)
            elif response.HasField("error"):
                await self._listener.on_partition_error(response.error)
            elif response.HasField("committed"):
                await self._listener.on_committed(response.committed)

        await raise_status(self._events)

    async def _read_records(self, deliveries: DeliverStream) -> None:
        async for response in deliveries.responses():
            await self._listener.on_records(response)

    @override
    async def send(self, request: pb.DeliverRequest) -> None:
        assert self._deliveries is not None
        await self._deliveries.write(request)

    @override
    async def wait_ended(self) -> errors.RotaError:
        try:
            ended, _ = await asyncio.wait(self._reading, return_when=asyncio.FIRST_COMPLETED)
            if self._is_detaching:
                ended, _ = await asyncio.wait(self._reading)
        finally:
            await self.cancel()
        failed = next((task.exception() for task in ended if task.exception() is not None), None)
        if isinstance(failed, grpc.aio.AioRpcError):
            return error_of(failed, self._address)
        if failed is not None:
            raise failed
        return errors.Disconnected(f"the sidecar at {self._address} closed the attachment: see its log")

    @override
    async def detach(self) -> None:
        # First all verdicts, then the goodbye: the two streams could overtake each other.
        self._is_detaching = True
        events, records = self._reading
        assert self._deliveries is not None
        try:
            await self._deliveries.done_writing()
            await asyncio.wait([records])
            await self._events.write(pb.AttachRequest(goodbye=pb.AttachRequest.Goodbye()))
            await self._events.done_writing()
            await asyncio.wait([events])
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise closed(self._address) from error

    async def cancel(self) -> None:
        """Cancel both streams."""
        for task in self._reading:
            task.cancel()
        self._events.cancel()
        if self._deliveries is not None:
            await self._deliveries.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)


def error_of(error: grpc.aio.AioRpcError, address: str) -> errors.RotaError:
    """Translate transport errors, and refusals of a whole call."""
    said = error.details() or error.code().name
    match error.code():
        case Code.DEADLINE_EXCEEDED:
            return errors.TimedOut(
                f"the sidecar at {address} did not answer in time: check whether it reaches its servers"
            )
        case Code.UNIMPLEMENTED:
            return errors.NotSupported(f"the sidecar at {address} does not support this call: upgrade it")
        case Code.ALREADY_EXISTS:
            # The session may be this application's own, from before its connection broke.
            return errors.Disconnected(f"the sidecar at {address} rejected the call: {said}")
        case Code.FAILED_PRECONDITION | Code.INVALID_ARGUMENT | Code.OUT_OF_RANGE:
            return errors.SidecarFailed(f"the sidecar at {address} rejected the call: {said}")
        case Code.RESOURCE_EXHAUSTED:
            return errors.ThrottlingQuotaExceeded.with_message(f"the sidecar at {address}: {said}")
        case Code.PERMISSION_DENIED | Code.UNAUTHENTICATED:
            return errors.ClusterAuthorizationFailed.with_message(
                f"the sidecar at {address} denied the call: {said}"
            )
        case _:
            return errors.Disconnected(
                f"the sidecar at {address} cannot be reached ({said}): check whether it is running"
            )
