"""PostgreSQL on this machine, in the foreground: `python -m tests.support.postgres up`."""

import argparse

from tests.support.postgres.server import running
from tests.support.processes import run_in_foreground


def main() -> None:
    """Start a server and keep it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.postgres", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("up", help="start a server that keeps nothing; Ctrl-C ends it")
    parser.parse_args()
    run_in_foreground(running(), lambda postgres: f"PostgreSQL is ready: {postgres.dsn}")


if __name__ == "__main__":
    main()
