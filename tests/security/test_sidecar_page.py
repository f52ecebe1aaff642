"""The sidecar's page shows itself to this machine and to probes, changes nothing, and is not shut by idle connections."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from rota_service.http_server import (
    CONNECTIONS_MAX,
    HttpServer,
    is_local_host,
    parse_head,
    probes,
    refusal,
)
from rota_service.private_files import FILE_MODE, FOLDER_MODE
from rota_sidecar.application.listening import bind_socket
from rota_sidecar.membership.state_file import Owner, StateFile

PATHS = probes(lambda: "")
WITHIN_S = 60


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, int]]:
    page = HttpServer(PATHS, "--http-listen", checks_host=True)
    host, _, port = (await page.start("127.0.0.1:0")).rpartition(":")
    try:
        yield host, int(port)
    finally:
        await page.stop()


async def asked(address: tuple[str, int], request: str) -> str:
    """The line of status."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().split("\r\n", 1)[0]


def test_idle_connections_do_not_shut_probes_out() -> None:
    async def story() -> None:
        async with served() as address, asyncio.timeout(WITHIN_S):
            silent = [await asyncio.open_connection(*address) for _ in range(CONNECTIONS_MAX + 10)]
            for _, writer in silent[-5:]:
                # Half a request is none.
                writer.write(b"GET /livez HTTP/1.1\r\n")
            for _ in range(CONNECTIONS_MAX):
                assert (
                    await asked(address, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    == "HTTP/1.1 200 OK"
                )
            for _, writer in silent:
                writer.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "hosts", ["Host: evil.example", "Host: 127.0.0.1.evil.example:7081", "Host: 10.1.2.3", "", "Host: ::1"]
)
def test_a_page_on_loopback_has_no_other_name(hosts: str) -> None:
    async def story() -> None:
        async with served() as address, asyncio.timeout(WITHIN_S):
            for path in ("/livez", "/readyz"):
                head = f"GET {path} HTTP/1.1\r\n{hosts}\r\n\r\n" if hosts else f"GET {path} HTTP/1.1\r\n\r\n"
                assert await asked(address, head) == "HTTP/1.1 403 Forbidden"
                twice = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"
                assert await asked(address, twice) == "HTTP/1.1 403 Forbidden"

    asyncio.run(story())


def test_names_of_this_machine_are_those_of_loopback() -> None:
    for host in (
        "localhost",
        "localhost:7081",
        "127.0.0.1",
        "127.0.0.1:7081",
        "127.8.8.8:1",
        "[::1]",
        "[::1]:7081",
    ):
        assert is_local_host(host), host
    for host in (
        "",
        ":",
        "0.0.0.0",
        "10.0.0.1:7081",
        "localhost.",
        "localhost:x",
        "evil.example",
    ):
        assert not is_local_host(host), host


def test_a_page_for_the_cluster_answers_probes_by_any_name() -> None:
    for host in ("10.1.2.3:7081", "orders-0.orders.shop.svc:7081"):
        request = parse_head(f"GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert refusal(request, PATHS, is_local=False) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "get", ""])
def test_the_page_is_for_reading(method: str) -> None:
    for path in PATHS:
        request = parse_head(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        refused = refusal(request, PATHS, is_local=True)
        assert refused is not None
        assert refused.status == 405


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o177])
def test_the_application_s_socket_is_for_this_user_alone_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "run" / "rota" / "app.sock"

    async def story() -> None:
        server = grpc.aio.server()
        before = os.umask(mask)
        try:
            bind_socket(server, path)
        finally:
            assert os.umask(before) == mask
        assert stat.S_IMODE(path.stat().st_mode) == FILE_MODE
        await server.stop(None)

    asyncio.run(story())
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == FOLDER_MODE


@pytest.mark.parametrize("mask", [0o000, 0o177])
def test_no_parent_of_the_state_folder_is_open_to_others(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "state" / "orders-0"
    before = os.umask(mask)
    try:
        StateFile(folder, Owner("billing", "")).close()
    finally:
        os.umask(before)
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == FOLDER_MODE


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o177])
def test_sockets_are_for_this_user_alone_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    folder = tmp_path / "run" / "rota"

    async def story() -> None:
        page = HttpServer(PATHS, "--http-listen", checks_host=True)
        before = os.umask(mask)
        try:
            await page.start_on_socket(folder / "drain.sock")
        finally:
            assert os.umask(before) == mask
        assert stat.S_IMODE((folder / "drain.sock").stat().st_mode) == FILE_MODE
        await page.stop()

    asyncio.run(story())
    assert stat.S_IMODE(folder.stat().st_mode) == FOLDER_MODE
    assert stat.S_IMODE(folder.parent.stat().st_mode) == FOLDER_MODE
