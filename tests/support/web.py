"""Asks a server of this machine for a page, never through a proxy that the environment names."""

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

PATIENCE_S = 10
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Reply(NamedTuple):
    """An answer, whatever its status."""

    status: int
    page: str


def get(address: str, path: str) -> Reply:
    """GET, on HOST:PORT."""
    return _asked(urllib.request.Request(f"http://{address}{path}"))


def post(address: str, path: str, body: object) -> Reply:
    """POST, with a body of JSON."""
    headers = {"Content-Type": "application/json"}
    return _asked(urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), headers))


class SocketConnection(http.client.HTTPConnection):
    """HTTP on a unix socket, to a host of any name."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def post_on_socket(path: Path, target: str, headers: Mapping[str, str], method: str = "POST") -> Reply:
    """POST without a body, on a unix socket; the headers go before those of the client."""
    with closing(SocketConnection(path)) as connection:
        connection.request(method, target, headers=dict(headers))
        answer = connection.getresponse()
        return Reply(answer.status, answer.read().decode())


def _asked(request: urllib.request.Request) -> Reply:
    try:
        with _direct.open(request, timeout=PATIENCE_S) as reply:
            return Reply(reply.status, reply.read().decode())
    except urllib.error.HTTPError as refused:
        with refused:
            return Reply(refused.code, refused.read().decode())
