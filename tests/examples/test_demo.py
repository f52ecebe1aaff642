"""The demo plays by itself and counts; it is the example that stands in the checkout, wherever it was installed from."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rota_operator.local import demo
from rota_operator.local.paths import CannotStart
from tests.support.processes import Process
from tests.support.tree import REPO
from tests.support.web import get

pytestmark = [pytest.mark.process, pytest.mark.paired]

ORDERS = REPO / "examples" / "orders"
WITHIN_S = 150
# For each thing that is tried.
STEP_S = 45
SUMMARY = re.compile(
    r"demo: produced (\d+), processed (\d+), unprocessed 0, repeated \d+; first after [\d.]+ s; "
    r"killed member recovered after [\d.]+ s; scaled 3 → 5 → 2"
)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "rota_operator", "local", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)


def test_by_itself_it_kills_scales_and_counts(tmp_path: Path, report: list[str]) -> None:
    home = tmp_path / ".rota"
    done = run("--demo-seconds=1", f"--home={home}", "--listen=127.0.0.1:0", "--page=127.0.0.1:0")
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = (line for line in done.stdout.splitlines() if line.startswith("demo: "))
    found = SUMMARY.fullmatch(summary)
    assert found is not None, summary
    assert found[1] == found[2] != "0"
    report.append(summary)


def hints_in(log: Path) -> dict[str, str]:
    """Commands that the demo suggests, by their effect."""
    found = re.findall(r"^  (\w[\w ]*\w)  +(\S.*)$", log.read_text(), re.MULTILINE)
    return dict(found)


def test_what_it_says_to_try_can_be_tried(tmp_path: Path) -> None:
    home, log = tmp_path / ".rota", tmp_path / "demo.log"
    command = [
        sys.executable,
        "-m",
        "rota_operator",
        "local",
        f"--home={home}",
        "--listen=127.0.0.1:0",
        "--page=127.0.0.1:0",
    ]
    process = Process.start("demo", command, log=log, cwd=REPO)

    def group() -> Any:  # noqa: ANN401  as JSON has it
        address = (home / "page").read_text().strip().removeprefix("http://")
        return json.loads(get(address, "/api/state").page)["groups"][0]

    def sharing() -> int:
        return len([each for each in group()["members"] if each["state"] == "Stable" and each["partitions"]])

    def committed() -> list[int | None]:
        return [each["committed"] for each in group()["partitions"]]

    def tried(what: str) -> str:
        # As a person pastes it.
        done = subprocess.run(
            ["sh", "-c", hints_in(log)[what]], cwd=REPO, capture_output=True, text=True, timeout=STEP_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    process.wait_until((home / "page").exists, within_s=STEP_S)
    process.wait_until(lambda: sharing() == 3 and None not in committed(), within_s=STEP_S)
    assert list(hints_in(log)) == [
        "kill a member",
        "scale",
        "add partitions",
        "reset offsets",
        "close and count",
    ]
    assert "done" in tried("scale")
    process.wait_until(lambda: sharing() == 5, within_s=STEP_S)
    tried("kill a member")
    process.wait_until(lambda: "orders-enricher-1: sidecar exited" in log.read_text(), within_s=STEP_S)
    process.wait_until(lambda: sharing() == 5, within_s=STEP_S)
    tried("add partitions")
    process.wait_until(lambda: len(group()["partitions"]) == 16, within_s=STEP_S)
    assert "orders" in tried("reset offsets")
    process.wait_until(lambda: None not in committed(), within_s=STEP_S)
    # Of a shop that sells on some orders are always under way.
    counted = tried("close and count")
    assert re.search(r"^produced (\d+), processed \1, unprocessed 0, repeated \d+$", counted, re.MULTILINE), (
        counted
    )
    process.stop(within_s=STEP_S)
    assert process.exit_code == 0


def test_it_goes_without_manifests_of_ones_own() -> None:
    done = run("-f", str(ORDERS), "--demo-seconds=1")
    assert done.returncode == 2
    assert done.stderr.endswith("--demo-seconds cannot be combined with -f; omit one of them\n")


def test_a_checkout_has_it_in_its_examples() -> None:
    assert demo.demo_folder() == ORDERS


def test_an_installed_package_has_the_same_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPO / "operator", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("rota_operator/local/orders/")]
        found = {name.rpartition("/")[2]: archive.read(name) for name in names}
    assert found == {file.name: file.read_bytes() for file in ORDERS.iterdir() if file.is_file()}


def test_without_its_manifests_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "DEMO_FOLDERS", (tmp_path,))
    with pytest.raises(CannotStart, match="the demo's manifests are not installed; give manifests with -f"):
        demo.demo_folder()
