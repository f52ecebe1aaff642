"""A replica drains before it stops: its application ends when its sidecar has no record in flight."""

import asyncio
import errno
import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rota_operator.local.drain_client import ask_to_drain
from rota_operator.local.processes import Command, Processes, ReplicaEvent
from rota_operator.replicas.events import DrainFailed, ProcessRole, ReplicaPolicy, ReplicaStopped
from rota_operator.replicas.replica_set import ReplicaSet
from tests.support.processes import wait_for

pytestmark = pytest.mark.process

WITHIN_S = 15
ASKED = f"asked /drain?then=leave&for_ms={WITHIN_S * 1000} localhost"
# It says when it is asked to end, each line in one write, because both processes write to one file. A sidecar's drain
# socket answers with what is left, which somebody writes into a pipe.
CODE = """
import http.server, os, signal, socketserver, sys
def say(*words): os.write(1, (" ".join(words) + "\\n").encode())
def stop(*_):
    say(sys.argv[1], "stopped")
    os._exit(0)
class Page(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        say("asked", self.path, self.headers["Host"])
        left = open(sys.argv[2]).read()
        self.send_response(504 if left else 200)
        self.end_headers()
        self.wfile.write(left.encode())
        say("answered")
    def log_message(self, *_): pass
class Server(socketserver.UnixStreamServer):
    def get_request(self):
        request, _ = super().get_request()
        return request, ("", 0)
server = Server(sys.argv[3], Page) if sys.argv[1] == "sidecar" else None
signal.signal(signal.SIGTERM, stop)
say(sys.argv[1], "started")
while True: server.serve_forever() if server else signal.pause()
"""


class ReplicaRun:
    """One replica, and all that its processes say in one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.pipe = folder / "pipe"
        self.socket = folder / "drain"
        self.events: list[ReplicaEvent] = []
        os.mkfifo(self.pipe)

    def command(self, replica: int, part: ProcessRole) -> Command:
        argv = [sys.executable, "-c", CODE, part.value, str(self.pipe), str(self.socket)]
        return Command(argv, {}, self.folder, self.log, WITHIN_S, self.socket)

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    async def until_said(self, line: str) -> None:
        await asyncio.to_thread(wait_for, line, lambda: line in self.lines, within_s=WITHIN_S)

    def answer(self, left: str) -> None:
        """Let the sidecar answer. The pipe is opened when it reads: without a reader, opening would wait without end."""
        found: list[int] = []

        def has_reader() -> bool:
            try:
                found.append(os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
            return bool(found)

        wait_for("the sidecar reads what is left", has_reader, within_s=WITHIN_S)
        with os.fdopen(found[0], "w") as pipe:
            pipe.write(left)


def play(folder: Path, rules: ReplicaPolicy, left: str | None) -> ReplicaRun:
    """A replica comes and goes; its sidecar is let answer with that, or not at all."""
    run_of_replica = ReplicaRun(folder)

    async def run() -> None:
        processes = Processes(ReplicaSet(rules), run_of_replica.command, run_of_replica.events.append)
        processes.scale(1)
        await run_of_replica.until_said("app started")
        await run_of_replica.until_said("sidecar started")
        async with asyncio.timeout(WITHIN_S):
            ending = asyncio.ensure_future(processes.stop())
            await run_of_replica.until_said(ASKED)
            assert "app stopped" not in run_of_replica.lines
            if left is not None:
                await asyncio.to_thread(run_of_replica.answer, left)
            await ending

    asyncio.run(run())
    return run_of_replica


ENDED = [ASKED, "answered", "app stopped", "sidecar stopped"]


def test_the_application_ends_when_nothing_is_in_hand_any_more(tmp_path: Path) -> None:
    run_of_replica = play(tmp_path, ReplicaPolicy(), "")
    assert run_of_replica.lines[2:] == ENDED
    assert run_of_replica.events == [ReplicaStopped(0)]


def test_remaining_records_are_reported(tmp_path: Path) -> None:
    run_of_replica = play(tmp_path, ReplicaPolicy(), "3 records are left\n")
    assert run_of_replica.lines[2:] == ENDED
    assert run_of_replica.events == [DrainFailed(0, "3 records are left"), ReplicaStopped(0)]


def test_a_sidecar_that_does_not_answer_is_not_waited_for_longer(tmp_path: Path) -> None:
    run_of_replica = play(tmp_path, ReplicaPolicy(drain_ms=300), None)
    assert run_of_replica.lines[2:] == [line for line in ENDED if line != "answered"]
    assert run_of_replica.events == [
        DrainFailed(0, "records still in flight after 300 ms"),
        ReplicaStopped(0),
    ]


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, within_s: float = WITHIN_S) -> str:
    """Result of a drain request, by what the drain socket answers."""

    async def run() -> str:
        ended = asyncio.Event()

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
            ended.set()

        server = await asyncio.start_unix_server(serve_one, path)
        async with server, asyncio.timeout(WITHIN_S):
            said = await ask_to_drain(path, within_s)
            await ended.wait()
            return said

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drain"
        return asyncio.run(run())


def test_a_sidecar_without_drain_socket_has_dispatched_nothing(tmp_path: Path) -> None:
    path = tmp_path / "drain"
    assert asyncio.run(ask_to_drain(path, WITHIN_S)) == ""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert asyncio.run(ask_to_drain(path, WITHIN_S)) == ""


def test_who_breaks_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "drain"

    def break_off(server: socket.socket) -> None:
        connection, _ = server.accept()
        connection.settimeout(WITHIN_S)
        connection.recv(1, socket.MSG_PEEK)
        # What was not read resets the connection.
        connection.close()

    async def run(server: socket.socket) -> str:
        breaking = asyncio.ensure_future(asyncio.to_thread(break_off, server))
        said = await ask_to_drain(path, WITHIN_S)
        await breaking
        return said

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(WITHIN_S)
        assert asyncio.run(run(server)).startswith("the sidecar's drain socket failed (")


def test_who_hangs_up_has_ended() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert asked(hang_up) == "the sidecar exited before it answered"


def test_who_says_nothing_is_given_up() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    assert asked(say_nothing, 0.05) == "the sidecar did not answer within 0.05 s"


def test_an_answer_is_not_read_for_ever() -> None:
    async def say_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000)
        # Until it hangs up.
        with suppress(ConnectionError):
            await writer.drain()
            await reader.read()

    assert asked(say_much) == ""
