"""A process is waited for, and ended, only if it is the one that was meant."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.process_identity import Identity, StillThere


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_it_survives_being_written_down(child: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    Identity.of(child.pid).write(tmp_path / "identity")
    assert Identity.read(tmp_path / "identity").alive()


def test_a_later_process_with_the_same_id_is_not_touched(child: "subprocess.Popen[bytes]") -> None:
    earlier = Identity(child.pid, started="1")
    earlier.end(signal.SIGKILL)
    assert child.poll() is None


def test_a_dead_process_is_gone_even_before_its_parent_asked(child: "subprocess.Popen[bytes]") -> None:
    identity = Identity.of(child.pid)
    identity.end(signal.SIGKILL)
    assert not identity.alive()
    assert Path(f"/proc/{child.pid}").exists()


def test_a_process_that_stays_is_named() -> None:
    with pytest.raises(StillThere, match=str(os.getpid())):
        Identity.of(os.getpid()).wait_until_gone(within_s=0)
