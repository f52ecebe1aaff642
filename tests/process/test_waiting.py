"""The harness waits for servers: an exit is reported at once, with the log of the process that exited."""

import multiprocessing
import socket
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from tests.support.ports import COUNTER, OUTGOING_PORTS, free_port
from tests.support.processes import Process, ProcessFailed

pytestmark = pytest.mark.process

LONG_S = 60
PROCESSES = 4


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = Process.start("sleeper", ["sleep", "600"], log=tmp_path / "sleeper.log")
    yield process
    process.kill()


def test_ended_process_is_reported_with_its_log(tmp_path: Path) -> None:
    process = Process.start("failing", ["sh", "-c", "echo no disk; exit 3"], log=tmp_path / "log")

    with pytest.raises(ProcessFailed, match=r"(?s)failing ended with code 3.*no disk"):
        process.wait_until(lambda: False, within_s=LONG_S)


def test_nobody_waits_on_when_a_process_beside_ended(sleeper: Process, tmp_path: Path) -> None:
    other = Process.start("other", ["sh", "-c", "echo no disk; exit 3"], log=tmp_path / "log")

    with pytest.raises(ProcessFailed, match=r"(?s)other ended with code 3.*no disk"):
        sleeper.wait_until(lambda: False, within_s=LONG_S, beside=[sleeper, other])


def test_process_that_does_not_become_ready_is_reported(sleeper: Process) -> None:
    with pytest.raises(ProcessFailed, match="sleeper was not ready after 0 s"):
        sleeper.wait_until(lambda: False, within_s=0.1)


def test_no_two_processes_get_the_same_port_and_none_can_be_taken_by_a_client() -> None:
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as processes:
        ports = list(chain.from_iterable(processes.map(free_ports, [200] * PROCESSES)))

    assert len(set(ports)) == len(ports) == 200 * PROCESSES
    assert max(ports) < int(OUTGOING_PORTS.read_text().split()[0])


def test_a_port_in_use_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port()
    monkeypatch.setenv("ROTA_TEST_CACHE", str(tmp_path))
    (tmp_path / COUNTER).write_text(str(taken - 1))

    with socket.socket() as server:
        server.bind(("127.0.0.1", taken))

        assert free_port() != taken


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]
