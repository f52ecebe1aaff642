"""The reference says what the commands say, and each command in it runs as it stands there."""

import io
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rota_cli.__main__ import run
from scripts.generate_cli_reference import FILE, every, written
from tests.cli.command import Rota
from tests.support.coordinator import Coordinator
from tests.support.processes import Process
from tests.support.tree import REPO

WITHIN_S = 60
TEXT = FILE.read_text()
EXAMPLES = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
ENDLESS = re.findall(r"^\$ (rota .*)$", TEXT, re.MULTILINE)
# They become other programs, whose own guides have examples.
PARTS = {"coordinator", "operator", "sidecar", "up"}


def test_tables_are_what_the_commands_say() -> None:
    assert written(TEXT) == TEXT, "run scripts/generate_cli_reference.py"


def test_every_command_has_an_example() -> None:
    shown = "\n".join([*EXAMPLES, *ENDLESS])
    without = [name for name in every() if name not in PARTS and f"rota {name}" not in shown]
    assert without == []


@pytest.mark.process
def test_every_example_runs(
    coordinator: Coordinator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # In this process: to start Python for each would take longer than all of them.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_BOOTSTRAP_SERVERS", f"rota://{coordinator.address}")
    for example in EXAMPLES:
        before, _, command = example.rpartition("rota ")
        given = subprocess.check_output(["/bin/sh", "-ec", before.rstrip("| ")]) if before else b""
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        monkeypatch.setattr("sys.argv", ["rota", *shlex.split(command)])
        code = run()
        said = capsys.readouterr()
        assert (code, "rota: " in said.err) == (0, False), (example, said)
        assert said.out or said.err, example


@pytest.mark.process
@pytest.mark.parametrize("example", ENDLESS)
def test_every_example_without_an_end_runs_until_ctrl_c(rota: Rota, example: str, tmp_path: Path) -> None:
    rota("topics", "create", "orders", "--if-not-exists")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "rota_cli", *shlex.split(example)[1:]]
    running = Process.start(example, command, log=log, env=rota.environment())
    try:
        running.wait_until(lambda: log.read_text() != "", within_s=WITHIN_S)
    finally:
        running.stop(first=signal.SIGINT)
    assert (running.exit_code, "Traceback" in log.read_text()) == (0, False)


def test_the_reference_is_linked_from_the_guides_it_names() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (REPO / "docs/reference" / link).exists(), link
