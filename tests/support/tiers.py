"""
Runs the tests tier by tier. Called by `make test`; a person can name tiers, CI runs all.

Before a tier runs, its systems are prepared (downloaded, built, once), and that time is shown apart. A tier
whose system cannot be had here is skipped with the reason in one line; in CI that is a failure, because a
skipped test proves nothing. The logs of a tier that failed are kept, and named.
"""

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.conformance import table
from tests.support.ownership import MARK
from tests.support.selection import HEAVY_TIERS, modules_with
from tests.support.unavailable import Unavailable

REPO = Path(__file__).parents[2]
LOGS = REPO / "build" / "logs"
EXIT_NO_TESTS = 5
RESULT = re.compile(r"\b(passed|failed|errors?|deselected|no tests ran)\b.* in \d")
# Lines of pytest that say which test failed, and why, and what its processes said last.
REASON = re.compile(rf"_{{3,}} |E   |{re.escape(MARK)}|FAILED |ERROR ")
REASONS_MAX = 80
# Where the time goes is seen before it is too much.
SLOWEST = ("--durations=12", "--durations-min=5")


@dataclass(frozen=True, slots=True)
class Tier:
    """A mark, and the packages of `tests.support` whose `prepare` must have run."""

    name: str
    systems: tuple[str, ...] = ()
    # Why it has no tests yet. Leave it out once there are some: the runner insists.
    empty_because: str = ""
    # Processes that run its tests side by side: one for each core, one or two more where tests wait for others most of their time.
    processes: int = 1
    # Those with the mark `alone` run last, with nothing beside them.
    has_alone: bool = False
    # The tests of a module share what they start: one process runs all of them.
    by_module: bool = True


