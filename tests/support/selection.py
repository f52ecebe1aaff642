"""
Which tests run: pytest's hooks for tiers, their shards, and soak suites.

A test without the mark of a tier belongs to `unit`, so that `-m unit` means "all that starts nothing" without
a mark on every small test.
"""

import os

import pytest

HEAVY_TIERS = ("process", "simulation", "kafka", "cluster", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--soak SUITE`: the tests of one soak suite. `--shard 1/2`: one half of those that would run, or of their modules."""
    parser.addoption("--soak", metavar="SUITE", help="run only the tests with the mark soak(SUITE)")
    parser.addoption("--shard", metavar="N/OF", help="run only every OFth test, from the Nth on")
    parser.addoption("--shard-of-modules", metavar="N/OF", help="run only every OFth module, from the Nth on")


def pytest_configure(config: pytest.Config) -> None:
    """The shard is a plugin of its own: it chooses among what all others have left."""
    for option, by_module in (("--shard", False), ("--shard-of-modules", True)):
        shard = config.getoption(option)
        if shard is not None:
            config.pluginmanager.register(Shard(shard, by_module=by_module))


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
        choose(
            config, items, [item for item in items if (suite,) in [m.args for m in item.iter_markers("soak")]]
        )


class Shard:
    """One part of the tests that would run: chosen after all else."""

    def __init__(self, shard: str, *, by_module: bool) -> None:
        number, _, of = shard.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise pytest.UsageError(f"--shard is {shard!r}: give the part and how many there are, as 1/2")
        self._first, self._step = int(number) - 1, int(of)
        self._by_module = by_module

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._by_module:
            # In the order in which they come.
            modules = list(dict.fromkeys(item.path for item in items))
            mine = set(modules[self._first :: self._step])
            choose(config, items, [item for item in items if item.path in mine])
        else:
            choose(config, items, items[self._first :: self._step])


def choose(config: pytest.Config, items: list[pytest.Item], chosen: list[pytest.Item]) -> None:
    """Run these only."""
    among = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in among])
    items[:] = chosen


@pytest.fixture
def seed() -> int:
    """The seed of this run: fixed in `make test`, another one in every round of a soak."""
    return int(os.environ.get("ROTA_SEED", "1"))
