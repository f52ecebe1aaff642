"""Members as processes on Rota's coordinator that are restarted one by one, killed, and frozen beyond their session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.membership.rolling.crew import PARTITIONS, Group, crew_of, play, play_static
from tests.sidecar.membership.rolling.history import Limits
from tests.sidecar.membership.rolling.static import generations, handed_on, moved
from tests.sidecar.membership.rolling.table import lines
from tests.support.coordinator import Coordinator, serving
from tests.support.sidecar import TOPIC

pytestmark = [pytest.mark.process, pytest.mark.paired, pytest.mark.soak("membership")]

TIMES = 3
SESSION_MS = 2_500
HEARTBEAT_MS = 500
COALESCE_MS = 250
# Of what is decided within a moment.
SLACK_MS = 1_000
STATIC_SESSION_MS = 6_000


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """As it is set up by default, but for what it makes the first member of a group wait."""
    flags = (
        "--group-min-session-timeout-ms=500",
        "--group-initial-rebalance-delay-ms=0",
        f"--rebalance-coalesce-ms={COALESCE_MS}",
    )
    with serving(tmp_path, flags) as running:
        running.make_topic(TOPIC, PARTITIONS)
        yield running


def test_restarts_kills_and_freezes_leave_each_partition_one_owner_and_all_that_was_committed(
    tmp_path: Path, coordinator: Coordinator, seed: int, report: list[str]
) -> None:
    limits = Limits(SLACK_MS, 0, SESSION_MS + HEARTBEAT_MS + COALESCE_MS + SLACK_MS)
    group = Group(f"rota://{coordinator.address}", "rolling", limits, [f"--session-timeout-ms={SESSION_MS}"])
    with crew_of(tmp_path, group, seed) as crew:
        play(crew, TIMES)
        history = crew.history()
        crew.dismiss()
    report += lines("restarts, kills and freezes on Rota's coordinator", history)
    assert history.faults() == []


def test_static_members_that_restart_within_their_session_move_nothing(
    tmp_path: Path, coordinator: Coordinator, seed: int, report: list[str]
) -> None:
    limits = Limits(STATIC_SESSION_MS, 0, STATIC_SESSION_MS)
    flags = [f"--session-timeout-ms={STATIC_SESSION_MS}"]
    group = Group(f"rota://{coordinator.address}", "static", limits, flags, is_static=True)
    with crew_of(tmp_path, group, seed) as crew:
        before = crew.history()
        play_static(crew, TIMES)
        history = crew.history()
        crew.dismiss()
    report += lines("static members on Rota's coordinator, each back within its session", history)
    assert history.faults() == []
    assert moved(history) == moved(before), "others were told to let go"
    assert generations(history) == generations(before), "others had to come to a round"
    assert handed_on(history) == {True}
