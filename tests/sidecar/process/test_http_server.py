"""The sidecar's page answers what it knows, and says what is wrong with the rest."""

import asyncio
from http import HTTPStatus

import pytest

from rota_sidecar.process.http_server import (
    REQUEST_BYTES_MAX,
    CannotListen,
    HealthServer,
    Page,
    Path,
    probes,
    sentence,
)


def asked(*requests: bytes, missing: str = "") -> list[str]:
    """The answers to these, each on a connection of its own: status and text."""

    async def drained(query: str) -> Page:
        await asyncio.sleep(0)
        return sentence(HTTPStatus.OK, f"drained {query}".strip())

    async def story() -> list[str]:
        page = HealthServer({**probes(lambda: missing), "/drain": Path(drained, "POST")})
        host, _, port = (await page.start("127.0.0.1:0")).rpartition(":")
        answers = []
        try:
            for request in requests:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(request)
                head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
                answers.append(f"{head.split(' ', 2)[1]} {body.strip()}")
                writer.close()
                await writer.wait_closed()
        finally:
            await page.stop()
        return answers

    return asyncio.run(story())


def get(path: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    return f"{method} {path} {version}\r\nHost: localhost\r\n\r\n".encode()


def test_what_there_is_is_shown() -> None:
    assert asked(get("/livez"), get("/readyz?verbose=1"), get("/drain?now=1", "POST")) == [
        "200 alive",
        "200 ready",
        "200 drained now=1",
    ]
    assert asked(get("/readyz"), missing="nobody is there") == ["503 nobody is there"]


def test_what_there_is_not_is_refused() -> None:
    large = b"GET /livez HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES_MAX + b"\r\n\r\n"
    wrong = get("/"), get("/livez", "DELETE"), get("/drain"), get("/livez", version="SMTP"), large
    assert asked(*wrong) == [
        "404 there are /livez, /readyz, /drain",
        "405 GET only",
        "405 POST only",
        "400 this is no HTTP/1 request",
        f"431 at most {REQUEST_BYTES_MAX} bytes",
    ]


def test_an_address_that_is_taken_is_named() -> None:
    async def story() -> None:
        first, second = HealthServer({}), HealthServer({})
        address = await first.start("127.0.0.1:0")
        with pytest.raises(CannotListen, match=f"--http-listen {address} cannot be listened on"):
            await second.start(address)
        await second.stop()
        await first.stop()

    asyncio.run(story())
