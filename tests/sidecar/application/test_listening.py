"""The addresses of the service, and the clients that they keep out."""

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from rota_service.addresses import BindError
from rota_sidecar.application.listening import bind_port, bind_socket
from rota_sidecar.application.service import ConsumerService, make_server
from rota_sidecar.engines.batch_slicing import BatchSlicer
from tests.sidecar.application.fakes import FakeDeliveries

pytestmark = pytest.mark.process

Bind = Callable[[grpc.aio.Server], str]


async def serving(listen: Bind) -> tuple[grpc.aio.Server, str]:
    server = make_server(ConsumerService(FakeDeliveries(), BatchSlicer(), lambda event, message: None, tuple))
    target = listen(server)
    await server.start()
    return server, target


async def answers(target: str) -> bool:
    async with grpc.aio.insecure_channel(target) as channel:
        return await ConsumerStub(channel).Assignment(pb.AssignmentRequest()) == pb.AssignmentResponse()


def refused(listen: Bind) -> str:
    async def run() -> str:
        server = make_server(
            ConsumerService(FakeDeliveries(), BatchSlicer(), lambda event, message: None, tuple)
        )
        with pytest.raises(BindError) as refusal:
            listen(server)
        return str(refusal.value)

    return asyncio.run(run())


def test_the_socket_is_for_this_user_alone_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "run" / "app.sock"

    async def run() -> None:
        server, target = await serving(lambda server: bind_socket(server, path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert await answers(target)
        await server.stop(None)

    asyncio.run(run())


def test_a_socket_that_is_private_by_its_mount_is_open_to_every_user(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"

    async def run() -> None:
        server, target = await serving(lambda server: bind_socket(server, path, 0o666))
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert await answers(target)
        await server.stop(None)

    asyncio.run(run())


def test_a_port_on_loopback_is_listened_on(tmp_path: Path) -> None:
    async def run() -> None:
        server, target = await serving(lambda server: bind_port(server, "127.0.0.1:0"))
        assert not target.endswith(":0")
        assert await answers(target)
        await server.stop(None)

    asyncio.run(run())


@pytest.mark.parametrize("address", ["0.0.0.0:7080", "[::]:7080", "10.1.2.3:7080", "app.shop.svc:7080"])
def test_no_other_machine_is_let_in_unless_it_is_meant(address: str) -> None:
    assert "can be reached from other machines" in refused(lambda server: bind_port(server, address))

    async def run() -> None:
        server, target = await serving(lambda server: bind_port(server, "0.0.0.0:0", insecure=True))
        assert target.startswith("0.0.0.0:")
        await server.stop(None)

    asyncio.run(run())


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        message = refused(lambda server: bind_port(server, address))
    assert message == f"cannot bind {address}; check which process uses the port, or use another one"


def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(path))

    async def run() -> None:
        server, target = await serving(lambda server: bind_socket(server, path))
        assert await answers(target)
        await server.stop(None)

    asyncio.run(run())


def test_a_socket_that_answers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"

    async def run() -> None:
        server, target = await serving(lambda server: bind_socket(server, path))
        second = make_server(
            ConsumerService(FakeDeliveries(), BatchSlicer(), lambda event, message: None, tuple)
        )
        with pytest.raises(BindError, match="another process listens there; give each its own path"):
            bind_socket(second, path)
        assert await answers(target)
        await server.stop(None)

    asyncio.run(run())


def test_a_process_that_is_too_busy_to_answer_is_there_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    with socket.socket(socket.AF_UNIX) as busy, ExitStack() as waiting:
        busy.bind(os.fspath(path))
        busy.listen(0)
        for _ in range(2):
            first = waiting.enter_context(socket.socket(socket.AF_UNIX))
            first.settimeout(0)
            first.connect_ex(os.fspath(path))
        message = refused(lambda server: bind_socket(server, path))
    assert "another process listens there" in message


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    path.write_text("precious")
    assert "a file that is not a socket exists there" in refused(lambda server: bind_socket(server, path))
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 108)
    message = refused(lambda server: bind_socket(server, path))
    assert message.endswith("the path of a socket has at most 107 bytes; give a shorter one")


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "app.sock"
    assert "the folder cannot be used" in refused(lambda server: bind_socket(server, path))
