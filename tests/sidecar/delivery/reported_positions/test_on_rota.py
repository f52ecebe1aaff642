"""Applications that read Rota's log with a client of their own, and have sidecars for membership and fenced commits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.delivery.reported_positions import stories
from tests.sidecar.delivery.reported_positions.engine import Engine, rota_engine
from tests.support.coordinator import serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield rota_engine(coordinator)


def test_commits_and_lag_follow_what_is_reported(tmp_path: Path, engine: Engine) -> None:
    stories.commits_and_lag_follow_what_is_reported(tmp_path, engine, "reported")


def test_who_commits_itself_reports_for_its_lag_alone(tmp_path: Path, engine: Engine) -> None:
    stories.who_commits_itself_reports_for_its_lag_alone(tmp_path, engine, "commits-itself")


def test_a_partition_goes_on_where_its_last_owner_said_that_it_was(tmp_path: Path, engine: Engine) -> None:
    stories.a_partition_goes_on_where_its_last_owner_said_that_it_was(tmp_path, engine, "handed-over")


def test_who_does_not_acknowledge_in_time_is_waited_for_no_longer(tmp_path: Path, engine: Engine) -> None:
    stories.who_does_not_acknowledge_in_time_is_waited_for_no_longer(tmp_path, engine, "late")


def test_what_is_said_of_a_lost_partition_changes_nothing(tmp_path: Path, engine: Engine) -> None:
    stories.what_is_said_of_a_lost_partition_changes_nothing(tmp_path, engine, "lost")
