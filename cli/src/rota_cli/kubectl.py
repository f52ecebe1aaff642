"""Entry point of `kubectl rota`: kubectl runs the program `kubectl-rota` with the arguments after `rota`."""

import sys

from rota_cli.kubectl_program import kubectl_program
from rota_cli.process import run_program


def main() -> None:
    """Run one command. An error is one line on standard error, and an exit code."""
    sys.exit(run_program(kubectl_program, "kubectl rota"))


if __name__ == "__main__":
    main()
