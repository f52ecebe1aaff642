"""
Start members and sidecars as processes: JSON members, driven by commands and watched by events, and whole sidecars.

    sidecar = Sidecar(folder, "rota://127.0.0.1:7070", "orders", ["--topics=events"])
    sidecar.start()
    sidecar.wait("assigned")
    sidecar.ask("commit", offsets=[{"topic": "events", "partition": 0, "offset": 7}])
    sidecar.terminate()
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

from tests.support import web
from tests.support.processes import Process, current_owner
from tests.support.tree import python_path
from tests.support.workdir import logs

# Everything happens at once, except where a real timer is what is tested.
QUICK = ("--session-timeout-ms=6000", "--heartbeat-interval-ms=500", "--topics-refresh-ms=500")
WITHIN_S = 60
TOPIC = "events"
SHOWN = 12

Event = Mapping[str, Any]
Partition = tuple[str, int]
# What was told at the same time as an event: all of them, until the test asks.
Holds = Callable[[Event], bool]


def flat(partitions: Mapping[str, Sequence[int]]) -> set[Partition]:
    """The partitions of an event, one by one."""
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


class Sidecar:
    """One sidecar; `start` again after `kill` or `terminate` is the same one, on the same state folder."""

    def __init__(
        self,
        folder: Path,
        servers: str,
        group: str,
        flags: Sequence[str] = (f"--topics={TOPIC}",),
        *,
        name: str = "sidecar",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.group = group
        # Goes before the command.
        self.inside: Sequence[str] = ()
        self._logs = logs(folder)
        self._flags = [
            f"--bootstrap-servers={servers}",
            f"--group-id={group}",
            *QUICK,
            *flags,
        ]
        self._environment = environment or {}
        self._starts = 0
        self._ids = count(1)
        self._process: Process | None = None
        self._owner = current_owner()
        self._child: subprocess.Popen[bytes] | None = None
        self._output = self._logs / "nothing-yet"
        self._read_to = 0
        self._seen: list[Event] = []
        # How far `wait` has gone.
        self._next = 0

    def start(self, *more_flags: str) -> None:
        """Start it; it ends with the thread that called this."""
        self.close_input()
        self._starts += 1
        begin = f"{self.name}-{self._starts}"
        self._output, log = self._logs / f"{begin}.events", self._logs / f"{begin}.log"
        self._read_to, self._seen, self._next = 0, [], 0
        program = [sys.executable, "-m", "tests.support.json_member"]
        command = ["setpriv", "--pdeathsig", "KILL", "--", *self.inside, *program]
        with self._output.open("wb") as events, log.open("wb") as errors:
            child = subprocess.Popen(
                [*command, *self._flags, *more_flags],
                stdin=subprocess.PIPE,
                stdout=events,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": python_path(), **self._environment},
                start_new_session=True,
            )
        self._child, self._process = child, Process(self.name, child, log, self._owner)

    @property
    def events(self) -> Sequence[Event]:
        """All that the running process has told so far."""
        with self._output.open("rb") as output:
            output.seek(self._read_to)
            complete, _, _ = output.read().rpartition(b"\n")
        if complete:
            self._read_to += len(complete) + 1
            self._seen += [json.loads(line) for line in complete.splitlines()]
        return self._seen

    def wait(self, event: str, holds: Holds = lambda _: True, *, within_s: float = WITHIN_S) -> Event:
        """The next event of this name for which that holds, after the one that was waited for last."""
        found: list[int] = []

        def is_there() -> bool:
            events = self.events
            found[:] = [
                index
                for index in range(self._next, len(events))
                if events[index]["event"] == event and holds(events[index])
            ][:1]
            return bool(found)

        try:
            self._running.wait_until(is_there, within_s=within_s)
        except Exception as error:
            if not is_there():  # it may have ended right after it
                error.add_note("\n".join(["its last events:", *map(json.dumps, self.events[-SHOWN:])]))
                raise
        self._next = found[0] + 1
        return self._seen[found[0]]

    def count(self, event: str) -> int:
        """Number of events of this name so far."""
        return sum(each["event"] == event for each in self.events)

    @property
    def partitions(self) -> set[Partition]:
        """Partitions that it owns, by its events; those being revoked are still its own."""
        held: set[Partition] = set()
        for event in self.events:
            if event["event"] == "assigned":
                held |= flat(event["partitions"])
            elif event["event"] in ("revoked", "lost"):
                held -= flat(event["partitions"])
        return held

    def wait_until_it_has(self, number: int, *, within_s: float = WITHIN_S) -> set[Partition]:
        """Its partitions, once there are so many."""
        self._running.wait_until(lambda: len(self.partitions) == number, within_s=within_s)
        return self.partitions

    def is_stable_in(self, generation: int) -> bool:
        """Return True if it is stable in this generation, or a later one."""
        states = [event for event in self.events if event["event"] == "state"]
        return bool(states) and states[-1]["state"] == "Stable" and states[-1]["generation"] >= generation

    def wait_until_stable_in(self, generation: int, *, within_s: float = WITHIN_S) -> None:
        """Return as soon as it is."""
        self._running.wait_until(lambda: self.is_stable_in(generation), within_s=within_s)

    def say(self, line: str) -> None:
        """Send a line, whatever it is."""
        assert self._child is not None
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n".encode())
        self._child.stdin.flush()

    def send(self, command: str, **fields: object) -> None:
        """Send a command."""
        self.say(json.dumps({"command": command, **fields}))

    def ask(self, command: str, *, within_s: float = WITHIN_S, **fields: object) -> Event:
        """The answer to a command: what was committed or fetched, or why it was refused."""
        number = next(self._ids)
        self.send(command, id=number, **fields)
        found: list[Event] = []

        def is_there() -> bool:
            found[:] = [event for event in self.events if event.get("id") == number]
            return bool(found)

        self._running.wait_until(is_there, within_s=within_s)
        return found[0]

    def commit(self, offsets: Mapping[Partition, int], **more: object) -> Mapping[Partition, str]:
        """Commit offsets, `more` beside each of them; the errors."""
        parts = [
            {"topic": topic, "partition": number, "offset": offset, **more}
            for (topic, number), offset in offsets.items()
        ]
        answer = self.ask("commit", offsets=parts)
        return {(each["topic"], each["partition"]): each["error"] for each in answer["errors"]}

    def fetch(self) -> Mapping[Partition, int]:
        """Committed offsets of its partitions."""
        offsets = self.ask("fetch")["offsets"]
        return {(each["topic"], each["partition"]): each["offset"] for each in offsets if each["offset"] >= 0}

    def terminate(self, *, within_s: float = WITHIN_S) -> int:
        """SIGTERM, once; the exit code."""
        self.signal(signal.SIGTERM)
        return self._running.wait(within_s=within_s)

    def wait_for_exit(self, *, within_s: float = WITHIN_S) -> int:
        """The exit code, once it ends by itself."""
        return self._running.wait(within_s=within_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self._running.kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP freezes it, SIGCONT wakes it."""
        os.kill(self._running.pid, number)

    def close_input(self) -> None:
        """Say nothing any more."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def stop(self) -> None:
        """End it whatever it does, if it runs."""
        if self._process is not None and self._process.exit_code is None:
            self.signal(signal.SIGCONT)
            self._process.stop()
        self.close_input()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def log(self) -> str:
        """Standard error of the process."""
        return self._running.log.read_text()

    @property
    def _running(self) -> Process:
        assert self._process is not None
        return self._process


def settle(*sidecars: Sidecar) -> None:
    """
    Return when all are in the generation that one of them has come to.

    Who keeps what it has looks settled before it has come to a round that gave others something.
    """
    generation = max(sidecar.events[-1]["generation"] for sidecar in sidecars)
    for sidecar in sidecars:
        sidecar.wait_until_stable_in(generation)


@contextmanager
def running(*sidecars: Sidecar) -> Iterator[None]:
    """Start them all; those that run are ended in the end."""
    try:
        for sidecar in sidecars:
            sidecar.start()
        yield
    finally:
        for sidecar in sidecars:
            sidecar.stop()


class Deliverer:
    """
    A sidecar that delivers; `start` again after `kill` or `terminate` is the next one in the same place.

        sidecar = Deliverer(folder, "rota://127.0.0.1:7070", "orders")
        sidecar.start()
        app = App(folder, sidecar.address)
    """

    def __init__(
        self,
        folder: Path,
        servers: str,
        group: str,
        flags: Sequence[str] = (f"--topics={TOPIC}",),
        *,
        name: str = "sidecar",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.group = group
        # A socket's path is short, and a test's folder is not.
        self._socket_folder = tempfile.TemporaryDirectory(prefix="rota-")
        self.address = f"unix:{self._socket_folder.name}/app.sock"
        self.drain_socket = Path(self._socket_folder.name) / "drain.sock"
        self.http = ""
        # Goes before the command.
        self.inside: Sequence[str] = ()
        self._logs = logs(folder)
        self._flags = [
            f"--bootstrap-servers={servers}",
            f"--group-id={group}",
            f"--listen-socket={self._socket_folder.name}/app.sock",
            "--listen=",
            "--http-listen=127.0.0.1:0",
            f"--drain-socket={self.drain_socket}",
            "--log-format=json",
            *QUICK,
            *flags,
        ]
        self._environment = environment or {}
        self._starts = 0
        self._process: Process | None = None
        self._owner = current_owner()

    def start(self, *more_flags: str) -> None:
        """Start it, and wait until its doors are open."""
        self.begin_start(*more_flags)
        self.process.wait_until(lambda: self.has_said("listening"), within_s=WITHIN_S)
        self.http = next(line["message"] for line in self.said if line["event"] == "http").split()[-1]

    def begin_start(self, *more_flags: str) -> None:
        """Start it; it ends with the thread that called this."""
        self._starts += 1
        log = self._logs / f"{self.name}-{self._starts}.log"
        command = [*self.inside, sys.executable, "-m", "rota_sidecar", *self._flags, *more_flags]
        self._process = Process.start(self.name, command, log=log, env=self._environment, owner=self._owner)

    @property
    def said(self) -> list[Event]:
        """The lines of its log."""
        lines = self.process.log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def has_said(self, event: str) -> bool:
        """Return True if the event is in its log."""
        return any(line["event"] == event for line in self.said)

    def wait_until(self, holds: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
        """Return as soon as that holds."""
        self.process.wait_until(holds, within_s=within_s)

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of a page of its HTTP server."""
        reply = web.get(self.http, path)
        return reply.status, reply.page.strip()

    def drain(self, query: str = "") -> tuple[int, str]:
        """Ask for a drain, as a pod's end does: the status, and the text."""
        reply = web.post_on_socket(self.drain_socket, f"/drain?{query}", {})
        return reply.status, reply.page.strip()

    @property
    def is_ready(self) -> bool:
        """Return True if its readiness page answers 200."""
        return self.ask("/readyz")[0] == HTTPStatus.OK

    @property
    def unready_because(self) -> str:
        """Why not; empty when it is."""
        status, text = self.ask("/readyz")
        return "" if status == HTTPStatus.OK else text

    def metrics(self) -> Mapping[str, float]:
        """Its series, each by its name and labels as they are written."""
        lines = self.ask("/metrics")[1].splitlines()
        series = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    def terminate(self, *, within_s: float = WITHIN_S) -> int:
        """SIGTERM, once; the exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(within_s=within_s)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP freezes it, SIGCONT wakes it."""
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """End it whatever it does, if it runs."""
        if self._process is not None and self._process.exit_code is None:
            self.signal(signal.SIGCONT)
            self._process.stop()

    def close(self) -> None:
        """Remove its state; it cannot be started again."""
        self.stop()
        self._socket_folder.cleanup()

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process


@contextmanager
def delivering(*sidecars: Deliverer) -> Iterator[None]:
    """Start them all; those that run are ended in the end."""
    try:
        for sidecar in sidecars:
            sidecar.start()
        yield
    finally:
        for sidecar in sidecars:
            sidecar.close()
