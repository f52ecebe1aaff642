"""
Measure start-up time and memory of the processes of Rota, beside a bare interpreter.

The claim: a sidecar imports only what it needs. Each command alternates with the bare interpreter, so that a busy
machine slows both; the table has medians, and the median of the ratios of each pair.
"""

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

ROUNDS = 15
PEER = ("-c", "pass")
COMMANDS = {
    "rota version": ("-m", "rota_cli", "version"),
    "rota_coordinator --version": ("-m", "rota_coordinator", "--version"),
    "rota_sidecar --version": ("-m", "rota_sidecar", "--version"),
    "import of the contracts": (
        "-c",
        "from rota_proto.coordinator.v1 import coordinator_pb2_grpc",
    ),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Time and memory of one run, from the kernel's accounting."""

    seconds: float
    mebibytes: float


def run(arguments: tuple[str, ...]) -> Cost:
    """Run an interpreter once and return its cost."""
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"startup: {arguments} ended with {child.returncode}; run it by hand to see why")
    return Cost(seconds, usage.ru_maxrss / 1024)


def main() -> None:
    """Run the benchmark and print its table."""
    print(f"{'start-up of':<28}{'ms':>8}{'MiB':>8}{'× bare':>9}   (medians of {ROUNDS})")
    for name, arguments in COMMANDS.items():
        run(arguments)  # fills the caches
        pairs = [(run(arguments), run(PEER)) for _ in range(ROUNDS)]
        milliseconds = statistics.median(cost.seconds * 1000 for cost, _ in pairs)
        memory = statistics.median(cost.mebibytes for cost, _ in pairs)
        ratio = statistics.median(cost.seconds / bare.seconds for cost, bare in pairs)
        print(f"{name:<28}{milliseconds:>8.0f}{memory:>8.0f}{ratio:>9.1f}")


if __name__ == "__main__":
    main()
