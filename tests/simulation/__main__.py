"""`python -m tests.simulation SEED [COUNT] [--deliver]`: run seeds by hand; a failing one ends it with its story."""

import argparse
import time
from collections import Counter

from tests.simulation.run import simulate


def main() -> None:
    """Run one seed, or COUNT from there on."""
    parser = argparse.ArgumentParser(prog="tests.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--deliver", action="store_true", help="with ledgers, and applications with hands")
    asked = parser.parse_args()
    first, count = asked.seed, asked.count
    met: Counter[str] = Counter()
    started = time.process_time()
    steps = 0
    for seed in range(first, first + count):
        outcome = simulate(seed, delivers=asked.deliver)
        met.update(outcome.met)
        steps += outcome.steps
    seconds = time.process_time() - started
    print(f"{count} seeds passed, {steps} steps in {seconds:.1f} s")
    for name, times in sorted(met.items()):
        print(f"  {times:>7} {name}")


if __name__ == "__main__":
    main()
