"""
Raw HTTP/2 frames over a socket (RFC 9113), for what no well-behaved client sends.

A connection sends exactly the frames that a test asks for, and reads what the server answers. Header fields are HPACK
literals without indexing (RFC 7541, 6.2.2), so that no state is needed.
"""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple, Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
CANCEL = struct.pack(">I", 8)
FRAME_BYTES_MAX = 16_384
HEAD_BYTES = 9
# A busy machine takes its time to answer.
WITHIN_S = 60
# A server that accepts or reads no more is not waited for.
SEND_S = 3


class Frame(NamedTuple):
    """One frame as it is on the wire."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def encode(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """Encode a header field, of fewer than 127 bytes each."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def request_headers(method: str, token: str = "") -> bytes:
    """Encode the header fields of a gRPC call; `method` is its path."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    if token:
        fields["authorization"] = f"Bearer {token}"
    return b"".join(literal(name, value) for name, value in fields.items())


class Connection:
    """One connection to a server; stream numbers are odd and rise by two."""

    def __init__(self, address: str, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), SEND_S, (source, 0))
        self._unread = b""
        self._next_stream = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def open(self) -> Self:
        """Send the preface and empty settings, and acknowledge those of the server."""
        self.socket.sendall(PREFACE + encode(SETTINGS, 0, 0))
        for frame in self.frames():
            if frame.kind == SETTINGS and not frame.flags & ACK:
                self.socket.sendall(encode(SETTINGS, ACK, 0))
                break
        return self

    def send(self, data: bytes) -> None:
        """Send encoded frames; raises TimeoutError when the server does not take them within `SEND_S`."""
        self.socket.settimeout(SEND_S)
        self.socket.sendall(data)

    def call(self, method: str, token: str = "") -> tuple[int, bytes]:
        """Begin a call: its stream's number and the frame to send, which leaves the stream open."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        return stream, encode(HEADERS, END_HEADERS, stream, request_headers(method, token))

    def frames(self) -> Iterator[Frame]:
        """Read frames until the server closes the connection; raises TimeoutError after `WITHIN_S` without one."""
        self.socket.settimeout(WITHIN_S)
        while True:
            while len(self._unread) < HEAD_BYTES or len(self._unread) < HEAD_BYTES + self._length():
                try:
                    received = self.socket.recv(65_536)
                except ConnectionError:
                    return
                if not received:
                    return
                self._unread += received
            length = self._length()
            kind, flags, stream = struct.unpack(">BBI", self._unread[3:HEAD_BYTES])
            payload = self._unread[HEAD_BYTES : HEAD_BYTES + length]
            self._unread = self._unread[HEAD_BYTES + length :]
            yield Frame(kind, flags, stream & 0x7FFF_FFFF, payload)

    def _length(self) -> int:
        return int.from_bytes(self._unread[:3])
