"""Spark on this machine, in the foreground: `python -m tests.support.spark up`."""

import argparse

from tests.support.processes import run_in_foreground
from tests.support.spark.standalone import running


def main() -> None:
    """Start a cluster and keep it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.spark", description=__doc__)
    up = parser.add_subparsers(required=True).add_parser("up", help="start a cluster; Ctrl-C ends it")
    up.add_argument("--workers", type=int, default=2, help="how many workers (default 2)")
    arguments = parser.parse_args()
    run_in_foreground(
        running(arguments.workers),
        lambda spark: f"Spark is ready: {spark.master_url} (web page {spark.page})",
    )


if __name__ == "__main__":
    main()
