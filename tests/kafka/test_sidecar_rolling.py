"""Members as processes on Kafka that are restarted one by one, killed, and frozen beyond their session."""

from pathlib import Path

import pytest

from tests.sidecar.membership.rolling.crew import PARTITIONS, Group, crew_of, play, play_static
from tests.sidecar.membership.rolling.history import Limits
from tests.sidecar.membership.rolling.static import generations, handed_on, moved
from tests.sidecar.membership.rolling.table import lines
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.paired, pytest.mark.soak("membership")]

SESSION_MS = 2_500
STATIC_SESSION_MS = 6_000
# Kafka tells of a rebalance by the answer to a heartbeat.
HEARTBEAT_MS = 500
# Of what is decided within a moment.
SLACK_MS = 1_000
LIMITS = Limits(SLACK_MS, HEARTBEAT_MS, SESSION_MS + HEARTBEAT_MS + SLACK_MS)
SESSION = f"--session-timeout-ms={SESSION_MS}"


def test_restarts_kills_and_freezes_leave_each_partition_one_owner_and_all_that_was_committed(
    tmp_path: Path, kafka: Kafka, unique_name: str, seed: int, report: list[str]
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    group = Group(kafka.bootstrap, unique_name, LIMITS, [SESSION], topic=unique_name)
    with crew_of(tmp_path, group, seed) as crew:
        play(crew, 3)
        history = crew.history()
        crew.dismiss()
    report += lines("restarts, kills and freezes on Kafka", history)
    assert history.faults() == []


def test_so_does_an_eager_strategy_that_gives_up_everything_in_each_round(
    tmp_path: Path, kafka: Kafka, unique_name: str, seed: int, report: list[str]
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    flags = [SESSION, "--assignors=range"]
    group = Group(kafka.bootstrap, unique_name, LIMITS, flags, topic=unique_name, is_eager=True)
    with crew_of(tmp_path, group, seed) as crew:
        play(crew, 1)
        history = crew.history()
        crew.dismiss()
    report += lines("the same on Kafka with range", history)
    assert history.faults() == []


def test_static_members_that_restart_within_their_session_move_nothing(
    tmp_path: Path, kafka: Kafka, unique_name: str, seed: int, report: list[str]
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    limits = Limits(STATIC_SESSION_MS, 0, STATIC_SESSION_MS)
    flags = [f"--session-timeout-ms={STATIC_SESSION_MS}"]
    group = Group(kafka.bootstrap, unique_name, limits, flags, topic=unique_name, is_static=True)
    with crew_of(tmp_path, group, seed) as crew:
        before = crew.history()
        play_static(crew, 1)
        history = crew.history()
        crew.dismiss()
    report += lines("static members on Kafka, each back within its session", history)
    assert history.faults() == []
    assert moved(history) == moved(before), "others were told to let go"
    assert generations(history) == generations(before), "others had to come to a round"
    assert handed_on(history) == {True}
