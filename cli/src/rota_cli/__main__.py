"""Entry point of the `rota` command line."""

import os
import sys

from rota_cli.process import run_program
from rota_cli.program import program

# gRPC's own log lines would appear between the command's output.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def main() -> None:
    """Run one command. An error is one line on standard error, and an exit code."""
    sys.exit(run())


def run() -> int:
    """Run one command and return its exit code."""
    return run_program(program, "rota")


if __name__ == "__main__":
    main()