TIERS = (
    Tier("unit", processes=2),
    Tier(
        "process",
        ("certificates", "chromium", "helm", "postgres", "prometheus"),
        processes=4,
        has_alone=True,
    ),
    Tier("simulation", processes=2, by_module=False),
    Tier("kafka", ("certificates", "kafka", "kerberos"), processes=4, has_alone=True),
    # Each process has an API server, or a cluster, of its own.
    Tier("api_server", ("certificates", "cluster", "helm", "kafka"), processes=4),
    Tier(
        "cluster",
        ("cluster", "helm", "kafka", "postgres", "prometheus", "rota_images", "spark_operator"),
        processes=3,
    ),
    Tier("spark", ("kafka", "postgres", "spark"), processes=2),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a tier: a row of the table at the end."""

    tier: str
    result: str  # passed, failed, skipped, empty
    detail: str
    prepared_s: float = 0.0
    ran_s: float = 0.0

    def failed(self, *, strict: bool) -> bool:
        return self.result == "failed" or (strict and self.result == "skipped")

    def row(self) -> str:
        times = f"prepared in {self.prepared_s:5.1f} s, ran {self.ran_s:6.1f} s"
        return f"  {self.tier:<11}{self.result:<9}{times}  {self.detail}"


def run(tier: Tier) -> Outcome:
    """Prepare a tier's systems, then run its tests."""
    print(f"\n== {tier.name}", flush=True)
    started = time.monotonic()
    try:
        for system in tier.systems:
            importlib.import_module(f"tests.support.{system}").prepare()
    except Unavailable as missing:
        print(f"{tier.name}: skipped: {missing}", flush=True)
        return Outcome(tier.name, "skipped", str(missing), prepared_s=time.monotonic() - started)
    prepared_s = time.monotonic() - started

    started = time.monotonic()
    logs = LOGS / tier.name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    code, last = pytest(tier, logs)
    result, detail = judge(tier, code, last)
    if result == "failed":
        detail += f"; logs: {logs.relative_to(REPO)}"
    else:
        shutil.rmtree(logs)
    outcome = Outcome(tier.name, result, detail, prepared_s, time.monotonic() - started)
    print(f"{tier.name}: {result} in {outcome.ran_s:.1f} s: {detail}", flush=True)
    return outcome


def judge(tier: Tier, code: int, last: str) -> tuple[str, str]:
    """The result and what to say about it, from pytest's exit code and last line."""
    if code == EXIT_NO_TESTS and tier.empty_because:
        return "empty", f"no tests yet: {tier.empty_because}"
    if code == EXIT_NO_TESTS:
        return "failed", f"no test has the mark '{tier.name}'; mark one, or say why in tests/support/tiers.py"
    if code == 0 and tier.empty_because:
        return "failed", "it has tests now; take its empty_because out of tests/support/tiers.py"
    return ("passed" if code == 0 else "failed"), last


class Part(NamedTuple):
    """The tests of a tier that one process runs."""

    name: str
    marks: str
    arguments: tuple[str, ...] = ()


def parts(tier: Tier, begun: Path) -> list[list[Part]]:
    """Run the commands of each inner list side by side; each claims modules in a shared folder."""
    if tier.processes == 1:
        return [[Part("all", tier.name)]]
    marks, share = (
        tier.name + " and not alone" * tier.has_alone,
        "--share" if tier.by_module else "--share-tests",
    )
    numbers = range(1, tier.processes + 1)
    groups = [[Part(f"{number}-of-{tier.processes}", marks, (f"{share}={begun}",)) for number in numbers]]
    if tier.has_alone:
        groups.append([Part("alone", f"{tier.name} and alone")])
    return groups


def modules(tier: Tier, tests: Path = REPO / "tests") -> list[str]:
    """Return the modules with the tier's mark; an empty list, which is all, for `unit`."""
    return modules_with(tier.name, tests) if tier.name in HEAVY_TIERS else []


def pytest(tier: Tier, logs: Path) -> tuple[int, str]:
    """Run the tier's tests; what they print is shown and kept. Gives an exit code, a bad one if any is, and the last lines."""
    outcomes: list[tuple[int, str]] = []
    chosen = modules(tier)
    with tempfile.TemporaryDirectory() as begun, ThreadPoolExecutor(tier.processes) as pool:
        for group in parts(tier, Path(begun)):
            outcomes += pool.map(lambda part: pytest_part(part, chosen, logs), group)
    code = next((code for code, _ in outcomes if code), 0)
    return code, "; ".join(last for _, last in outcomes)


def pytest_part(part: Part, chosen: Sequence[str], logs: Path) -> tuple[int, str]:
    """One process of them, which reads the chosen modules; empty: all."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--no-header",
        *SLOWEST,
        "-m",
        part.marks,
        *part.arguments,
        *chosen,
    ]
    # Two processes may start systems of the same name.
    folder = logs / part.name
    folder.mkdir(exist_ok=True)
    last = result = ""
    with (
        (folder / "pytest.log").open("w") as kept,
        subprocess.Popen(
            command,
            cwd=REPO,
            env={**os.environ, "ROTA_TEST_LOGS": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
            kept.write(line)
            last = line.strip() or last
            # What a library says at the very end is none.
            result = last if RESULT.search(line) else result
    return child.returncode, re.sub(r"^=+ | =+$", "", result or last)


def reasons(logs: Path) -> list[str]:
    """Return the first lines of each process' log that say what failed: those of the run are far above the end of all tiers."""
    found: list[str] = []
    for log in sorted(logs.glob("*/pytest.log")):
        lines = [line for line in log.read_text().splitlines() if REASON.match(line)]
        found += lines[:REASONS_MAX]
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named tiers in their order, then say how each went."""
    known = [tier.name for tier in TIERS]
    parser = argparse.ArgumentParser(prog="make test", description="Run the tests, tier by tier.")
    parser.add_argument("tiers", nargs="+", choices=known, metavar="TIER", help=", ".join(known))
    wanted = parser.parse_args(arguments).tiers
    strict = os.environ.get("CI") == "true"

    table.forget()
    outcomes = [run(tier) for tier in TIERS if tier.name in wanted]
    if summary := table.summary():
        print(f"\n{summary}", flush=True)
    print("\nTiers:", *(outcome.row() for outcome in outcomes), sep="\n", flush=True)
    for outcome in outcomes:
        if outcome.result == "failed":
            print(f"\n{outcome.tier}:", *reasons(LOGS / outcome.tier), sep="\n  ", flush=True)
    if any(outcome.failed(strict=strict) for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
