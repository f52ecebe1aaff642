"""
Prometheus' programs, unpacked from Debian's package, and what promtool says about files of rules.

`prepare` is what `make test` calls before the tests, and what every start of a server calls again.
"""

import subprocess
from pathlib import Path

from tests.support import debian


class RulesRefused(Exception):
    """promtool found the rules wrong, or not doing what their test expects; the message is what it said."""


def prepare() -> debian.Unpacked:
    """The programs; fetched on the first call."""
    return debian.unpack("prometheus", "prometheus")


def check_rules(*files: Path) -> None:
    """Raise if these files of rules are wrong in themselves: a typo, an expression that does not parse."""
    _promtool("check", *files)


def run_rule_tests(*files: Path) -> None:
    """Raise if rules do something else than these files expect (promtool's unit tests for rules)."""
    _promtool("test", *files)


def _promtool(verb: str, *files: Path) -> None:
    done = subprocess.run(
        [prepare().program("promtool"), verb, "rules", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RulesRefused(f"promtool {verb} rules {' '.join(map(str, files))}:\n{done.stdout.strip()}")
