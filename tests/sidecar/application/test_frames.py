"""Deliver in frames: what its connections have beside the stream that gRPC has too."""

import asyncio
import stat
from pathlib import Path

import pytest
from typing_extensions import override

from rota_proto.sidecar.frames import END, HEADER, MESSAGE, Frame, FrameReader
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_service.addresses import BindError
from rota_sidecar.application import frames, streams
from rota_sidecar.application.attachment import Attachment
from rota_sidecar.application.frames import FramedDeliver, FramesServer
from rota_sidecar.application.listening import frames_path, open_socket
from rota_sidecar.application.refusals import Refusal
from rota_sidecar.engines.batch_slicing import BatchSlicer
from tests.sidecar.application.fakes import FakeDeliveries
from tests.sidecar.application.framed import FramedCall, framed_call
from tests.sidecar.application.talking import Code, Talk, credit, ended, play

pytestmark = pytest.mark.process
LIMIT = 4 << 20
HELLO = Frame(MESSAGE, pb.DeliverRequest(hello=pb.DeliverRequest.Hello(session=1)).SerializeToString())


async def opened(talk: Talk) -> FramedCall:
    """A connection that has said nothing."""
    assert talk.frames is not None
    return await framed_call(talk.frames)


async def answered(talk: Talk, data: bytes) -> tuple[Code, str]:
    """Send bytes on a connection of their own; return the status and details with which it ends."""
    call = await opened(talk)
    await call.send(data)
    return await ended(call)


@pytest.mark.parametrize(
    ("data", "code", "details"),
    [
        (Frame(7, b"").encode(), Code.INVALID_ARGUMENT, "unknown kind of frame 7; send 0 or 1"),
        (
            Frame(END, b"").encode(),
            Code.INVALID_ARGUMENT,
            "Deliver begins with a hello; send it first, and once",
        ),
        (
            HEADER.pack(MESSAGE, LIMIT + 1),
            Code.RESOURCE_EXHAUSTED,
            "a frame has 4,194,305 bytes, the limit is 4,194,304",
        ),
        (
            HELLO.encode() * 2,
            Code.INVALID_ARGUMENT,
            "Deliver has one hello; open another stream for another session",
        ),
    ],
)
def test_malformed_frames_are_refused(tmp_path: Path, data: bytes, code: Code, details: str) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        assert await answered(talk, data) == (code, details)

    play(tmp_path, story, in_frames=True)


def test_a_refused_stream_ends_the_attachment_with_the_same_message(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        await answered(talk, HELLO.encode() + Frame(7, b"").encode())
        assert await ended(stream) == (
            Code.ABORTED,
            "the Deliver stream of this attachment ended (unknown kind of frame 7; send 0 or 1); attach again",
        )

    play(tmp_path, story, in_frames=True)


def test_bytes_may_come_one_by_one(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        call = await opened(talk)
        for byte in HELLO.encode() + Frame(MESSAGE, credit(3).SerializeToString()).encode():
            await call.send(bytes([byte]))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 3)
        call.cancel()
        await talk.deliveries.until(lambda: talk.deliveries.detached)

    play(tmp_path, story, in_frames=True)


def test_a_connection_without_a_hello_is_not_kept_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HELLO_S", 0.05)

    async def story(talk: Talk) -> None:
        assert await answered(talk, b"") == (
            Code.DEADLINE_EXCEEDED,
            "no hello within 0.05 s; begin Deliver with one",
        )

    play(tmp_path, story, in_frames=True)


def test_connections_above_a_bound_are_refused_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "CONNECTIONS_MAX", 2)

    async def story(talk: Talk) -> None:
        await talk.attach()
        idle, records = await opened(talk), await talk.deliver()
        await records.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 1)
        assert await answered(talk, b"") == (Code.RESOURCE_EXHAUSTED, "2 connections are open; close some")
        await records.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 2)
        idle.cancel()

    play(tmp_path, story, in_frames=True)


def test_who_does_not_close_a_connection_that_has_ended_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "REFUSAL_S", 0.05)

    async def story(talk: Talk) -> None:
        assert talk.frames is not None
        reader, writer = await asyncio.open_unix_connection(talk.frames)
        writer.write(Frame(7, b"").encode())
        # The end, and then the end of the connection.
        kind, _ = HEADER.unpack((await reader.read())[: HEADER.size])
        assert kind == END
        writer.close()

    play(tmp_path, story, in_frames=True)


def test_a_side_that_is_closed_without_an_end_is_lost(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        assert talk.frames is not None
        _, writer = await asyncio.open_unix_connection(talk.frames)
        writer.write(HELLO.encode() + Frame(MESSAGE, credit(1).SerializeToString()).encode())
        await talk.deliveries.until(lambda: talk.deliveries.credit == 1)
        writer.write_eof()
        code, details = await ended(stream)
        assert code is Code.ABORTED
        assert "it was lost" in details
        writer.close()

    play(tmp_path, story, in_frames=True)


class Written(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += bytes(data)


def test_a_stream_that_both_sides_end_in_one_turn_of_the_loop_has_one_end() -> None:
    async def run() -> None:
        attachment = Attachment(FakeDeliveries(), BatchSlicer(), reads_itself=False, takes_errors=False)
        transport = Written()
        stream = FramedDeliver(lambda _session: attachment, set())
        stream.connection_made(transport)
        stream.data_received(HELLO.encode())
        attachment.end(Refusal(Code.UNAVAILABLE, "the sidecar stops"))
        stream.data_received(Frame(END, b"").encode())
        await asyncio.sleep(0)
        end = pb.DeliverEnd(code=Code.UNAVAILABLE.value[0], message="the sidecar stops")
        assert FrameReader(LIMIT).feed(transport.data) == [Frame(END, end.SerializeToString())]
        stream.connection_lost(None)

    asyncio.run(run())


def test_the_socket_has_the_permissions_of_the_one_beside_it(tmp_path: Path) -> None:
    async def run() -> None:
        server = FramesServer(none_attached)
        await server.start(tmp_path / "app.sock.frames", 0o666)
        assert stat.S_IMODE((tmp_path / "app.sock.frames").stat().st_mode) == 0o666
        server.stop()

    asyncio.run(run())


def none_attached(session: int) -> Attachment:
    raise AssertionError(session)


def test_a_socket_that_another_process_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.sock.frames"
    with open_socket(path, 0o600) as first:
        first.listen()
        with pytest.raises(BindError, match="another process listens there"):
            open_socket(path, 0o600)


def test_there_is_no_socket_with_frames_where_its_path_would_be_too_long() -> None:
    folder = Path("/", "x" * 94)
    assert frames_path(folder / "app") == folder / "app.frames"
    assert frames_path(folder / "app.sock") is None
