"""
`python -m rota_sidecar drain`: asks a running sidecar on its drain socket. A pod's `preStop` runs it in the sidecar's container.

It loads nothing that takes time: a pod that ends waits for it.
"""

import argparse
import http.client
import os
import socket
import sys
from collections.abc import Sequence

from typing_extensions import override

from rota_sidecar.lifecycle.drain_orders import OnExpiry
from rota_sidecar.process.drain_requests import PATH, WrongRequest, request_of

VARIABLE = "ROTA_DRAIN_SOCKET"


class SocketConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def main(arguments: Sequence[str]) -> str:
    """Ask, and wait for the answer, which comes within the sidecar's drain time; return why it failed, or nothing."""
    parser = argparse.ArgumentParser(
        prog="rota-sidecar drain",
        description="Drain the sidecar of this container: nothing more is handed out. "
        "Ends with 0 when nothing is in the application's hands, and with 1 when the drain time is over.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--drain-socket",
        default=os.environ.get(VARIABLE, ""),
        metavar="FILE",
        help=f"the sidecar's --drain-socket; or the variable {VARIABLE}",
    )
    parser.add_argument(
        "--for-ms",
        metavar="N",
        help="how long the drain lasts unless the process ends before; unless given, the sidecar's drain time and 15 s",
    )
    parser.add_argument(
        "--then",
        choices=[each.value for each in OnExpiry],
        default=OnExpiry.RESUME.value,
        help="what follows: resume, or leave the group and end the process",
    )
    options = parser.parse_args(arguments)
    if not options.drain_socket:
        return f"--drain-socket is missing: give the sidecar's, or set {VARIABLE}"
    query = f"then={options.then}" + (f"&for_ms={options.for_ms}" if options.for_ms is not None else "")
    try:
        request_of(query)
    except WrongRequest as error:
        return str(error)
    return _asked(options.drain_socket, query)


def _asked(path: str, query: str) -> str:
    connection = SocketConnection(path)
    try:
        connection.request("POST", f"{PATH}?{query}")
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"{path} does not answer ({error}): see whether the sidecar runs with this --drain-socket"
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        return said
    sys.stdout.write(f"{said}\n")
    return ""
