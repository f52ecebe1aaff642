"""
Where the application finds the sidecar: a private unix socket, or a port on loopback. Used by `serving`.

Whoever reaches the service may do everything that the group may, so nobody beyond the pod, and on a shared machine no
other user, is let near it.
"""

from pathlib import Path

import grpc.aio

from rota_service import private_files
from rota_service.addresses import BindError, is_loopback

UNIX = "unix:"


def bind_port(server: grpc.aio.Server, address: str, *, insecure: bool = False) -> str:
    """
    HOST:PORT, on this machine only unless that is meant; the address, with its port if that was 0. Before the server starts.

    Raises BindError.
    """
    if not (is_loopback(address) or insecure):
        raise BindError(
            f"{address} can be reached from other machines, and everybody there could use this group: "
            "give 127.0.0.1:PORT, or a socket"
        )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise BindError(
            f"{address} cannot be listened on: see who has that port, or name another one"
        ) from None
    return f"{address.rpartition(':')[0]}:{port}"


def bind_socket(server: grpc.aio.Server, path: Path) -> str:
    """A socket that only this user opens; what to dial. Before the server starts. Raises BindError."""
    path = path.absolute()
    if problem := private_files.socket_problem(path):
        raise BindError(f"{UNIX}{path}: {problem}")
    # The socket is private from its first moment: gRPC makes it right here, with what the mask leaves.
    with private_files.owner_only():
        try:
            server.add_insecure_port(f"{UNIX}{path}")
        except RuntimeError:
            raise BindError(
                f"{UNIX}{path} cannot be listened on: see that this user may write there"
            ) from None
    path.chmod(private_files.FILE_MODE)
    return f"{UNIX}{path}"
