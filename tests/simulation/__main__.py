"""`python -m tests.simulation SEED [COUNT]`: run seeds by hand; a failing one ends it with its story."""

import sys
import time
from collections import Counter

from tests.simulation.run import simulate


def main() -> None:
    """Run one seed, or COUNT from there on."""
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    fired: Counter[str] = Counter()
    started = time.monotonic()  # noqa: TID251  how long it takes a person to wait
    steps = 0
    for seed in range(first, first + count):
        outcome = simulate(seed)
        fired.update(outcome.fired)
        fired.update(outcome.history.situations)
        steps += outcome.steps
    seconds = time.monotonic() - started  # noqa: TID251
    print(f"{count} seeds passed, {steps} steps in {seconds:.1f} s")
    for name, times in sorted(fired.items()):
        print(f"  {times:>7} {name}")


if __name__ == "__main__":
    main()
