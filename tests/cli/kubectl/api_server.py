"""A server on loopback that answers as the test says: for answers that a real API server gives rarely."""

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import override


class Sent(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    body: Any
    # Scheme and credentials; empty without any.
    authorization: str

    @property
    def is_watch(self) -> bool:
        return "watch" in self.query


class Answer(NamedTuple):
    """Response of the server; bytes are sent unchanged."""

    status: int = 200
    body: Any = None


class Watch(NamedTuple):
    """Events of a watch, and its end: by the server as agreed, or by a connection that is cut."""

    events: Sequence[Any]
    is_cut: bool = False


class Silent(NamedTuple):
    """No answer until the server stops."""


class ApiServer:
    """Answers each request by `answer`, and keeps what was sent."""

    def __init__(self, answer: Callable[[Sent], Answer | Watch | Silent]) -> None:
        self.answer = answer
        self.sent: list[Sent] = []
        self.address = ""
        self.stopping = threading.Event()

    @property
    def watches(self) -> list[Sent]:
        return [each for each in self.sent if each.is_watch]


class HttpServer(ThreadingHTTPServer):
    """A thread for each connection. A client that hangs up, or refuses the certificate, is no error of a test."""

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


@contextmanager
def serving(server: ApiServer, tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """Serve on a free port."""
    http = HttpServer(("127.0.0.1", 0), partial(Handler, server))
    if tls is not None:
        # Without a handshake in the thread that accepts: a client that refuses the certificate would end it.
        http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    # Those of silent answers end with `stopping`.
    http.daemon_threads = False
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    scheme = "http" if tls is None else "https"
    server.address = f"{scheme}://127.0.0.1:{http.server_address[1]}"
    try:
        yield server
    finally:
        server.stopping.set()
        http.shutdown()
        http.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """One connection with one request."""

    protocol_version = "HTTP/1.1"

    def __init__(self, server: ApiServer, *connection: Any) -> None:  # noqa: ANN401  those of the standard library
        self.api_server = server
        super().__init__(*connection)

    def respond(self) -> None:
        address = urlsplit(self.path)
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        sent = Sent(
            self.command, address.path, dict(parse_qsl(address.query)),
            self.headers.get("Content-Type", ""), json.loads(text) if text else None,
            self.headers.get("Authorization", ""),
        )  # fmt: skip
        self.api_server.sent.append(sent)
        match self.api_server.answer(sent):
            case Answer(status, body):
                self.send(status, body if isinstance(body, bytes) else json.dumps(body or {}).encode())
            case Watch(events, is_cut):
                self.stream(events, is_cut=is_cut)
            case Silent():
                self.api_server.stopping.wait()
        self.close_connection = True

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_PATCH(self) -> None:
        self.respond()

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def stream(self, events: Sequence[Any], *, is_cut: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        if not is_cut:
            self.wfile.write(b"0\r\n\r\n")

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Keep the log out of the tests' output."""


def refusal(code: int, message: str, **details: object) -> Answer:
    """A Status object, as the API server refuses with."""
    said = {"kind": "Status", "status": "Failure", "message": message, "code": code}
    return Answer(code, {**said, **({"details": details} if details else {})})
