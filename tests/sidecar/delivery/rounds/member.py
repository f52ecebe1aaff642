"""One pod of the stories: a sidecar as a process, and its application as another one."""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from tests.sidecar.delivery.rounds.engine import Engine
from tests.support.app import App, Event
from tests.support.processes import steady_ms
from tests.support.sidecar import Deliverer

SESSION_MS = 2_500
# Of work for each record: whoever is hit has some in hand.
PAUSE_MS = 2
# What becomes of records with these values, wherever they are.
POISON = {"die": "die", "fail": "retry"}


@dataclass(frozen=True)
class Setting:
    """Setting of a story: backend, topic and group, and the flags of its members."""

    engine: Engine
    topic: str
    group: str
    # How long a partition that goes from one to another in good order may be with nobody.
    clean_ms: int
    flags: Sequence[str] = ()
    rules: Mapping[str, str] | None = None


class Member:
    """Not started yet; `name` is that of the pod, `seat` that of its place in the group."""

    def __init__(self, folder: Path, setting: Setting, seat: int, number: int = 1) -> None:
        self.seat = seat
        self.name = f"{setting.group}-{seat}.{number}"
        self.is_frozen = False
        # When its application had its partitions no more, for what was done to it.
        self.ended_ms: list[int] = []
        flags = [
            f"--topics={setting.topic}",
            f"--session-timeout-ms={SESSION_MS}",
            "--commit-interval-ms=200",
            f"--state-folder={folder / self.name}",
            *setting.flags,
        ]
        self.sidecar = Deliverer(folder, setting.engine.servers, setting.group, flags, name=self.name)
        own = {self.hangs: "hang", self.freezes: "freeze"}
        rules = {**(POISON if setting.rules is None else setting.rules), **own}
        app_flags = [f"--rules={json.dumps(rules)}", f"--pause-ms={PAUSE_MS}"]
        self.app = App(folder, self.sidecar.address, app_flags, name=f"{self.name}-app")
        self._handled = 0
        self._partitions: set[int] = set()

    @property
    def hangs(self) -> str:
        """The value of a record on which this one's application hangs, and no other's."""
        return f"hang {self.seat}"

    @property
    def freezes(self) -> str:
        """The value of a record in the middle of which this one's application stops itself, and no other's."""
        return f"freeze {self.seat}"

    def start(self) -> None:
        """Both, as a pod does: first the sidecar."""
        self.sidecar.start()
        self.app.start()

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions of the application, as far as it was notified."""
        events = self.app.events
        while self._handled < len(events):
            self._handle(events[self._handled])
            self._handled += 1
        return frozenset(self._partitions)

    def _handle(self, event: Event) -> None:
        numbers = {number for _, number in event.get("partitions", ())}
        if event["event"] == "assigned":
            self._partitions |= numbers
        elif event["event"] in ("revoked", "lost"):
            self._partitions -= numbers
        elif event["event"] == "attached":
            self._partitions.clear()

    def has_done_since(self, at_ms: int) -> bool:
        """Return True if its application has reported a completed record since then."""
        return any(
            event["event"] == "done" and event["monotonic_ms"] >= at_ms for event in self.app.events[-50:]
        )

    def check(self) -> None:
        """Raise when the sidecar has ended."""
        self.sidecar.process.check_running()

    # What is done to it

    def leave(self) -> None:
        """As Kubernetes ends a pod: it drains, then its application ends, then the sidecar."""
        status, said = self.sidecar.drain("for_ms=3600000")
        assert (status, said) == (HTTPStatus.OK, "drained")
        self._ended()
        assert self.app.terminate() == 0
        assert self.sidecar.terminate() == 0

    def kill_sidecar(self) -> None:
        """SIGKILL."""
        self.sidecar.kill()
        self._ended()

    def kill_app(self) -> None:
        """SIGKILL."""
        self.app.kill()
        self._ended()

    def note_death(self) -> None:
        """Its application has killed itself."""
        self._ended()

    def freeze_app(self) -> None:
        """SIGSTOP."""
        freeze(self.app.process.pid)
        self._ended()

    def has_frozen_itself(self) -> bool:
        """Return True once its application has reached the record at which it stops itself."""
        if os.waitid(os.P_PID, self.app.process.pid, os.WSTOPPED | os.WNOHANG) is None:
            return False
        self._ended()
        return True

    def freeze_sidecar(self) -> None:
        """SIGSTOP."""
        self.is_frozen = True
        freeze(self.sidecar.process.pid)

    def wake_app(self) -> None:
        """SIGCONT."""
        self.app.signal(signal.SIGCONT)

    def wake_sidecar(self) -> None:
        """SIGCONT."""
        self.sidecar.signal(signal.SIGCONT)
        self.is_frozen = False

    def _ended(self) -> None:
        self.ended_ms.append(steady_ms())
        # It has nothing before it is told so anew.
        self._handled = len(self.app.events)
        self._partitions.clear()

    def close(self) -> None:
        """End both, whatever they do."""
        if self.app.is_running:
            self.app.kill()
        self.sidecar.close()


def freeze(pid: int) -> None:
    """SIGSTOP; returns when it stands still."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)
