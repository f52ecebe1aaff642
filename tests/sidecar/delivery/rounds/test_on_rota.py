"""
Applications beside their sidecars on Rota: restarted, killed, frozen and hung they lose no record, and repeat only what
was not committed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.delivery.rounds import stories
from tests.sidecar.delivery.rounds.engine import CLEAN_MS, FLAGS, RotaEngine
from tests.sidecar.delivery.rounds.history import lines
from tests.sidecar.delivery.rounds.member import Setting
from tests.support.coordinator import serving

pytestmark = [pytest.mark.process, pytest.mark.paired, pytest.mark.soak("delivery")]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RotaEngine]:
    with serving(tmp_path_factory.mktemp("coordinator"), FLAGS) as coordinator:
        running = RotaEngine(coordinator)
        yield running
        running.close()


def test_restarts_kills_and_freezes_lose_nothing_and_repeat_only_what_was_not_committed(
    tmp_path: Path, engine: RotaEngine, seed: int, report: list[str]
) -> None:
    setting = Setting(engine, "rounds", "rounds", CLEAN_MS)
    history = stories.restarts_kills_and_freezes(tmp_path, setting, seed)
    report += lines("restarts, kills and freezes on Rota", history)
    assert history.faults() == []


def test_an_application_that_hangs_loses_its_partitions_until_it_goes_on(
    tmp_path: Path, engine: RotaEngine, seed: int, report: list[str]
) -> None:
    history = stories.hangs(tmp_path, Setting(engine, "hangs", "hangs", CLEAN_MS), seed)
    report += lines("applications that hang, on Rota", history)
    assert history.faults() == []


def test_a_record_that_fails_or_kills_becomes_a_dead_letter_while_its_neighbours_flow(
    tmp_path: Path, engine: RotaEngine, seed: int, report: list[str]
) -> None:
    history = stories.poison(tmp_path, Setting(engine, "poison", "poison", CLEAN_MS), seed)
    report += lines("poison on Rota", history)
    assert history.faults() == []
