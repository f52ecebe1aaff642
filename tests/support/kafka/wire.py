"""
The question whether a broker answers, put to it in its own protocol.

This is the readiness probe of brokers: a client library's bootstrap backs off between attempts and would make a
start of three seconds look like nine. It imports only the standard library, because tests also run this very
file inside pods.
"""

import socket
import ssl
import struct

API_VERSIONS = 18
CORRELATION = 7
TIMEOUT_S = 2.0


def answers(host: str, port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Return True if a broker answers an ApiVersions request (version 0), which needs no authentication."""
    # Wrapped before it is connected: wrapping a connection that was reset meanwhile loses the socket unclosed.
    plain = socket.socket()
    try:
        with plain if tls is None else tls.wrap_socket(plain, server_hostname=host) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect((host, port))
            return _asks(connection)
    except OSError:  # refused, reset, timed out, or no TLS there: not (yet) a broker that answers us
        return False


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send one request (without its length) and give the answer (without its length)."""
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, length)


def _asks(connection: socket.socket) -> bool:
    client = b"rota-tests"
    header = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION, len(client)) + client
    correlation, error = struct.unpack_from(">ih", exchange(connection, header))
    return bool(correlation == CORRELATION and error == 0)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        received = connection.recv(size - len(data))
        if not received:
            raise ConnectionResetError(f"the peer closed the connection after {len(data)} of {size} bytes")
        data += received
    return data
