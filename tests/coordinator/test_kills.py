"""Killed at any place, with TLS and tokens on, coordinators lose no commit, lower no offset and share no group."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from rota_coordinator.runtime import failpoints
from tests.coordinator.kills import KILL_POINTS, UNDER_LOAD, Kills, Store, fleet, plan

pytestmark = pytest.mark.process

KILLS_IN_SOAK = 10 * len(KILL_POINTS)


def kill_points(store: Store, chance: random.Random, *, in_soak: bool) -> list[str]:
    """
    Failpoints at which a round kills. `test_failover.py` kills at each failpoint on PostgreSQL whenever tests run.
    """
    if store == "PostgreSQL" and not in_soak:
        return [UNDER_LOAD]
    return plan(chance, KILLS_IN_SOAK if in_soak else len(KILL_POINTS))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("store", get_args(Store))
def test_a_round_of_a_soak_kills_at_every_point_equally_often(store: Store, seed: int) -> None:
    kills = Counter(kill_points(store, random.Random(seed), in_soak=True))
    assert kills == dict.fromkeys((*failpoints.NAMES, UNDER_LOAD), 10)


@pytest.mark.parametrize("seed", range(20))
def test_a_round_without_a_soak_kills_at_every_point_once(seed: int) -> None:
    assert Counter(kill_points("SQLite", random.Random(seed), in_soak=False)) == dict.fromkeys(KILL_POINTS, 1)


@pytest.mark.timeout(1200)
@pytest.mark.soak("coordinator-kill")
@pytest.mark.parametrize("store", get_args(Store))
def test_kills_lose_no_acknowledged_commit_and_no_member(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    store: Store,
    seed: int,
    in_soak: bool,
    counters: Counter[str],
) -> None:
    database = request.getfixturevalue("database") if store == "PostgreSQL" else ""
    chance = random.Random(seed)
    planned = kill_points(store, chance, in_soak=in_soak)
    kills = Kills(store, fleet(store, tmp_path, database), planned, chance)
    try:
        asyncio.run(kills.run())
    finally:
        counters[f"kills on {store}"] = kills.kills.total()
        counters[f"commits on {store}"] = kills.commits
    assert kills.kills == Counter(planned)
