"""
Floods against a gRPC port: one connection, or many, and their effect on all other clients.

Each sends what it is named after, and leaves its connections open until the attacker closes them. All are bounded in
count, bytes and time.
"""

import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

from tests.security.http2 import (
    CANCEL,
    CONTINUATION,
    DATA,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Connection,
    encode,
    literal,
    request_headers,
)
from tests.support.processes import steady_ms

HEARTBEAT = "/rota.coordinator.v1.Coordinator/Heartbeat"
SESSION = "/rota.coordinator.v1.Coordinator/Session"
FRAMES = 1_000  # sent at once
FRAME_BYTES = 16_384
WINDOW_BYTES = 65_535
MESSAGE_BYTES = 4 * 1024 * 1024
UNFINISHED_S = 2
# Attackers have an address of their own, as another host would: the limits of strangers are those of an address.
ATTACKERS_ADDRESS = "127.0.0.2"


class Attacker(ExitStack):
    """Connects to an address with a token, empty for a stranger; its connections stay open until the block ends."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__()
        self._address = address
        self._token = token

    def connect(self) -> Connection:
        """Connect without a word."""
        return self.enter_context(Connection(self._address, ATTACKERS_ADDRESS))

    def call(self, connection: Connection, method: str = HEARTBEAT) -> tuple[int, bytes]:
        """Begin a call with the token: its stream, and the frame to send."""
        return connection.call(method, self._token)

    def send(self, flood: "Flood") -> None:
        """Send a flood; the server may cut it off, or read no more of it."""
        with suppress(ConnectionError, TimeoutError):
            flood(self)


Flood = Callable[[Attacker], None]


def calls_without_message(attacker: Attacker) -> None:
    """Begin 20,400 calls, and send no message for any."""
    connection = attacker.connect().open()
    connection.send(b"".join(attacker.call(connection)[1] for _ in range(20_400)))


def unfinished_messages(attacker: Attacker) -> None:
    """Send 300 messages of 4 MiB, each but for its last 100 bytes, as far as the server opens its windows."""
    send_unfinished(attacker, HEARTBEAT)


def unfinished_frames(attacker: Attacker) -> None:
    """Send the same as the first frames of 300 streams."""
    send_unfinished(attacker, SESSION)


def send_unfinished(attacker: Attacker, method: str) -> None:
    """Send 300 messages without their ends, on one connection."""
    connection = attacker.connect().open()
    sender = WindowedSender(connection)
    for _ in range(300):
        stream, headers = attacker.call(connection, method)
        connection.send(headers)
        sender.add(stream, struct.pack(">BI", 0, MESSAGE_BYTES), MESSAGE_BYTES - 100)
    sender.run(UNFINISHED_S)


def idle_connections(attacker: Attacker) -> None:
    """Connect 3,000 times without a word: three times as often as the process has file descriptors."""
    for _ in range(3_000):
        attacker.connect()


def resets(attacker: Attacker) -> None:
    """Begin 50,000 calls, and reset each at once."""
    connection = attacker.connect().open()
    for _ in range(50):
        frames = b""
        for _ in range(FRAMES):
            stream, headers = attacker.call(connection)
            frames += headers + encode(RST_STREAM, 0, stream, CANCEL)
        connection.send(frames)


def pings(attacker: Attacker) -> None:
    """Ping 100,000 times."""
    repeat(attacker.connect().open(), encode(PING, 0, 0, bytes(8)))


def settings(attacker: Attacker) -> None:
    """Change nothing in the settings, 100,000 times."""
    repeat(attacker.connect().open(), encode(SETTINGS, 0, 0))


def continuations(attacker: Attacker) -> None:
    """Continue the headers of one call 100,000 times."""
    connection = attacker.connect().open()
    connection.send(encode(HEADERS, 0, 1, request_headers(HEARTBEAT)))
    repeat(connection, encode(CONTINUATION, 0, 1, literal("x" * 50, "y" * 100)))


def repeat(connection: Connection, frame: bytes) -> None:
    """Send a frame 100,000 times."""
    for _ in range(100):
        connection.send(frame * FRAMES)


FLOODS: tuple[Flood, ...] = (
    calls_without_message,
    unfinished_messages,
    unfinished_frames,
    idle_connections,
    resets,
    pings,
    settings,
    continuations,
)


class WindowedSender:
    """
    Sends messages in parts, each stream within the windows that the server opened.

    Invariant: no stream, and not the connection, has sent more than its window.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._windows = {0: WINDOW_BYTES}
        self._left: dict[int, int] = {}
        self._ended: set[int] = set()
        self._opened = threading.Condition()
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def add(self, stream: int, head: bytes, zeros: int) -> None:
        """Send `head` and so many zeros on the stream."""
        with self._opened:
            self._windows.setdefault(stream, WINDOW_BYTES)
        self._left[stream] = len(head) + zeros
        self._connection.send(encode(DATA, 0, stream, head))
        self._take(stream, len(head))

    def run(self, seconds: float) -> None:
        """Send until everything is sent, the server closes the connection, or the time is over."""
        until_ms = steady_ms() + seconds * 1_000
        while (
            any(self._left[stream] for stream in self._left.keys() - self._ended)
            and not self._closed
            and steady_ms() < until_ms
        ):
            if sum(self._send(stream) for stream in self._left.keys() - self._ended) == 0:
                with self._opened:
                    self._opened.wait(0.05)

    def _send(self, stream: int) -> int:
        with self._opened:
            size = min(self._left[stream], self._windows[stream], self._windows[0], FRAME_BYTES)
        if size > 0:
            self._connection.send(encode(DATA, 0, stream, bytes(size)))
            self._take(stream, size)
        return max(size, 0)

    def _take(self, stream: int, size: int) -> None:
        with self._opened:
            self._windows[stream] -= size
            self._windows[0] -= size
        self._left[stream] = max(0, self._left[stream] - size)

    def _read(self) -> None:
        with suppress(OSError):
            for frame in self._connection.frames():
                if frame.kind == WINDOW_UPDATE:
                    with self._opened:
                        opened = int.from_bytes(frame.payload)
                        self._windows[frame.stream] = self._windows.get(frame.stream, WINDOW_BYTES) + opened
                        self._opened.notify()
                elif frame.kind in (HEADERS, RST_STREAM):
                    # The call has ended.
                    self._ended.add(frame.stream)
        self._closed = True
