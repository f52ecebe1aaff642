"""Lives of applications are read from their files as they grow, and stories go on side by side."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.disruptions.lives import Lives
from tests.cluster.disruptions.story import Wait, run_all

EVERYTHING = frozenset({0, 1})


def event(what: str, at_ms: int, *partitions: int) -> str:
    about = {"partitions": {"records": [*partitions]}} if partitions else {}
    return json.dumps({"event": what, **about, "monotonic_ms": at_ms}) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of an application on node n1; another node has none."""
    (tmp_path / "n1").mkdir()
    (tmp_path / "n2").mkdir()
    found = tmp_path / "n1" / "orders-x.100"
    found.write_text(event("started", 100) + event("assigned", 110, 0, 1))
    return found


@pytest.fixture
def lives(tmp_path: Path, file: Path) -> Lives:
    assert file.exists()
    return Lives({name: tmp_path / name for name in ("n1", "n2")})


def test_a_life_has_what_it_was_assigned_until_it_lets_go(lives: Lives, file: Path) -> None:
    [life] = lives.running()
    assert (life.pod, life.node, life.started_ms, life.partitions) == ("orders-x", "n1", 100, {0, 1})
    with file.open("a") as written:
        written.write(event("revoking", 120, 1) + event("lost", 130, 0)[:-9])
    assert (life is lives.running()[0], life.partitions) == (True, {0}), "a line counts once it is complete"


def test_a_life_ends_by_its_own_event(lives: Lives, file: Path) -> None:
    with file.open("a") as written:
        written.write(event("ended", 120))
    assert lives.running() == []
    [life] = lives.read()
    assert life.notices(EVERYTHING) == [(110, "assigned", EVERYTHING), (120, "ended", EVERYTHING)]


def test_what_a_life_says_after_it_was_cut_off_is_no_ownership(lives: Lives, file: Path) -> None:
    [life] = lives.read()
    life.end(120)
    with file.open("a") as written:
        written.write(event("done", 125) + event("assigned", 130, 0))
    [life] = lives.read()
    assert lives.running() == []
    assert life.notices(EVERYTHING) == [(110, "assigned", EVERYTHING), (120, "ended", EVERYTHING)]
    assert len(life.events) == 4, "but it counts for what was done"


def test_a_life_whose_sidecar_was_killed_has_nothing_before_it_is_assigned_again(
    lives: Lives, file: Path
) -> None:
    [life] = lives.read()
    life.detach(120)
    assert life.partitions == set()
    with file.open("a") as written:
        written.write(event("assigned", 130, 1))
    [life] = lives.running()
    assert life.partitions == {1}
    assert sorted(life.notices(EVERYTHING)) == [
        (110, "assigned", EVERYTHING),
        (120, "ended", EVERYTHING),
        (130, "assigned", {1}),
    ]


def test_a_life_that_was_detached_has_nothing_before_it_is_assigned_again(lives: Lives, file: Path) -> None:
    with file.open("a") as written:
        written.write(event("detached", 120) + event("assigned", 130, 1))
    [life] = lives.running()
    assert life.partitions == {1}
    assert life.notices(EVERYTHING)[1:] == [(120, "ended", EVERYTHING), (130, "assigned", {1})]


def test_stories_go_on_side_by_side_as_soon_as_what_they_wait_for_holds() -> None:
    order: list[str] = []

    def story(name: str, after: str) -> Iterator[Wait]:
        yield Wait(name, lambda: not after or after in order)
        order.append(name)
        yield Wait(name, lambda: True)
        order.append(f"{name} again")

    run_all(story("second", "first"), story("first", ""), iter(()))
    assert order.index("first") < order.index("second")
    assert sorted(order) == ["first", "first again", "second", "second again"]
