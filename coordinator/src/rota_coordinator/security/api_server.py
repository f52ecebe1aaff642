"""
TokenReviews by the Kubernetes API server, with the credentials of this pod's service account.

Called by `wiring`'s reviewer. It is the coordinator's only request to Kubernetes, so it needs no client library: HTTP/1.1 over TLS, on
connections that are kept for the next review. Token and authority are files that are replaced while the pod runs; both are read anew.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from rota_coordinator.security.errors import SecurityError
from rota_service.file_versions import Version, version_of
from rota_service.token_review import ReviewUnavailable

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
REQUEST_S = 5.0
IDLE_MAX = 8
BODY_BYTES_MAX = 1024 * 1024
MESSAGE_LENGTH_MAX = 300
UNREACHABLE = "the API server cannot be reached to review tokens"


class Answer(NamedTuple):
    """An HTTP response, and whether its connection can be used again."""

    status: int
    body: bytes
    keeps_alive: bool


class Connection(NamedTuple):
    """A TLS connection to the API server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Malformed(Exception):
    """The response is not one of an API server."""


class ApiServer:
    """The API server; thread-confined to one event loop. Invariant: at most IDLE_MAX connections are idle."""

    def __init__(self, host: str, port: int, folder: Path) -> None:
        """`folder` contains `token` and `ca.crt`. Raises SecurityError when one of them cannot be used."""
        self._host = host
        self._port = port
        self._token_file = folder / "token"
        self._ca_file = folder / "ca.crt"
        self._idle: list[Connection] = []
        self._tls: tuple[Version, ssl.SSLContext] | None = None
        try:
            self._context()
            self._token_file.read_bytes()
        except (OSError, ssl.SSLError) as error:
            raise SecurityError(
                f"--token-review needs the pod's service account, and a file in {folder} cannot be used ({error}); "
                "run the coordinator in a pod with automountServiceAccountToken, or name the folder with --service-account-folder"
            ) from None

    async def review(self, token: str, audiences: tuple[str, ...]) -> Mapping[str, Any]:
        """Ask whose token this is; return the status of a TokenReview. Raises ReviewUnavailable."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": list(audiences)},
        }
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await self._post(json.dumps(request).encode())
        except TimeoutError:
            raise ReviewUnavailable(f"{UNREACHABLE}: no answer within {REQUEST_S:g} s") from None
        except (OSError, ssl.SSLError, EOFError) as error:
            raise ReviewUnavailable(f"{UNREACHABLE} ({type(error).__name__}: {error})") from None
        except (Malformed, asyncio.LimitOverrunError, ValueError):
            raise ReviewUnavailable(
                f"what answers at {self._host}:{self._port} is not an API server; check KUBERNETES_SERVICE_HOST"
            ) from None
        return status_of(answer)

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            abort(self._idle.pop())

    async def _post(self, body: bytes) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            try:
                return await self._exchange(connection, body)
            except (OSError, EOFError):
                # The server has closed it since its last use; a review changes nothing, so it may be sent twice.
                continue
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._context())
        return await self._exchange(Connection(reader, writer), body)

    async def _exchange(self, connection: Connection, body: bytes) -> Answer:
        is_kept = False
        try:
            connection.writer.write(self._head(len(body)) + body)
            await connection.writer.drain()
            answer = await read_answer(connection.reader)
            is_kept = answer.keeps_alive and len(self._idle) < IDLE_MAX
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                abort(connection)
        return answer

    def _head(self, length: int) -> bytes:
        host = f"[{self._host}]" if ":" in self._host else self._host
        own_token = self._token_file.read_bytes().strip()
        lines = (
            f"POST {PATH} HTTP/1.1",
            f"Host: {host}:{self._port}",
            "Content-Type: application/json",
            "Accept: application/json",
            f"Content-Length: {length}",
        )
        return "\r\n".join(lines).encode() + b"\r\nAuthorization: Bearer " + own_token + b"\r\n\r\n"

    def _context(self) -> ssl.SSLContext:
        """Return the TLS settings for the present authority. Raises OSError, ssl.SSLError."""
        version = version_of(self._ca_file)
        if self._tls is None or self._tls[0] != version:
            self._tls = version, ssl.create_default_context(cafile=str(self._ca_file))
        return self._tls[1]


def abort(connection: Connection) -> None:
    """Close a connection at once, without TLS's goodbye, for which the server would have to be waited for."""
    connection.writer.close()
    connection.writer.transport.abort()


def status_of(answer: Answer) -> Mapping[str, Any]:
    """Return the status of the TokenReview in a response. Raises ReviewUnavailable."""
    try:
        parsed = json.loads(answer.body)
    except (ValueError, RecursionError):
        parsed = None
    said: Mapping[str, Any] = parsed if isinstance(parsed, dict) else {}
    status = said.get("status")
    if answer.status in (HTTPStatus.OK, HTTPStatus.CREATED) and isinstance(status, dict):
        return status
    message = str(said.get("message") or f"HTTP status {answer.status}")[:MESSAGE_LENGTH_MAX]
    match answer.status:
        case HTTPStatus.UNAUTHORIZED:
            reason = "the API server rejects the coordinator's own token; check its service account"
        case HTTPStatus.FORBIDDEN:
            reason = (
                "the coordinator may not review tokens; bind the ClusterRole system:auth-delegator to its service account, "
                "or grant it create tokenreviews"
            )
        case _:
            reason = "the API server cannot review tokens now"
    raise ReviewUnavailable(f"{reason} ({message})")


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one HTTP response. Raises EOFError, Malformed, ValueError, asyncio.LimitOverrunError."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, _, rest = head[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise Malformed(head[0][:MESSAGE_LENGTH_MAX])
    headers = {
        name.strip().lower(): value.strip().lower()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    keeps_alive = version == "HTTP/1.1" and headers.get("connection") != "close"
    if headers.get("transfer-encoding") == "chunked":
        body = await read_chunks(reader)
    elif "content-length" in headers:
        body = await reader.readexactly(bounded(int(headers["content-length"])))
    else:
        raise Malformed("the response has no length")
    return Answer(int(rest[:3]), body, keeps_alive)


async def read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Read a body in chunks, to the end of its trailers."""
    body = b""
    while length := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(bounded(length, len(body)))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass
    return body


def bounded(length: int, already: int = 0) -> int:
    """Return the length of a body, or of its next part. Raises Malformed beyond BODY_BYTES_MAX."""
    if length < 0 or already + length > BODY_BYTES_MAX:
        raise Malformed(f"the body has more than {BODY_BYTES_MAX} bytes")
    return length
