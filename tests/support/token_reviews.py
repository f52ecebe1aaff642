"""
A server of this machine that answers TokenReviews as an API server does, for what a real one cannot be made to do in a test.

It serves over TLS in a thread; `pod` adds a pod and returns its token, `delete` takes it away. The folder that a pod has of its
service account is `folder`.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typing_extensions import override

from rota_service.pod_tokens import POD_NAME, POD_UID
from tests.support.certificates import Authority

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
OWN_TOKEN = "token-of-the-coordinator"
HOUR_S = 3_600.0
SILENT_S = 60


def jwt(name: str, expires_in_s: float = HOUR_S) -> str:
    """A token in the form of a JWT, without a valid signature."""
    claims = {"exp": time.time() + expires_in_s, "name": name}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"header.{body}.canary"


class TokenReviews:
    """The API server. Its state may be changed at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "serviceaccount"
        self.folder.mkdir()
        self._authority = Authority(folder / "authority")
        self.rotate_own_token(OWN_TOKEN)
        (self.folder / "ca.crt").write_bytes(self._authority.certificate.read_bytes())
        self._statuses: dict[str, Mapping[str, Any]] = {}
        # Tokens, in the order of their reviews.
        self.reviewed: list[str] = []
        # HTTP status with which every review is refused; 0: none is.
        self.refuses_with = 0
        # Bodies are sent in chunks, and connections are closed after each response.
        self.sends_chunks = False
        self.closes = False
        # Set: reviews are answered.
        self.answers = threading.Event()
        self.answers.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self._server.daemon_threads = True
        issued = self._authority.issue("api-server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that Kubernetes gives to every pod."""
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}

    @property
    def flags(self) -> list[str]:
        """The coordinator's flags."""
        return ["--token-review", f"--service-account-folder={self.folder}"]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()

    def rotate_own_token(self, token: str) -> None:
        """Give the coordinator another token; the one before is rejected from now on."""
        self.own_token = token
        fresh = self.folder / "token.new"
        fresh.write_text(f"{token}\n")
        fresh.replace(self.folder / "token")

    def pod(
        self,
        namespace: str,
        name: str,
        *,
        account: str = "default",
        uid: str = "",
        expires_in_s: float = HOUR_S,
        audience: str = "rota",
    ) -> str:
        """Add a pod; return its token, which an empty name leaves unbound."""
        token = jwt(f"{namespace}/{name}/{uid}/{account}/{audience}", expires_in_s)
        extra = {POD_NAME: [name], POD_UID: [uid or f"uid of {namespace}/{name}"]} if name else {}
        user = {"username": f"system:serviceaccount:{namespace}:{account}", "extra": extra}
        self._statuses[token] = {"authenticated": True, "audiences": [audience], "user": user}
        return token

    def delete(self, token: str) -> None:
        """Delete the pod of a token, or let the token expire."""
        del self._statuses[token]

    def review(self, own_token: str, request: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """Return the HTTP status and the body of a response."""
        if own_token != f"Bearer {self.own_token}":
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if self.refuses_with:
            return self.refuses_with, {"kind": "Status", "message": f"refused with {self.refuses_with}"}
        token = request["spec"]["token"]
        self.reviewed.append(token)
        status = self._statuses.get(token, {"error": "invalid bearer token"})
        if not set(status.get("audiences", ())) & set(request["spec"]["audiences"]):
            status = {"error": "token audiences are not for this server"} if status.get("user") else status
        return 201, {**request, "status": status}


def handler_of(reviews: TokenReviews) -> type[BaseHTTPRequestHandler]:
    """The handler of its requests."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == PATH
            reviews.answers.wait(SILENT_S)
            code, answer = reviews.review(self.headers["Authorization"], json.loads(body))
            data = json.dumps(answer).encode()
            self.send_response(code)
            if reviews.closes:
                self.send_header("Connection", "close")
            if reviews.sends_chunks:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for part in (data[:7], data[7:]):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    return Handler


@contextmanager
def serving_reviews(folder: Path) -> Iterator[TokenReviews]:
    """A server that answers, and stops in the end."""
    reviews = TokenReviews(folder)
    reviews.start()
    try:
        yield reviews
    finally:
        reviews.stop()
