"""The SDK's side of Deliver in frames, with the service of a sidecar, and with one that does what no sidecar does."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from typing_extensions import override

from rota import errors
from rota.consumer import messages
from rota.consumer.deliver_streams import FramedDeliverStream, frames_path
from rota.consumer.transport import Attachment, GrpcTransport, SidecarListener
from rota_proto.sidecar.frames import END, HEADER, MESSAGE, Frame
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.core.delivery import events as on
from tests.sidecar.application.fakes import batch, batch_slice, handed
from tests.sidecar.application.talking import SOCKET, STORY_S, Talk, judged, judgement, talking, values

pytestmark = pytest.mark.process


class Received(SidecarListener):
    """Writes the records down, each message when it may."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes | None]] = []
        self.came = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    @override
    async def on_event(self, event: pb.AttachResponse.Event) -> None: ...

    @override
    async def on_partition_error(self, error: pb.AttachResponse.PartitionError) -> None: ...

    @override
    async def on_committed(self, committed: pb.AttachResponse.Committed) -> None: ...

    @override
    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        self.records += values(delivery.partitions)
        self.came.set()
        await self.may_go_on.wait()

    async def until(self, count: int) -> None:
        while len(self.records) < count:
            self.came.clear()
            await self.came.wait()


Story = Callable[[Talk, Attachment, Received], Coroutine[Any, Any, None]]


def attached(folder: Path, story: Story) -> None:
    """Run a story with a service, and the SDK's attachment to it."""

    async def run() -> None:
        async with asyncio.timeout(STORY_S), talking(folder) as talk:
            received = Received()
            transport = GrpcTransport(f"unix://{folder / SOCKET}")
            attachment = await transport.attach(pb.AttachRequest.Hello(), received)
            try:
                await story(talk, attachment, received)
            finally:
                await transport.close()

    asyncio.run(run())


def test_records_and_verdicts_go_over_frames_and_the_goodbye_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.consumer.deliver_streams.GrpcDeliverStream", None)

    async def story(talk: Talk, attachment: Attachment, received: Received) -> None:
        await attachment.send(messages.credit(5))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 5)
        talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a", b"b"])))])
        await received.until(2)
        await attachment.send(judged(judgement(0, last_offset=1)))
        await attachment.detach()
        assert [each.last for each in talk.deliveries.judgements] == [1]
        assert talk.deliveries.detached == [(1, True)]
        assert "closed the attachment" in str(await attachment.wait_ended())

    attached(tmp_path, story)


def test_without_the_socket_records_come_over_grpc_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with asyncio.timeout(STORY_S), talking(tmp_path) as talk:
            (tmp_path / f"{SOCKET}.frames").unlink()
            transport, received = GrpcTransport(f"unix:{tmp_path / SOCKET}"), Received()
            attachment = await transport.attach(pb.AttachRequest.Hello(), received)
            await attachment.send(messages.credit(5))
            await talk.deliveries.until(lambda: talk.deliveries.credit == 5)
            talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a"])))])
            await received.until(1)
            await attachment.detach()
            await attachment.wait_ended()
            await transport.close()

    asyncio.run(run())
    assert "app.sock.frames cannot be opened (No such file or directory)" in caplog.text


def test_a_refusal_is_the_reason_of_the_end(tmp_path: Path) -> None:
    async def story(talk: Talk, attachment: Attachment, received: Received) -> None:
        await attachment.send(messages.credit(-1))
        error = await attachment.wait_ended()
        assert "credit" in str(error)
        with pytest.raises(errors.Disconnected):
            await attachment.send(messages.credit(1))

    attached(tmp_path, story)


def test_an_application_that_is_slow_gets_all_records_in_order(tmp_path: Path) -> None:
    count = 200

    async def story(talk: Talk, attachment: Attachment, received: Received) -> None:
        received.may_go_on.clear()
        await attachment.send(messages.credit(count))
        await talk.deliveries.until(lambda: talk.deliveries.credit == count)
        for number in range(count):
            talk.deliveries.there.deliver([handed(batch_slice(batch(number, [b"x" * 10_000])))])
            # One message for each.
            await asyncio.sleep(0)
        await received.until(1)
        received.may_go_on.set()
        await received.until(count)
        assert [offset for offset, _ in received.records] == list(range(count))
        await attachment.detach()
        await attachment.wait_ended()

    attached(tmp_path, story)


def test_the_loss_of_the_application_is_seen_by_the_sidecar(tmp_path: Path) -> None:
    async def story(talk: Talk, attachment: Attachment, received: Received) -> None:
        await attachment.send(messages.credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.all(on.Credit))
        waiting = asyncio.create_task(attachment.wait_ended())
        await asyncio.sleep(0)
        waiting.cancel()
        await talk.deliveries.until(lambda: talk.deliveries.detached)
        assert talk.deliveries.detached == [(1, False)]

    attached(tmp_path, story)


@pytest.mark.parametrize(
    ("sent", "code", "details"),
    [
        (HEADER.pack(MESSAGE, (4 << 20) + 1), grpc.StatusCode.UNAVAILABLE, "a frame has 4,194,305 bytes"),
        (b"", grpc.StatusCode.UNAVAILABLE, "the sidecar closed the connection"),
        (
            Frame(END, pb.DeliverEnd(code=999, message="of later").SerializeToString()).encode(),
            grpc.StatusCode.UNKNOWN,
            "of later",
        ),
    ],
)
def test_what_no_sidecar_sends_ends_the_stream(
    tmp_path: Path, sent: bytes, code: grpc.StatusCode, details: str
) -> None:
    path = tmp_path / "app.sock.frames"

    def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_unix_server(answer, path)
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_unix_connection(lambda: FramedDeliverStream("here"), str(path))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await anext(stream.responses())
        assert ended.value.code() is code
        assert details in (ended.value.details() or "")
        with pytest.raises(errors.Disconnected):
            await stream.write(messages.credit(1))
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("address", "name", "path"),
    [
        ("unix:/run/app.sock", "app.sock.frames", Path("/run/app.sock.frames")),
        ("unix:///run/app.sock", "app.sock.frames", Path("/run/app.sock.frames")),
        ("unix:/run/app.sock", "", None),
        ("127.0.0.1:7080", "app.sock.frames", None),
    ],
)
def test_the_socket_lies_beside_that_of_the_sidecar(address: str, name: str, path: Path | None) -> None:
    assert frames_path(address, name) == path
