"""The command for people: it starts a cluster quickly, and nothing of one stays, however it ends."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cluster import traces
from tests.support.cluster import prepare
from tests.support.cluster.detached import Detached
from tests.support.cluster.machinery import Machinery
from tests.support.cluster.process_identity import Identity
from tests.support.processes import Process

CHECKOUT = Path(__file__).parents[2]
MACHINES = 3


@dataclass(frozen=True, slots=True)
class Commands:
    """The command line, for one cluster of its own; everything it starts can be found by a mark."""

    temporary: Path
    name: str = field(default_factory=lambda: f"test-{uuid.uuid4().hex[:8]}")

    def line(self, command: str, *arguments: str) -> list[str]:
        rest = ["--", *arguments] if arguments else []
        return [sys.executable, "-m", "tests.support.cluster", command, "--name", self.name, *rest]

    def environment(self) -> dict[str, str]:
        return {traces.MARK: self.name, "TMPDIR": str(self.temporary)}

    def run(self, command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, **self.environment()}
        line = self.line(command, *arguments)
        return subprocess.run(line, cwd=CHECKOUT, env=environment, capture_output=True, text=True)

    def succeed(self, command: str, *arguments: str) -> str:
        done = self.run(command, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def machinery() -> Machinery:
    return prepare().machinery


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """Whatever a failed test leaves running is taken down."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    commands = Commands(temporary)
    yield commands
    if Detached(commands.name).folder.exists():
        commands.succeed("down")


@pytest.mark.cluster
@pytest.mark.soak("cluster")
# It starts two clusters: begun before what takes a few seconds.
@pytest.mark.timeout(720)
def test_a_cluster_goes_without_a_trace_also_when_its_keeper_was_killed(
    commands: Commands, machinery: Machinery, tmp_path: Path
) -> None:
    before = traces.traces(commands.name, machinery)

    commands.succeed("up")
    kubeconfig = commands.succeed("kubeconfig").splitlines()[-1]
    ready = "custom-columns=:.status.conditions[?(@.type=='Ready')].status"
    nodes = subprocess.run(
        [machinery.kube, "kubectl", "get", "nodes", "--no-headers", f"--output={ready}"],
        env={**os.environ, "KUBECONFIG": kubeconfig, "KUBECACHEDIR": str(tmp_path / "kubectl")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert nodes.stdout.split() == ["True", "True"]
    assert commands.succeed("kubectl", "get", "nodes", f"--output={ready}").split() == ["True", "True"]
    commands.succeed("up")  # again: it is up already, which is what was wanted

    running = processes(commands)
    kill_keeper(running)
    refused = commands.run("kubeconfig")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"no cluster '{commands.name}' is running" in refused.stderr
    # Files and control groups are left to the next start.
    assert traces.traces(commands.name, machinery) - before != set()
    commands.succeed("up")
    running = processes(commands)
    commands.succeed("down")
    assert [line for process, line in running.items() if process.alive()] == []
    assert_nothing_stays(before, commands, machinery)


@pytest.mark.cluster
@pytest.mark.soak("cluster")
def test_nothing_stays_of_a_start_that_was_killed(
    commands: Commands, machinery: Machinery, tmp_path: Path
) -> None:
    before = traces.traces(commands.name, machinery)
    up, running = begin(commands, tmp_path)
    kill(up.pid, running)
    assert up.wait(within_s=1) == -signal.SIGKILL
    assert "nodes Ready" not in up.log.read_text()
    assert traces.traces(commands.name, machinery) - before != set()

    commands.succeed("down")
    assert_nothing_stays(before, commands, machinery)


@pytest.mark.cluster
@pytest.mark.soak("cluster")
def test_a_start_whose_keeper_was_killed_fails_and_cleans_up(
    commands: Commands, machinery: Machinery, tmp_path: Path
) -> None:
    before = traces.traces(commands.name, machinery)
    up, running = begin(commands, tmp_path)
    kill_keeper(running)
    assert up.wait(within_s=60) == 1
    assert_nothing_stays(before, commands, machinery)


def begin(commands: Commands, folder: Path) -> tuple[Process, dict[Identity, str]]:
    """Start a cluster until its machines run; return the command, and all processes."""
    up = Process.start(
        "up", commands.line("up"), log=folder / "log", cwd=CHECKOUT, env=commands.environment()
    )
    up.wait_until(lambda: "machines of the nodes started" in up.log.read_text(), within_s=60)
    return up, processes(commands)


def processes(commands: Commands) -> dict[Identity, str]:
    """Of the running cluster, on all of its machines."""
    found = traces.processes(commands.name)
    assert len([name for name in traces.namespaces(found) if name.startswith("net:")]) == MACHINES
    return found


def kill(pid: int, everything: dict[Identity, str]) -> None:
    """As the kernel does when memory is short; returns when all that hangs on the process is gone."""
    os.kill(pid, signal.SIGKILL)
    for process in everything:
        process.wait_until_gone()


def kill_keeper(running: dict[Identity, str]) -> None:
    """Kill the process that keeps the cluster."""
    [keeper] = [each for each, line in running.items() if "cluster.keeper" in line]
    kill(keeper.pid, running)


def assert_nothing_stays(before: set[str], commands: Commands, machinery: Machinery) -> None:
    assert traces.processes(commands.name) == {}
    assert traces.traces(commands.name, machinery) - before == set()
    assert list(commands.temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("down", []), ("kubeconfig", []), ("kubectl", ["get", "nodes"]), ("status", [])],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_a_cluster_a_command_says_so(command: str, arguments: list[str], tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    done = commands.run(command, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    [message] = done.stderr.splitlines()
    assert f"no cluster '{commands.name}' is running" in message
