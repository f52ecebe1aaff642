"""
Runs one suite over and over with new seeds, for hours if need be. Called by `make soak`.

A suite is every test with the mark `soak("<suite>")`; `make test` runs each of them once. The progress is
written after each round, so that a soak that was stopped goes on where it was; `--together` runs so many rounds in one process,
where they share what takes long to start. When it is done, or when a round fails, a line with the result, the seeds, the date and the sums of the tests' counters (`counters`, in
`tests.support.report`) goes into docs/measurements/.
"""

import argparse
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.report import COUNTERS_FILE, SEED_BEGUN
from tests.support.selection import SEEDS, modules_with

REPO = Path(__file__).parents[2]
MEASUREMENTS = REPO / "docs" / "measurements"
HEADER = "| date | commit | seeds | rounds | result | seconds |\n|---|---|---|---|---|---|\n"
EXIT_NO_TESTS = 5


@dataclass(slots=True)
class Progress:
    """Progress of a soak; round n runs with seed `seed + n`."""

    seed: int
    done: int = 0
    seconds: float = 0.0
    # Sums of the tests' counters over the rounds.
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, seconds: float, ran: "Ran") -> None:
        """Add rounds that have ended."""
        self.done += ran.rounds
        self.seconds += seconds
        self.counts = dict(Counter(self.counts) + ran.counts)

    @classmethod
    def load(cls, path: Path, seed: int) -> "Progress":
        return cls(**json.loads(path.read_text())) if path.exists() else cls(seed)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))


class Ran(NamedTuple):
    """Outcome of rounds that ran in one process, up to the first that failed."""

    # Exit code of pytest.
    code: int
    rounds: int
    # Sums of the tests' counters.
    counts: Counter[str]


def run(suite: str, seeds: Sequence[int]) -> Ran:
    """Run the suite's tests once for each seed, up to the first that fails."""
    # What a library says before it ends the process is not captured.
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--capture=sys", "--soak", suite]
    command += modules_with("soak", REPO / "tests")
    if len(seeds) > 1:
        # The next round would begin in what a failed one has left.
        command.append("--exitfirst")
    with tempfile.NamedTemporaryFile("r", prefix="rota-soak-") as file:
        logs = REPO / "build" / "soak" / "logs" / suite
        # Those of the last rounds: of a round that fails, all are there.
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        seed_list = ",".join(map(str, seeds))
        environment = {
            **os.environ, SEEDS: seed_list, COUNTERS_FILE: file.name, "ROTA_TEST_LOGS": str(logs),
        }  # fmt: skip
        code = subprocess.run(command, cwd=REPO, env=environment).returncode
        lines = [json.loads(line) for line in file]
    begun = [line[SEED_BEGUN] for line in lines if SEED_BEGUN in line]
    counts = sum((Counter(line) for line in lines if SEED_BEGUN not in line), Counter[str]())
    return Ran(code, seeds.index(begun[-1]) + 1 if code and begun else len(seeds), counts)


def commit() -> str:
    """The commit that is checked out."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()


def record(suite: str, progress: Progress, result: str) -> Path:
    """Append the result, and what was counted, to the suite's page."""
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(progress.counts.items()))
    result = f"{result}: {counts}" if counts else result
    page = MEASUREMENTS / f"soak-{suite}.md"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    last = progress.seed + progress.done - 1
    row = f"| {today} | {commit()} | {progress.seed}–{last} | {progress.done} | {result} | {progress.seconds:.0f} |\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    before = page.read_text() if page.exists() else f"# Soak: {suite}\n\n{HEADER}"
    page.write_text(before + row)
    return page


def soak(suite: str, rounds: int, seed: int, together: int = 1) -> int:
    """Run what is left of `rounds`; the exit code."""
    path = REPO / "build" / "soak" / f"{suite}.json"
    progress = Progress.load(path, seed)
    while progress.done < rounds:
        first = progress.seed + progress.done
        seeds = range(first, first + min(together, rounds - progress.done))
        print(f"soak {suite}: round {progress.done + 1} of {rounds}, seeds {first}–{seeds[-1]}", flush=True)
        started = time.monotonic()
        ran = run(suite, seeds)
        if ran.code == EXIT_NO_TESTS:
            print(
                f'soak: no test has the mark soak("{suite}"); see docs/testing.md for the suites',
                file=sys.stderr,
            )
            return 2
        progress.add(time.monotonic() - started, ran)
        progress.save(path)
        if ran.code != 0:
            current = progress.seed + progress.done - 1
            page = record(suite, progress, f"failed at seed {current}")
            path.unlink()
            print(
                f"soak {suite}: failed; again: ROTA_SEED={current} .venv/bin/pytest --soak {suite} ({page.name})"
            )
            return 1
    page = record(suite, progress, "passed")
    path.unlink()
    print(f"soak {suite}: {rounds} rounds passed in {progress.seconds:.0f} s ({page.relative_to(REPO)})")
    return 0


def main() -> None:
    """Run a suite."""
    parser = argparse.ArgumentParser(prog="make soak", description="Run a suite over and over.")
    parser.add_argument("suite", help='the name in the tests\' mark: soak("cluster")')
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--together", type=int, default=1, help="rounds in one process, which share what they start"
    )
    parser.add_argument("--seed", type=int, default=None, help="of the first round; drawn when left out")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    sys.exit(soak(options.suite, options.rounds, seed, options.together))


if __name__ == "__main__":
    main()
