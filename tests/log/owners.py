"""Processes that own partitions, as the tests of the copy job and the store job see them: by what they say."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import grpc

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.support.processes import Process

WITHIN_S = 120


class Owner:
    """One of them, over all its lives."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._command = command
        self._log = log
        self._env = env
        self.process = self._start()

    def _start(self) -> Process:
        return Process.start(self._name, self._command, log=self._log, env=self._env)

    def events(self, kind: str) -> list[str]:
        """Return the events of one kind."""
        lines = self._log.read_text().splitlines()
        return [line.removeprefix(kind).strip() for line in lines if line.startswith(kind)]

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait for what needs this one to run."""
        self.process.wait_until(ready, within_s=WITHIN_S)

    def wait_for(self, kind: str, count: int = 1) -> str:
        """The event of this kind that comes so late."""
        self.wait_until(lambda: len(self.events(kind)) >= count)
        return self.events(kind)[count - 1]

    def wait_until_stopped(self) -> None:
        """By itself, in mid-transaction."""
        self.wait_for("stopping")
        self.wait_until(self._is_stopped)

    def _is_stopped(self) -> bool:
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def freeze(self) -> None:
        """Its sidecar too, as a machine that is too slow would."""
        self.process.signal_with_children(signal.SIGSTOP)

    def go_on(self) -> None:
        """If it has stopped."""
        if self.process.exit_code is None:
            self.process.signal_with_children(signal.SIGCONT)

    def kill(self) -> None:
        """With its sidecar, in the midst of its work; another one begins where it was."""
        self.process.check_running()
        self.process.signal_with_children(signal.SIGKILL)
        self.process.wait(within_s=WITHIN_S)
        self.process = self._start()

    def kill_alone(self) -> None:
        """Its sidecar sees the end of it, and ends by itself."""
        self.process.check_running()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(within_s=WITHIN_S)
        self.process = self._start()

    def finish(self) -> None:
        """End it in good order, if it does not end by itself."""
        # One that was just started would be killed by the signal, as long as it does not listen to it.
        self.wait_until(lambda: str(self.process.pid) in self.events("started"))
        if self.process.exit_code is None:
            os.kill(self.process.pid, signal.SIGTERM)
        code = self.process.wait(within_s=WITHIN_S)
        assert code == 0, f"{self._name} ended with code {code}: {self.process.tail()}"


def group_offsets(channel: grpc.Channel, group_id: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the committed offsets of a group on Rota's log, by partition."""
    request = pb.FetchOffsetsRequest(group_id=group_id)
    request.topics.add(name=topic, partitions=range(partitions))
    reply = CoordinatorStub(channel).FetchOffsets(request, wait_for_ready=True, timeout=WITHIN_S)
    return {each.index: each.offset for topic in reply.topics for each in topic.partitions}
