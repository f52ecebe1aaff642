"""
Serves the operator's web page on a local port: passes each request on, with the caller's credentials in it. Run by `kubectl rota ui`.

Browsers cannot send a bearer token with an event stream, and need not have one: they know the URL, whose path begins with a key that
is drawn for each run. Without the key nothing is passed on, so no other user of this machine, and no other page, reads with the
caller's rights.
"""

import http.client
import json
import re
import secrets
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

from rota_cli.errors import Failure

ADDRESS = "127.0.0.1"
KEY_BYTES = 24
CONNECTIONS_MAX = 64
# For a browser to send its request.
REQUEST_S = 30
CHUNK_BYTES = 65_536
LOCAL = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
# Of the page's answers, passed on to the browser.
HEADERS = (
    "Content-Type",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cache-Control",
)
BAD_STATUS = 400
ERROR_BYTES_MAX = 65_536


class Upstream(NamedTuple):
    """The page of the operator."""

    # Returns a connection to it. Raises Failure.
    connect: Callable[[], http.client.HTTPConnection]
    # Returns the header Authorization. Raises Failure.
    authorization: Callable[[], str]

    def get(self, path: str) -> http.client.HTTPResponse:
        """Send a request; return the response with its body unread. Raises Failure, OSError, HTTPException."""
        connection = self.connect()
        headers = {"Authorization": self.authorization(), "Host": ADDRESS, "Connection": "close"}
        connection.request("GET", path, headers=headers)
        return connection.getresponse()


def check(upstream: Upstream, path: str) -> None:
    """Read a path once. Raises Failure, with the page's own sentence where it refuses."""
    try:
        response = upstream.get(path)
        if response.status >= BAD_STATUS:
            raise Failure(refusal_of(response.status, response.read(ERROR_BYTES_MAX)))
        response.close()
    except (OSError, http.client.HTTPException) as error:
        raise Failure(
            f"the operator's page does not answer ({error!r}): is it served with --page-listen?"
        ) from None


def refusal_of(status: int, body: bytes) -> str:
    """Return the sentence of an error response."""
    try:
        said = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        said = f"HTTP status {status}"
    return f"the operator's page is refused: {said}"


class PageProxy(ThreadingHTTPServer):
    """
    The local server; close it after use.

    Invariant: at most CONNECTIONS_MAX requests are passed on at a time.
    """

    daemon_threads = True

    def __init__(self, port: int, upstream: Upstream) -> None:
        """Listen on a port, 0: any free one. Raises OSError."""
        super().__init__((ADDRESS, port), Handler)
        self.upstream = upstream
        self.key = secrets.token_urlsafe(KEY_BYTES)
        self.slots = threading.BoundedSemaphore(CONNECTIONS_MAX)

    @property
    def url(self) -> str:
        """Return the URL of the page, for the browser of this caller."""
        return f"http://{ADDRESS}:{self.server_address[1]}/{self.key}/"

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that hang up; anything else is a bug, and is printed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Handler of one request of a browser; the connection closes with the response."""

    server: PageProxy
    timeout = REQUEST_S

    def do_GET(self) -> None:
        """Pass a request with the key on."""
        if reason := self._forbidden():
            self._fail(403, reason)
            return
        if not self.server.slots.acquire(blocking=False):
            self._fail(503, f"too many requests (at most {CONNECTIONS_MAX}): close other tabs of this page")
            return
        try:
            self._pass_on(self.path.removeprefix(f"/{self.server.key}"))
        finally:
            self.server.slots.release()

    def _forbidden(self) -> str:
        """Return why a request is not passed on; empty: it is."""
        host = self.headers.get("Host", "")
        if LOCAL.fullmatch(host) is None:
            return "the page is served for 127.0.0.1 only"
        if (origin := self.headers.get("Origin")) is not None and origin != f"http://{host}":
            return "requests of other pages are refused"
        parts = urlsplit(self.path).path.split("/")
        is_known = len(parts) > 2 and secrets.compare_digest(parts[1].encode(), self.server.key.encode())
        return "" if is_known else "open the URL that kubectl rota ui prints; it is another one in each run"

    def _pass_on(self, path: str) -> None:
        try:
            response = self.server.upstream.get(path)
        except Failure as failure:
            self._fail(502, str(failure))
            return
        except (OSError, http.client.HTTPException) as error:
            self._fail(502, f"the operator's page does not answer ({error!r})")
            return
        try:
            self.send_response(response.status)
            for name in HEADERS:
                if (value := response.headers.get(name)) is not None:
                    self.send_header(name, value)
            self.end_headers()
            while chunk := response.read1(CHUNK_BYTES):
                self.wfile.write(chunk)
        except (OSError, http.client.HTTPException):
            # The operator has ended the stream, or the browser is gone: both show in a connection that closes.
            self.close_connection = True
        finally:
            response.close()

    def _fail(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: URLs have the key in them."""
