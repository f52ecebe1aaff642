"""The quickstart, as a new user types it: its files are saved, its commands run from top to bottom."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, named, save_files
from tests.support.processes import Process

PAGE = "quickstart.md"
WITHIN_S = 60
# In the order of the page.
STEPS = ("up", "work", "words", "look", "scale", "dry", "reset")
GREETINGS = {"hello ada", "hello grace", "hello annie"}


def test_every_command_of_the_page_is_a_step() -> None:
    commands = [block.info for block in blocks(PAGE) if block.language == "sh"]
    assert commands == [f"run={step}" for step in STEPS]


class Reader:
    """A reader who follows the page in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        self._env = {**kept, "PATH": path}
        self._running: list[Process] = []

    def types(self, step: str) -> str:
        """Run the commands of a step, which all have to go well; what they say."""
        done = subprocess.run(
            ["/bin/sh", "-ec", named(PAGE, step)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._env,
            timeout=WITHIN_S,
        )
        assert done.returncode == 0, (step, done.stdout, done.stderr)
        return done.stdout

    def starts(self, step: str, until: str) -> Process:
        """Start what has no end; returns when it has said this."""
        log = self.folder / f"{step}.log"
        command = ["/bin/sh", "-ec", f"exec {named(PAGE, step)}"]
        process = Process.start(step, command, log=log, cwd=self.folder, env=self._env)
        self._running.append(process)
        process.wait_until(lambda: until in log.read_text(), within_s=WITHIN_S)
        return process

    def greetings(self) -> list[str]:
        """Lines that the members printed, from every member's log."""
        logs = sorted((self.folder / ".rota/logs").glob("hello-*.app.log"))
        return [line.partition(" (")[0] for log in logs for line in log.read_text().splitlines()]

    def leaves(self) -> None:
        """End what still runs."""
        for process in self._running:
            process.stop()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    save_files(PAGE, tmp_path)
    reader = Reader(tmp_path)
    yield reader
    reader.leaves()


@pytest.mark.process
def test_the_page_can_be_followed(reader: Reader) -> None:
    up = reader.starts("up", "web page:")
    reader.types("work")
    up.wait_until(lambda: set(reader.greetings()) == GREETINGS, within_s=WITHIN_S)
    assert "hello ada (partition " in reader.types("words")
    assert "default.hello" in reader.types("look")
    reader.types("scale")
    third = reader.folder / ".rota/logs/hello-2.sidecar.log"
    # A reset needs all members, and refuses one that is still starting.
    up.wait_until(lambda: third.exists() and "joined generation" in third.read_text(), within_s=WITHIN_S)
    assert "greetings" in reader.types("dry")
    assert sorted(reader.greetings()) == sorted(GREETINGS)
    reader.types("reset")
    up.wait_until(lambda: len(reader.greetings()) == 2 * len(GREETINGS), within_s=WITHIN_S)
    assert set(reader.greetings()) == GREETINGS
    up.stop(within_s=WITHIN_S)
    assert up.exit_code == 0
