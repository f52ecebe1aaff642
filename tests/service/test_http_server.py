"""The HTTP server of every part: pages, probes, errors, and that no client makes it wait, grow or fail."""

import asyncio
import gc
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus

import pytest

from rota_service import http_server
from rota_service.addresses import BindError
from rota_service.http_server import (
    REQUEST_BYTES_MAX,
    HttpServer,
    Page,
    Path,
    parse_head,
    probes,
    refusal,
    text_page,
)

Send = Callable[[bytes], Coroutine[None, None, bytes]]
# More than any timeout of the server in these tests.
WITHIN_S = 5


def served(
    body: Callable[[Send], Coroutine[None, None, None]], unready: str = "", *, checks_host: bool = False
) -> None:
    """Run a body with a server that has a large page and a POST beside the probes, and a function that sends it bytes."""

    async def big(_query: str) -> Page:
        return Page(HTTPStatus.OK, b"x" * 1_000_000)

    async def drain(query: str) -> Page:
        await asyncio.sleep(0)
        return text_page(HTTPStatus.OK, f"drained {query}".strip())

    async def run() -> None:
        paths = {**probes(lambda: unready), "/drain": Path(drain, "POST"), "/big": Path(big)}
        server = HttpServer(paths, "--http-listen", checks_host=checks_host)
        host, _, port = (await server.start("127.0.0.1:0")).rpartition(":")

        async def send(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            try:
                return await reader.read()
            finally:
                writer.close()

        try:
            await body(send)
        finally:
            await server.stop()

    asyncio.run(run())


def responses(*requests: bytes, unready: str = "", checks_host: bool = True) -> list[str]:
    """Status and text of the responses to requests, each on a connection of its own."""
    found = []

    async def body(send: Send) -> None:
        for request in requests:
            head, _, text = (await send(request)).decode().partition("\r\n\r\n")
            found.append(f"{head.split(' ', 2)[1]} {text.strip()}")

    served(body, unready, checks_host=checks_host)
    return found


def request(path: str, method: str = "GET", version: str = "HTTP/1.1", host: str = "localhost") -> bytes:
    return f"{method} {path} {version}\r\nHost: {host}\r\n\r\n".encode()


def test_a_response_has_a_length_and_closes_the_connection() -> None:
    async def body(send: Send) -> None:
        assert await send(b"GET /livez HTTP/1.1\r\n\r\n") == (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: 6\r\nConnection: close\r\n\r\nalive\n"
        )
        assert len(await send(b"GET /big HTTP/1.0\r\n\r\n")) > 1_000_000

    served(body)


def test_paths_are_served_with_their_method_and_query() -> None:
    assert responses(request("/livez"), request("/readyz?verbose=1"), request("/drain?now=1", "POST")) == [
        "200 alive",
        "200 ready",
        "200 drained now=1",
    ]


def test_an_unready_process_says_why_and_is_alive() -> None:
    assert responses(request("/readyz"), request("/livez"), unready="slot 3 is read") == [
        "503 slot 3 is read",
        "200 alive",
    ]


def test_other_requests_are_refused() -> None:
    large = b"GET /livez HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX + b"\r\n\r\n"
    wrong = request("/"), request("/livez", "DELETE"), request("/drain"), large
    assert responses(*wrong) == [
        "404 unknown path; expected one of /livez, /readyz, /drain, /big",
        "405 GET only",
        "405 POST only",
        f"431 at most {REQUEST_BYTES_MAX} bytes",
    ]


@pytest.mark.parametrize(
    "head",
    [b"\x16\x03\x01\x02 tls hello\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n", request("/livez", version="SMTP")],
)
def test_a_request_of_another_protocol_is_refused(head: bytes) -> None:
    assert responses(head) == ["400 expected an HTTP/1 request"]


@pytest.mark.parametrize(("checks_host", "status"), [(True, "403"), (False, "200")])
def test_the_host_is_checked_where_that_is_asked_for(checks_host: bool, status: str) -> None:
    (response,) = responses(request("/livez", host="evil.example"), checks_host=checks_host)
    assert response.startswith(status)


def test_a_change_from_a_web_page_is_refused_on_a_local_address_alone() -> None:
    paths = {"/drain": Path(probes(lambda: "")["/livez"].show, "POST")}
    head = parse_head(b"POST /drain HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n")
    refused = refusal(head, paths, is_local=True)
    assert refused is not None
    assert refused.status == HTTPStatus.FORBIDDEN
    assert refusal(head, paths, is_local=False) is None


def test_an_unfinished_request_is_cut_off_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_S", 0.05)

    async def body(send: Send) -> None:
        async with asyncio.timeout(WITHIN_S):
            assert await send(b"GET /livez") == b""

    served(body)


def test_above_the_limit_the_oldest_connections_are_closed_and_pages_are_served_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 3)

    async def body(send: Send) -> None:
        silent = [asyncio.ensure_future(send(b"")) for _ in range(10)]
        async with asyncio.timeout(WITHIN_S):
            while sum(each.done() for each in silent) < 7:
                await asyncio.wait(
                    [each for each in silent if not each.done()], return_when="FIRST_COMPLETED"
                )
        assert [each.done() for each in silent].count(False) == 3
        assert (await send(b"GET /livez HTTP/1.1\r\n\r\n")).endswith(b"alive\n")
        for each in silent:
            each.cancel()
        await asyncio.gather(*silent, return_exceptions=True)

    served(body)


def test_a_taken_address_is_refused_with_its_flag_and_a_remedy() -> None:
    async def run() -> None:
        first, second = (HttpServer({}, "--http-listen", checks_host=True) for _ in range(2))
        address = await first.start("127.0.0.1:0")
        with pytest.raises(
            BindError, match=f"--http-listen {address} cannot be listened on .*; name another"
        ):
            await second.start(address)
        await second.stop()
        await first.stop()

    asyncio.run(run())


# Not 2: what asyncio itself accepts while a server is closed, it loses (CPython 3.11), and closes as garbage.
@pytest.mark.parametrize("turns", [0, 1, 3, 4, 5, 6])
def test_a_connection_that_is_accepted_as_the_server_stops_is_cut_off(turns: int) -> None:
    async def run() -> None:
        server = HttpServer({}, "--http-listen", checks_host=True)
        host, _, port = (await server.start("127.0.0.1:0")).rpartition(":")
        with socket.create_connection((host, int(port))) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.stop()
            client.settimeout(0)
            async with asyncio.timeout(WITHIN_S):
                # Nothing, or a connection that was reset before it was accepted.
                with suppress(ConnectionResetError):
                    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""

    asyncio.run(run())
    # A connection that is still open is reported as it is collected, and fails the test.
    gc.collect()
