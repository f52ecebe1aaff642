"""Rota's own coordinator as a process, for tests: started, killed, started again on the same file."""

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from rota_proto.coordinator.v1.admin_pb2 import DescribedGroup, DescribeGroupsRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2 import NONE
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.support.network import HERE, LOOPBACK, Network, NetworkNamespace
from tests.support.processes import Process, current_owner
from tests.support.workdir import logs

START_S = 20
# Options of a channel that shares no connection with the other channels of its process to the same address: neither the
# server's limits for it, nor its wait after a failure, when a coordinator is started at the port of one that was killed.
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
READY = re.compile(r"listening on ([^\s\"]+)")
HTTP = re.compile(r"http on ([^\s\"]+)")
# What makes a coordinator answer as fast as the cases expect, and as the reference broker is set up.
QUICK = (
    "--group-min-session-timeout-ms=500",
    "--group-initial-rebalance-delay-ms=0",
    "--rebalance-coalesce-ms=0",
)


class Coordinator:
    """One coordinator and its store; `start` again after `kill` is the same one after a crash."""

    def __init__(
        self,
        folder: Path,
        flags: Sequence[str] = QUICK,
        *,
        store: str = "",
        name: str = "coordinator",
        program: str = "rota_coordinator",
        namespace: NetworkNamespace = HERE,
    ) -> None:
        self.name = name
        self.file = folder / "coordinator.db"
        # For clients on this machine; in another namespace set by who forwards it.
        self.address = ""
        # For clients in its network namespace.
        self.address_inside = ""
        self._store = store or f"sqlite:{self.file}"
        self.http = ""
        self._logs = logs(folder)
        self._flags = flags
        self._program = program
        self._namespace = namespace
        self._starts = 0
        self._process: Process | None = None
        self._owner = current_owner()

    def start(self, *more_flags: str) -> None:
        """Start it, and wait until it serves."""
        self.begin_start(*more_flags)
        self.end_start()

    def begin_start(self, *more_flags: str) -> None:
        """Start it; it ends with the thread that called this."""
        self._starts += 1
        log = self._logs / f"{self.name}-{self._starts}.log"
        command = [
            *self._namespace.enter,
            sys.executable,
            "-m",
            self._program,
            f"--listen={self._namespace.address}:0",
            "--http-listen=127.0.0.1:0",
            *self._flags,
            *more_flags,
        ]
        # By a variable: a password has no place in a command line.
        self._process = Process.start(
            self.name, command, log=log, env={"ROTA_STORE": self._store}, owner=self._owner
        )

    def end_start(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        log = self._process.log
        self._process.wait_until(lambda: READY.search(log.read_text()) is not None, within_s=START_S)
        found = READY.search(log.read_text())
        assert found is not None
        self.address = self.address_inside = found.group(1)
        found = HTTP.search(log.read_text())
        assert found is not None
        self.http = found.group(1)

    def make_topic(self, name: str, partitions: int = 6) -> None:
        """Make a topic in its log, which stays from start to start."""
        topic = log_pb2.CreateTopicsRequest.Topic(
            name=name, partitions=partitions, retention_ms=-1, retention_bytes=-1
        )
        with grpc.insecure_channel(self.address, OWN_CONNECTION) as channel:
            request = log_pb2.CreateTopicsRequest(topics=[topic])
            made = LogStub(channel).CreateTopics(request, timeout=START_S)
        assert [each.error_code for each in made.topics] == [NONE]

    def grow_topic(self, name: str, partitions: int) -> None:
        """Add partitions to a topic of its log, up to this number."""
        topic = log_pb2.CreatePartitionsRequest.Topic(name=name, partitions=partitions)
        with grpc.insecure_channel(self.address, OWN_CONNECTION) as channel:
            request = log_pb2.CreatePartitionsRequest(topics=[topic])
            grown = LogStub(channel).CreatePartitions(request, timeout=START_S)
        assert [each.error_code for each in grown.topics] == [NONE]

    def members_of(self, group: str) -> int:
        """Number of members of the group."""
        return len(self._describe(group).members)

    def strategy_of(self, group: str) -> str:
        """Assignment strategy that the group has chosen; empty while it rebalances."""
        return self._describe(group).protocol_name

    def _describe(self, group: str) -> DescribedGroup:
        with grpc.insecure_channel(self.address, OWN_CONNECTION) as channel:
            request = DescribeGroupsRequest(group_ids=[group])
            return AdminStub(channel).DescribeGroups(request, timeout=START_S).groups[0]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self._process is not None
        self._process.kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP freezes it, SIGCONT wakes it, SIGUSR1 arms its failpoints."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def has_said(self, text: str) -> bool:
        """Return True if the text is in the log of the running process."""
        assert self._process is not None
        self._process.check_running()
        return text in self._process.log.read_text()

    def stop(self) -> int | None:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.stop()
        return self._process.exit_code

    def ends(self) -> int:
        """The exit code, once it ended by itself."""
        assert self._process is not None
        return self._process.wait(within_s=START_S)

    @property
    def log(self) -> Path:
        """Log of the running process."""
        assert self._process is not None
        return self._process.log


@contextmanager
def serving(
    folder: Path,
    flags: Sequence[str] = QUICK,
    *,
    program: str = "rota_coordinator",
    network: Network = LOOPBACK,
) -> Iterator[Coordinator]:
    """A coordinator that serves, and stops in the end; in the network of a test cluster it serves pods too."""
    coordinator = Coordinator(folder, flags, program=program, namespace=network.namespace())
    coordinator.start()
    try:
        with ExitStack() as forwarded:
            if network is not LOOPBACK:
                host, _, port = coordinator.address_inside.rpartition(":")
                outside = forwarded.enter_context(network.forward(host, int(port)))
                coordinator.address = f"127.0.0.1:{outside}"
            yield coordinator
    finally:
        coordinator.stop()


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """The metadata that shows a token; none for no token."""
    return (("authorization", f"Bearer {token}"),) if token else ()
