"""Who ends is asked to finish first: its application is ended when its sidecar has nothing in hand any more."""

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rota_operator.local.drain_call import ask_to_drain
from rota_operator.local.processes import Command, Processes, Told
from rota_operator.replicas.replicas import ReplicaSet
from rota_operator.replicas.words import Gone, Part, Rules, Undrained
from tests.support.processes import free_port, wait_for

pytestmark = pytest.mark.process

WITHIN_S = 15
# It says when it is asked to end. A sidecar's page answers with what is left, which somebody writes into a pipe.
CODE = """
import http.server, os, signal, sys
def say(*words): print(*words, flush=True)
def stop(*_):
    say(sys.argv[1], "stopped")
    os._exit(0)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        say("asked", self.path)
        left = open(sys.argv[2]).read()
        self.send_response(504 if left else 200)
        self.end_headers()
        self.wfile.write(left.encode())
        say("answered")
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[3])), Page) if sys.argv[1] == "sidecar" else None
signal.signal(signal.SIGTERM, stop)
say(sys.argv[1], "started")
while True: server.serve_forever() if server else signal.pause()
"""


class Place:
    """One replica, and all that its processes say in one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.pipe = folder / "pipe"
        self.port = free_port()
        self.told: list[Told] = []
        os.mkfifo(self.pipe)

    def command(self, replica: int, part: Part) -> Command:
        argv = [sys.executable, "-c", CODE, part.value, str(self.pipe), str(self.port)]
        return Command(argv, {}, self.folder, self.log, WITHIN_S, f"127.0.0.1:{self.port}")

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    async def until_said(self, line: str) -> None:
        await asyncio.to_thread(wait_for, line, lambda: line in self.lines, within_s=WITHIN_S)


def play(folder: Path, rules: Rules, left: str | None) -> Place:
    """A replica comes and goes; its sidecar is let answer with that, or not at all."""
    place = Place(folder)

    async def run() -> None:
        processes = Processes(ReplicaSet(rules), place.command, place.told.append)
        processes.want(1)
        await place.until_said("app started")
        await place.until_said("sidecar started")
        async with asyncio.timeout(WITHIN_S):
            ending = asyncio.ensure_future(processes.end())
            await place.until_said("asked /drain")
            assert "app stopped" not in place.lines
            if left is not None:
                await asyncio.to_thread(place.pipe.write_text, left)
            await ending

    asyncio.run(run())
    return place


ENDED = ["asked /drain", "answered", "app stopped", "sidecar stopped"]


def test_the_application_ends_when_nothing_is_in_hand_any_more(tmp_path: Path) -> None:
    place = play(tmp_path, Rules(), "")
    assert place.lines[2:] == ENDED
    assert place.told == [Gone(0)]


def test_what_is_left_is_told(tmp_path: Path) -> None:
    place = play(tmp_path, Rules(), "3 records are left\n")
    assert place.lines[2:] == ENDED
    assert place.told == [Undrained(0, "3 records are left"), Gone(0)]


def test_a_sidecar_that_does_not_answer_is_not_waited_for_longer(tmp_path: Path) -> None:
    place = play(tmp_path, Rules(drain_ms=300), None)
    assert place.lines[2:] == [line for line in ENDED if line != "answered"]
    assert place.told == [Undrained(0, "what it has in hand was not done after 300 ms"), Gone(0)]


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, within_s: float = WITHIN_S) -> str:
    """What is made of what a page does."""

    async def run() -> str:
        ended = asyncio.Event()

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await serve(reader, writer)
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        async with server, asyncio.timeout(WITHIN_S):
            said = await ask_to_drain(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", within_s)
            await ended.wait()
            return said

    return asyncio.run(run())


def test_a_sidecar_that_does_not_listen_has_handed_out_nothing() -> None:
    assert asyncio.run(ask_to_drain(f"127.0.0.1:{free_port()}", WITHIN_S)) == ""


def test_who_breaks_off_is_said() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        # The connection is not closed, but reset.
        option = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        writer.close()

    assert asked(break_off).startswith("its sidecar cannot be asked to drain (")


def test_who_hangs_up_has_ended() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert asked(hang_up) == "its sidecar has ended before it answered"


def test_who_says_nothing_is_given_up() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    assert asked(say_nothing, 0.05) == "its sidecar has not answered within 0.05 s"


def test_an_answer_is_not_read_for_ever() -> None:
    async def say_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000)
        # Until it hangs up.
        with suppress(ConnectionError):
            await writer.drain()
            await reader.read()

    assert asked(say_much) == ""
