"""
Child processes of the tests: each with a log, awaited by what it does, ended by its id.

Each has an `Owner`, which ends it in the end: the test or the fixture that runs when it is started, as
`tests.support.ownership` tells pytest. So a test that fails half-way leaves no process behind, and no Popen is collected
while its child runs. A system that outlives a test and starts its processes anew within it keeps the owner of its first start.

A child asks the kernel to be killed when its parent ends (`setpriv --pdeathsig`), so that a test run that
is killed with SIGKILL leaves no server behind. The kernel ties that to the *thread* that started the child:
start children from the main thread, or from one that outlives them.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tests.support.unavailable import Unavailable

POLL_S = 0.02
TAIL_LINES = 30
# Of each process of a test that failed.
LAST_LINES = 6
# A look that takes longer counts as this long: a machine may stand still for a minute, and what is awaited did so too.
LOOK_S_MAX = 5.0
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})

System = TypeVar("System")


class ProcessFailed(Exception):
    """A child ended, or did not become ready in time; the message holds the end of its log."""


class Patience:
    """The time that a wait may take. Invariant: from one look to the next at most `LOOK_S_MAX` are taken from it."""

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._left_s = within_s
        self._clock = clock
        self._looked_s = clock()

    def is_over(self) -> bool:
        """Return True once the time is up; call it after each look."""
        before_s, self._looked_s = self._looked_s, self._clock()
        self._left_s -= min(self._looked_s - before_s, LOOK_S_MAX)
        return self._left_s < 0


class Owner:
    """Processes that end together. Invariant: a child that may still run has an owner, which refers to it."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def take(self, process: "Process") -> None:
        """Own it from now on."""
        self._processes.append(process)

    def last_lines(self) -> list[str]:
        """Return the state of each process, the youngest first, and the end of its log, a line each."""
        return [
            f"{process.name}: {line}"
            for process in reversed(self._processes)
            for line in (process.state, *process.tail().splitlines()[-LAST_LINES:])
        ]

    def end(self) -> None:
        """Kill and reap those that still run, the youngest first."""
        while self._processes:
            self._processes.pop().end()


# The innermost is the last; the first is the program itself, whose children end with it.
_owners = [Owner()]


def current_owner() -> Owner:
    """The owner of what is started now."""
    return _owners[-1]


@contextmanager
def owned_by(owner: Owner) -> Iterator[None]:
    """Give processes that are started within the block to `owner`."""
    _owners.append(owner)
    try:
        yield
    finally:
        _owners.pop()


class Process:
    """One running child process."""

    def __init__(
        self, name: str, child: "subprocess.Popen[bytes]", log: Path, owner: Owner | None = None
    ) -> None:
        """Without an `owner` it belongs to the current one."""
        self.name = name
        self.log = log
        self._child = child
        (owner or current_owner()).take(self)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        owner: Owner | None = None,
    ) -> "Process":
        """Start `command` in a session of its own; `env` is added to ours, output goes to the end of `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                # Whoever runs the tests in the background ignores SIGINT, and what is started would do so too.
                ["env", "--default-signal=INT", "setpriv", "--pdeathsig", "KILL", "--", *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        return cls(name, child, log, owner)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    @property
    def state(self) -> str:
        """Says that it runs, or with which code it ended."""
        return "it runs" if self.exit_code is None else f"it ended with code {self.exit_code}"

    def wait_until(
        self, ready: Callable[[], bool], *, within_s: float, beside: Sequence["Process"] = ()
    ) -> None:
        """
        Return as soon as `ready()`; raise with the end of the log when the process ends or time is up.

        `beside` are those without which it cannot become ready: it is no use to wait when one of them ended.
        """
        patience = Patience(within_s)
        while not ready():
            for process in (self, *beside):
                process.check_running()
            if patience.is_over():
                raise ProcessFailed(
                    f"{self.name} was not ready after {within_s:.0f} s; its log ends:\n{self.tail()}"
                )
            time.sleep(POLL_S)

    def check_running(self) -> None:
        """Raise with the end of the log when the process has ended."""
        if self.exit_code is not None:
            raise ProcessFailed(f"{self.name} ended with code {self.exit_code}; its log ends:\n{self.tail()}")

    def wait(self, *, within_s: float) -> int:
        """The exit code, once it ended by itself."""
        return self._child.wait(within_s)

    def stop(self, *, within_s: float = 15, first: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, insist after `within_s`; returns when it is gone."""
        self._signal(first)
        try:
            self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it and what it started in its session, at once; returns when it is gone."""
        self._signal(signal.SIGKILL)
        self._child.wait()

    def signal_with_children(self, which: signal.Signals) -> None:
        """
        Send a signal to it and then to each of its children, which may have sessions of their own.

        A consumer's own sidecar has one. The process comes first: it would notice that its sidecar is gone.
        A child may end by itself when its parent is killed.
        """
        children = children_of(self._child.pid)
        os.kill(self._child.pid, which)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, which)

    def end(self) -> None:
        """Kill it, if it still runs, and close what it was written to."""
        self.kill()
        if self._child.stdin is not None:
            # What it has not read is lost with it.
            with suppress(BrokenPipeError):
                self._child.stdin.close()

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def _signal(self, which: signal.Signals) -> None:
        # Until it is reaped the id is ours, so this cannot hit a stranger.
        if self._child.poll() is None:
            os.killpg(self._child.pid, which)


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process, whichever of its threads started them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            _, _, fields = file.read_text().rpartition(")")
            if int(fields.split()[1]) == pid:
                found.append(int(file.parent.name))
    return found


def steady_ms() -> int:
    """The machine's steady clock, which all its processes share."""
    return int(time.monotonic() * 1000)


def wait_for(what: str, holds: Callable[[], bool], *, within_s: float, poll_s: float = POLL_S) -> None:
    """Return as soon as it holds, for what several processes do together; raise when time is up."""
    patience = Patience(within_s)
    while not holds():
        if patience.is_over():
            raise ProcessFailed(f"{what}: not after {within_s:.0f} s")
        time.sleep(poll_s)


def run_in_foreground(system: AbstractContextManager[System], describe: Callable[[System], str]) -> None:
    """
    Keep a system up for a person, and print in a line how to connect, until Ctrl-C or SIGTERM.

    A signal that comes while it still starts ends it as cleanly as one that comes later.
    """

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for ending in ENDING:
        signal.signal(ending, leave)
    try:
        with system as running:
            print(describe(running), flush=True)
            # From here on a signal is an answer to this wait; a second one does not disturb the cleaning up.
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            signal.sigwait(ENDING)
    except (Unavailable, ProcessFailed) as failed:
        raise SystemExit(str(failed)) from None


def processor_s(pid: int) -> float:
    """CPU time of a process in seconds, over all its threads: other load on the machine hardly changes it."""
    # Behind the name, which is in parentheses and may hold anything, the 12th and 13th field are user and system time.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """Return the largest resident memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def accepts_connections(host: str, port: int) -> bool:
    """Return True if a server accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
