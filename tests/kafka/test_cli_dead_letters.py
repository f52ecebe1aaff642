"""`rota dead-letters` on a real Kafka broker."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.cli.dead_letters import (
    check_fencing,
    check_kills,
    check_list,
    check_open_transaction,
    check_replay,
    check_skipped,
)
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def rota(kafka: Kafka, tmp_path: Path) -> Rota:
    return Rota(f"kafka://{kafka.bootstrap}", tmp_path)


def test_dead_letters_are_listed_with_origin_and_reason(rota: Rota, unique_name: str, tmp_path: Path) -> None:
    check_list(rota, unique_name, tmp_path)


def test_each_dead_letter_is_replayed_once_as_it_was(rota: Rota, unique_name: str, tmp_path: Path) -> None:
    check_replay(rota, unique_name, tmp_path)


def test_each_dead_letter_is_replayed_once_though_replays_are_killed_and_meet(
    rota: Rota, unique_name: str, tmp_path: Path
) -> None:
    check_kills(rota, unique_name, tmp_path)


def test_a_replay_fences_the_one_before_it(rota: Rota, unique_name: str) -> None:
    check_fencing(rota, unique_name)


def test_nothing_is_replayed_behind_an_open_transaction(rota: Rota, unique_name: str) -> None:
    check_open_transaction(rota, unique_name)


def test_what_cannot_be_replayed_is_skipped_by_name(rota: Rota, unique_name: str) -> None:
    check_skipped(rota, unique_name)
