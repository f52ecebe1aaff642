"""`rota dead-letters` on a real Kafka broker."""

from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.cli.dead_letters import check_list
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def rota(kafka: Kafka, tmp_path: Path) -> Rota:
    return Rota(f"kafka://{kafka.bootstrap}", tmp_path)


def test_dead_letters_are_listed_with_origin_and_reason(rota: Rota, unique_name: str, tmp_path: Path) -> None:
    check_list(rota, unique_name, tmp_path)
