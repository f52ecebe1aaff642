"""
The addresses of the service for the application: a unix socket, private by itself or by its mount, or a port on loopback. Used by
`process/listeners.py`, before the server starts.

A client that reaches the service may do everything that the group may. The addresses therefore exclude other pods and, on
a shared machine, other users.
"""

import os
import socket
from pathlib import Path

import grpc.aio

from rota_service import private_files
from rota_service.addresses import BindError, is_loopback

UNIX = "unix:"
UNBOUND = "cannot bind unix:{}; check that this user may write to the folder"


def bind_port(server: grpc.aio.Server, address: str, *, insecure: bool = False) -> str:
    """
    Bind HOST:PORT and return it with the actual port. Only loopback addresses are allowed unless `insecure`.

    Raises BindError.
    """
    if not (is_loopback(address) or insecure):
        raise BindError(
            f"{address} can be reached from other machines, whose clients could use this group; "
            "use 127.0.0.1:PORT or a unix socket"
        )
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise BindError(
            f"cannot bind {address}; check which process uses the port, or use another one"
        ) from None
    return f"{address.rpartition(':')[0]}:{port}"


def bind_socket(server: grpc.aio.Server, path: Path, mode: int = private_files.FILE_MODE) -> str:
    """
    Bind a unix socket and return its gRPC target. Raises BindError.

    Only this user can open it, unless `mode` gives permissions to others: for a folder that only the application's container
    mounts.
    """
    path = path.absolute()
    _refuse_path(path)
    # The socket is private from the start: gRPC creates it here, with the permissions of the umask.
    with private_files.owner_only():
        try:
            server.add_insecure_port(f"{UNIX}{path}")
        except RuntimeError:
            raise BindError(UNBOUND.format(path)) from None
    path.chmod(mode)
    return f"{UNIX}{path}"


def frames_path(path: Path) -> Path | None:
    """Return the path of the socket that serves Deliver in frames beside this one; None if it would be too long."""
    beside = path.with_name(f"{path.name}.frames").absolute()
    return beside if len(os.fsencode(beside)) <= private_files.SOCKET_PATH_BYTES_MAX else None


def open_socket(path: Path, mode: int) -> socket.socket:
    """Open a unix socket for a server without gRPC, with the permissions of `bind_socket`. Raises BindError."""
    _refuse_path(path)
    try:
        return private_files.bound_socket(path, mode)
    except OSError:
        raise BindError(UNBOUND.format(path)) from None


def _refuse_path(path: Path) -> None:
    if problem := private_files.socket_problem(path):
        raise BindError(f"{UNIX}{path}: {problem}")
