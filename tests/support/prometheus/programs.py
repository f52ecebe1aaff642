"""
Prometheus' programs, unpacked from Debian's package, and what promtool says about rules and metrics.

`prepare` is what `make test` calls before the tests, and what every start of a server calls again.
"""

import subprocess
from pathlib import Path

from tests.support import debian


class RulesRefused(Exception):
    """promtool found the rules wrong, or not doing what their test expects; the message is what it said."""


class MetricsRefused(Exception):
    """promtool found metrics that break Prometheus' conventions; the message is what it said."""


def prepare() -> debian.Unpacked:
    """The programs; fetched on the first call."""
    return debian.unpack("prometheus", "prometheus")


def check_rules(*files: Path) -> None:
    """Raise if these files of rules are wrong in themselves: a typo, an expression that does not parse."""
    _promtool("check", *files)


def run_rule_tests(*files: Path) -> None:
    """Raise if rules do something else than these files expect (promtool's unit tests for rules)."""
    _promtool("test", *files)


def check_metrics(page: str) -> None:
    """Raise if a page of metrics does not parse, or is not as Prometheus wants metrics to be."""
    done = subprocess.run(
        [prepare().program("promtool"), "check", "metrics"],
        input=page,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise MetricsRefused(f"promtool check metrics:\n{done.stdout.strip()}")


def _promtool(verb: str, *files: Path) -> None:
    done = subprocess.run(
        [prepare().program("promtool"), verb, "rules", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RulesRefused(f"promtool {verb} rules {' '.join(map(str, files))}:\n{done.stdout.strip()}")
