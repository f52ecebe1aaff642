"""The harness waits for servers: an exit is reported at once, with the log of the process that exited."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import OUTGOING_PORTS, Process, ProcessFailed, free_port

pytestmark = pytest.mark.process

LONG_S = 60


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


def test_ports_differ_and_none_can_be_taken_by_a_client() -> None:
    ports = [free_port() for _ in range(200)]

    assert len(set(ports)) == len(ports)
    assert max(ports) < int(OUTGOING_PORTS.read_text().split()[0])
