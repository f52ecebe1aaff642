"""
Runs one suite over and over with new seeds, for hours if need be. Called by `make soak`.

A suite is every test with the mark `soak("<suite>")`; `make test` runs each of them once. The progress is
written after each round, so that a soak that was stopped goes on where it was; when it is done, or when a
round fails, a line with the result, the seeds, the date and the sums of the tests' counters (`counters`, in
`tests.support.report`) goes into docs/measurements/.
"""

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.report import COUNTERS_FILE

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

    def add(self, seconds: float, counts: Counter[str]) -> None:
        """Add a round that has ended."""
        self.done += 1
        self.seconds += seconds
        self.counts = dict(Counter(self.counts) + counts)

    @classmethod
    def load(cls, path: Path, seed: int) -> "Progress":
        return cls(**json.loads(path.read_text())) if path.exists() else cls(seed)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))


def one_round(suite: str, seed: int) -> tuple[int, Counter[str]]:
    """Run the suite's tests once; the exit code of pytest, and the sums of the tests' counters."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--soak", suite]
    with tempfile.NamedTemporaryFile("r", prefix="rota-soak-") as file:
        environment = {**os.environ, "ROTA_SEED": str(seed), COUNTERS_FILE: file.name}
        code = subprocess.run(command, cwd=REPO, env=environment).returncode
        counts = sum((Counter(json.loads(line)) for line in file), Counter[str]())
    return code, counts


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


def soak(suite: str, rounds: int, seed: int) -> int:
    """Run what is left of `rounds`; the exit code."""
    path = REPO / "build" / "soak" / f"{suite}.json"
    progress = Progress.load(path, seed)
    while progress.done < rounds:
        current = progress.seed + progress.done
        print(f"soak {suite}: round {progress.done + 1} of {rounds}, seed {current}", flush=True)
        started = time.monotonic()
        code, counts = one_round(suite, current)
        if code == EXIT_NO_TESTS:
            print(
                f'soak: no test has the mark soak("{suite}"); see docs/testing.md for the suites',
                file=sys.stderr,
            )
            return 2
        progress.add(time.monotonic() - started, counts)
        progress.save(path)
        if code != 0:
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
    parser.add_argument("--seed", type=int, default=None, help="of the first round; drawn when left out")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    sys.exit(soak(options.suite, options.rounds, seed))


if __name__ == "__main__":
    main()
