"""
Which tests run: pytest's hooks for tiers and soak suites.

A test without the mark of a tier belongs to `unit`, so that `-m unit` means "all that starts nothing" without
a mark on every small test.
"""

import os

import pytest

HEAVY_TIERS = ("process", "simulation", "kafka", "cluster", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak SUITE`: the tests of one soak suite."""
    parser.addoption("--soak", metavar="SUITE", help="run only the tests with the mark soak(SUITE)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test exactly one tier, and choose a soak suite when one is asked for."""
    for item in items:
        tiers = {mark.name for mark in item.iter_markers() if mark.name in HEAVY_TIERS}
        if len(tiers) > 1:
            raise pytest.UsageError(
                f"{item.nodeid} is in two tiers ({', '.join(sorted(tiers))}); leave one mark"
            )
        if not tiers:
            item.add_marker("unit")
    suite = config.getoption("--soak")
    if suite is not None:
        chosen = [item for item in items if any(mark.args == (suite,) for mark in item.iter_markers("soak"))]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.fixture
def seed() -> int:
    """The seed of this run: fixed in `make test`, another one in every round of a soak."""
    return int(os.environ.get("ROTA_SEED", "1"))
