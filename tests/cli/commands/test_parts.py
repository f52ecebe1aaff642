"""`rota coordinator` and its like become the part's own program."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.support.processes import Process

pytestmark = pytest.mark.process

WITHIN_S = 60


@pytest.fixture
def alone(tmp_path: Path) -> Rota:
    return Rota("", tmp_path)


@pytest.mark.parametrize("part", ["coordinator", "sidecar", "operator"])
def test_flags_are_the_parts_own(alone: Rota, part: str) -> None:
    assert alone(part, "--version").lines == [f"rota-{part} {version(f'rota-{part}')}"]


def test_help_is_the_parts_own(alone: Rota) -> None:
    assert "usage: rota-operator local" in alone("up", "--help").stdout
    assert "--initial-offset" in alone("sidecar", "-h").stdout


def test_the_exit_code_is_the_parts_own(alone: Rota) -> None:
    done = alone("coordinator", "--listen", "nowhere")
    assert done.code == 1
    assert done.stderr.startswith("rota-coordinator: ")
    assert alone("operator", "--no-such-flag").code == 2


def test_signals_reach_the_part_itself(alone: Rota, tmp_path: Path) -> None:
    log = tmp_path / "log"
    flags = ["--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", f"--store=sqlite:{tmp_path / 'db'}"]
    running = Process.start(
        "rota coordinator",
        [sys.executable, "-m", "rota_cli", "coordinator", *flags],
        log=log,
        env=alone.environment(),
    )
    try:
        running.wait_until(lambda: "listening" in log.read_text(), within_s=WITHIN_S)
        assert b"rota_coordinator" in Path(f"/proc/{running.pid}/cmdline").read_bytes()
    finally:
        running.stop()
    assert running.exit_code == 0
