"""Whatever happens in whatever order, a ledger says what a naive one says, and no commit passes what is not done."""

from collections import Counter

import pytest

from rota_sidecar.core.ledger import commit_points as poison_probe
from tests.sidecar.core.ledger.world import SITUATIONS, World

# Of one run, and of each round of a soak.
WORLDS = 1_000
STEPS = 100
MET_MIN = 10


@pytest.fixture
def short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the probe, so that it ends in a small world."""
    monkeypatch.setattr(poison_probe, "SINGLES", 3)
    monkeypatch.setattr(poison_probe, "GROUP", 2)
    monkeypatch.setattr(poison_probe, "GROUP_MAX", 4)


@pytest.mark.usefixtures("short_probe")
@pytest.mark.soak("ledger")
def test_no_record_is_lost_or_twice_in_hand_or_committed_before_its_verdict(
    seed: int, report: list[str]
) -> None:
    met: Counter[str] = Counter()
    for number in range(seed * WORLDS, (seed + 1) * WORLDS):
        world = World(number, met)
        try:
            for _ in range(STEPS):
                world.step()
            world.finish()
        except AssertionError as broken:
            raise AssertionError(f"world {number}: {broken}, after {world.said}") from broken
    report += [f"{met[name]:>7} {name}" for name in SITUATIONS]
    rare = {name: met[name] for name in SITUATIONS if met[name] < MET_MIN}
    assert rare == {}, f"{WORLDS} worlds passed, and hardly met what they are for"
