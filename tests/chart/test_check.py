"""The check of `helm test`: a server that is not as it should be ends it with the address and the reason."""

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from tests.support.certificates import Authority
from tests.support.helm import CHART

pytestmark = pytest.mark.process

PROGRAM = CHART / "files" / "check.py"


@contextmanager
def page(status: int) -> Iterator[str]:
    """Serve a page with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        @override
        def log_message(self, format: str, *arguments: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/readyz"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def tls_server(authority: Authority, name: str) -> Iterator[str]:
    """Serve handshakes with a certificate for a name, at localhost."""
    issued = authority.issue("server", (f"DNS:{name}",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        context.wrap_socket(connection, server_side=True).close()
                    except (ssl.SSLError, OSError):
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"localhost:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the check once."""
    return subprocess.run(
        [sys.executable, PROGRAM, "--within=1", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "authority")


def test_what_is_ready_passes(authority: Authority) -> None:
    with page(200) as url, tls_server(authority, "localhost") as address:
        done = check(f"--page={url}", f"--server={address}", f"--ca={authority.certificate}")
    assert (done.returncode, done.stdout) == (0, f"{url}: ok\n{address}: ok\n")


def test_a_part_that_is_not_ready_is_named() -> None:
    with page(503) as url:
        done = check(f"--page={url}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{url}: HTTP Error 503")


def test_a_server_that_is_away_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"localhost:{closed.getsockname()[1]}"
    done = check(f"--server={address}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{address}: ")


def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    with tls_server(authority, "another.rota") as address:
        done = check(f"--server={address}", f"--ca={authority.certificate}")
    assert done.returncode == 1
    assert "Hostname mismatch" in done.stderr


def test_a_certificate_of_another_authority_is_refused(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("certificates") / "other")
    with tls_server(authority, "localhost") as address:
        done = check(f"--server={address}", f"--ca={other.certificate}")
    assert done.returncode == 1
    assert "certificate verify failed" in done.stderr
