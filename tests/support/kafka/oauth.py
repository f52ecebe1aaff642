"""
Tokens and a token endpoint for tests of OAUTHBEARER.

Kafka's broker has a validator of its own for unsecured tokens, JWTs without a signature; `unsecured` makes those. The endpoint
is an HTTP server of the test's process, over TLS with a certificate; a test says how it answers.
"""

import json
import ssl
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from typing_extensions import override

from tests.support.certificates import Issued

CLIENT_ID, CLIENT_SECRET = "rota", "client-secret-nobody-sees"


def unsecured(subject: str = CLIENT_ID, lifetime_s: float = 3600, **claims: Any) -> str:  # noqa: ANN401  as JSON has them
    """A token without a signature."""
    now_s = time.time()
    return jwt(**{"sub": subject, "iat": now_s, "exp": now_s + lifetime_s, **claims})


def jwt(**claims: Any) -> str:  # noqa: ANN401  as JSON has them
    """A token with these claims alone."""
    return f"{_part({'alg': 'none', 'typ': 'JWT'})}.{_part(claims)}."


def _part(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@dataclass(frozen=True)
class Answer:
    """An answer of the endpoint."""

    status: int = 200
    body: bytes = b""

    @classmethod
    def of(cls, status: int = 200, **values: Any) -> "Answer":  # noqa: ANN401  as JSON has them
        return cls(status, json.dumps(values).encode())

    @classmethod
    def token(cls, subject: str = CLIENT_ID, lifetime_s: float = 3600) -> "Answer":
        return cls.of(
            access_token=unsecured(subject, lifetime_s), token_type="Bearer", expires_in=round(lifetime_s)
        )


@dataclass
class Request:
    """A request that the endpoint has received."""

    login: str
    form: Mapping[str, list[str]]


@dataclass
class Endpoint:
    """A running token endpoint."""

    url: str
    answer: Callable[[], Answer]
    requests: list[Request] = field(default_factory=list)
    # Set while answers are given; a hanging endpoint has it cleared.
    answers: threading.Event = field(default_factory=threading.Event)


@contextmanager
def endpoint(
    answer: Callable[[], Answer] = Answer.token, certificate: Issued | None = None
) -> Iterator[Endpoint]:
    """Serve a token endpoint for one client; https with a certificate."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            login = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            running.requests.append(Request(login, parse_qs(body)))
            running.answers.wait()
            is_known = login == f"{CLIENT_ID}:{CLIENT_SECRET}"
            answered = running.answer() if is_known else Answer.of(401, error="invalid_client")
            self.send_response(answered.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    port = server.server_address[1]
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    running = Endpoint(f"{scheme}://127.0.0.1:{port}/token", answer)
    running.answers.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
