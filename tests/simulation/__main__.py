"""`python -m tests.simulation SEED [COUNT]`: run seeds by hand; a failing one ends it with its story."""

import sys
import time
from collections import Counter

from tests.simulation.run import simulate


def main() -> None:
    """Run one seed, or COUNT from there on."""
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    met: Counter[str] = Counter()
    started = time.process_time()
    steps = 0
    for seed in range(first, first + count):
        outcome = simulate(seed)
        met.update(outcome.met)
        steps += outcome.steps
    seconds = time.process_time() - started
    print(f"{count} seeds passed, {steps} steps in {seconds:.1f} s")
    for name, times in sorted(met.items()):
        print(f"  {times:>7} {name}")


if __name__ == "__main__":
    main()
