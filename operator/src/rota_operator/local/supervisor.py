"""
Runs one process and never lets it outlive the runner: `python -m rota_operator.local.supervisor GRACE_S PID_FILE UMASK
COMMAND …`.

The runner starts each process of a replica under its own supervisor. SIGTERM ends the process, with all that it has started;
so does the end of standard input, which the kernel causes when the runner is killed. The exit code is that of the process, or
128 plus the signal, as in a shell. PID_FILE holds the process id while the process runs. The process gets the given octal
UMASK; the supervisor keeps its own.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

# Exit codes of a shell for a command that it cannot find, or may not execute.
NOT_FOUND, NOT_ALLOWED = 127, 126
# PR_SET_PDEATHSIG.
PARENT_DEATH_SIGNAL = 1
HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD)


class Supervisor:
    """One process in a session of its own. Invariant: when `run` returns, no process of that session is left."""

    def __init__(self, command: Sequence[str], grace_s: float, pid_file: Path, umask: int) -> None:
        self._command = command
        self._umask = umask
        self._pid_file = pid_file
        self._grace_s = grace_s
        self._ended = threading.Event()

    def run(self) -> int:
        """Run the process to its end and return its exit code."""
        # Signals of the terminal go to all processes of its group; the runner decides which process ends
        # when.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # An ignored SIGCHLD could not be waited for.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Blocked and waited for instead of handled: a signal that arrives right before a blocking call would
        # not end that call.
        original_mask = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        try:
            # A session of its own: signals reach all processes that it starts.
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                umask=self._umask,
                preexec_fn=lambda: prepare_child(original_mask),  # noqa: PLW1509  there is no thread yet
            )
        except OSError as error:
            said = f"cannot execute {self._command[0]} ({error.strerror}); check the container's command"
            sys.stderr.write(f"{said}\n")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
        self._pid_file.write_text(f"{child.pid}\n")
        threading.Thread(target=self._end_on_eof, args=(child.pid,), daemon=True).start()
        code = forward_signals(child)
        self._ended.set()
        # The kernel may reuse the id soon.
        self._pid_file.unlink(missing_ok=True)
        # Kill the remaining processes of the session.
        signal_group(child.pid, signal.SIGKILL)
        return code if code >= 0 else 128 - code

    def _end_on_eof(self, group: int) -> None:
        """Terminate the process group once standard input ends: the runner is gone."""
        while os.read(sys.stdin.fileno(), 1024):
            pass
        signal_group(group, signal.SIGTERM)
        if not self._ended.wait(self._grace_s):
            signal_group(group, signal.SIGKILL)


def forward_signals(child: "subprocess.Popen[bytes]") -> int:
    """Forward SIGTERM and SIGQUIT (as SIGKILL) until the child exits; return its exit code."""
    while (code := child.poll()) is None:
        match signal.sigwait(HANDLED_SIGNALS):
            case signal.SIGTERM:
                signal_group(child.pid, signal.SIGTERM)
            case signal.SIGQUIT:
                # SIGQUIT is the runner's request to kill: SIGKILL would end the supervisor, not the process.
                signal_group(child.pid, signal.SIGKILL)
            case _:
                # The process may have ended.
                continue
    return code


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a process group, if it still exists."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def prepare_child(mask: Iterable[int]) -> None:
    """Called in the child before exec: restore the signal mask, and die with the supervisor."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    kill_with_parent()


def kill_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main() -> None:
    """Run the command given as arguments; exit with its exit code."""
    grace_s, pid_file, umask, *command = sys.argv[1:]
    sys.exit(Supervisor(command, float(grace_s), Path(pid_file), int(umask, 8)).run())


if __name__ == "__main__":
    main()
