"""
Holds one process, and lets it outlive nobody: `python -m rota_operator.local.leash GRACE_S PID_FILE COMMAND …`.

The runner starts each process of a replica on one of these. It ends what it holds when it is asked to (SIGTERM), and when
its standard input ends, which the kernel sees to when the runner is killed. Whatever the process has started itself is ended
with it. Its exit code is the process's own, or 128 and the signal, as a shell says it. The process's id is in a file as long as
it runs, for people.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

# What a shell says of a command that it does not find, or may not run.
NOT_FOUND, NOT_ALLOWED = 127, 126
# PR_SET_PDEATHSIG.
PARENT_DEATH_SIGNAL = 1


class Leash:
    """One process, and all that it starts."""

    def __init__(self, command: Sequence[str], grace_s: float, pid_file: Path) -> None:
        self._command = command
        self._pid_file = pid_file
        self._grace_s = grace_s
        self._child: subprocess.Popen[bytes] | None = None
        # Said before there was anybody to hear it.
        self._said: list[signal.Signals] = []

    def hold(self) -> int:
        """To its end; the exit code."""
        signal.signal(signal.SIGTERM, lambda *_: self._tell(signal.SIGTERM))
        # How the runner says that time is up: SIGKILL would end the leash, and not what is on it.
        signal.signal(signal.SIGQUIT, lambda *_: self._tell(signal.SIGKILL))
        # From a terminal it goes to everybody; the runner decides who ends when.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            # A session of its own: signals go to all that it starts.
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509  there is no thread yet
            )
        except OSError as error:
            said = f"{self._command[0]} cannot be run ({error.strerror}): correct the container's command"
            sys.stderr.write(f"{said}\n")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
        self._child = child
        self._pid_file.write_text(f"{child.pid}\n")
        for number in self._said:
            self._tell(number)
        threading.Thread(target=self._end_with_input, args=(child,), daemon=True).start()
        code = child.wait()
        # It may be another one's soon.
        self._pid_file.unlink(missing_ok=True)
        # Of what it has started nothing stays.
        self._tell(signal.SIGKILL)
        return code if code >= 0 else 128 - code

    def _end_with_input(self, child: "subprocess.Popen[bytes]") -> None:
        """Whoever wanted it is gone."""
        while os.read(sys.stdin.fileno(), 1024):
            pass
        self._tell(signal.SIGTERM)
        try:
            child.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        if self._child is None:
            self._said.append(number)
            return
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            # There is nobody any more.
            return


def end_with_parent() -> None:
    """Called in the child: it is killed when its leash is, where the kernel knows how."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main() -> None:
    """Hold what the command line says."""
    grace_s, pid_file, *command = sys.argv[1:]
    sys.exit(Leash(command, float(grace_s), Path(pid_file)).hold())


if __name__ == "__main__":
    main()
