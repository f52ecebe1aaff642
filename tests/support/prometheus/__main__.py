"""Prometheus on this machine, in the foreground: `python -m tests.support.prometheus up`."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import run_in_foreground
from tests.support.prometheus.server import Prometheus, running


def main() -> None:
    """Start a server and keep it until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.prometheus", description=__doc__)
    up = parser.add_subparsers(required=True).add_parser("up", help="start a server; Ctrl-C ends it")
    up.add_argument("--scrape", nargs="*", default=[], metavar="HOST:PORT", help="what it is to scrape")
    up.add_argument("--rules", nargs="*", default=[], type=Path, metavar="FILE", help="files of rules")
    arguments = parser.parse_args()
    run_in_foreground(
        _scraping(arguments.rules, arguments.scrape),
        lambda prometheus: f"Prometheus is ready: {prometheus.url}",
    )


@contextmanager
def _scraping(rules: list[Path], targets: list[str]) -> Iterator[Prometheus]:
    with running(rules=rules) as prometheus:
        prometheus.scrape({"up": targets})
        yield prometheus


if __name__ == "__main__":
    main()
