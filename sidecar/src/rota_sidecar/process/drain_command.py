"""
`python -m rota_sidecar drain`: sends a drain request to the drain socket of a running sidecar.

The `preStop` of the sidecar's container runs it. It imports nothing that loads slowly: the end of a pod waits for it.
"""

import http.client
import os
import socket
import sys
from collections.abc import Sequence

from typing_extensions import override

from rota_sidecar.config.drain_arguments import VARIABLE, parse_drain_arguments
from rota_sidecar.process.drain_requests import PATH, WrongRequest, request_of


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, whose path replaces host and port."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def main(arguments: Sequence[str]) -> str:
    """Request a drain and wait for the answer, at most the sidecar's drain time; return why it failed, or an empty string."""
    given = parse_drain_arguments(arguments, os.environ)
    if not given.drain_socket:
        return f"--drain-socket is missing; give the sidecar's, or set {VARIABLE}"
    query = f"then={given.then}" + (f"&for_ms={given.for_ms}" if given.for_ms is not None else "")
    try:
        request_of(query)
    except WrongRequest as error:
        return str(error)
    return _request(given.drain_socket, query)


def _request(path: str, query: str) -> str:
    connection = SocketConnection(path)
    try:
        connection.request("POST", f"{PATH}?{query}")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"{path} does not answer ({error}); check that the sidecar runs with this --drain-socket"
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        return text
    sys.stdout.write(f"{text}\n")
    return ""
