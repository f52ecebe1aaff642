"""
Applications beside their sidecars on Kafka: restarted, killed, frozen and hung they lose no record, and repeat only what
was not committed. Kafka has the records each time; who coordinates is Kafka, or Rota.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kafka.delivery_engines import KafkaEngine, SharedEngine
from tests.sidecar.delivery.rounds import engine as rota
from tests.sidecar.delivery.rounds import stories
from tests.sidecar.delivery.rounds.history import lines
from tests.sidecar.delivery.rounds.member import Setting
from tests.support.coordinator import serving
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.paired, pytest.mark.soak("delivery")]
# Kafka tells of a rebalance by the answer to a heartbeat: one round takes a partition away, the next gives it.
ROUNDS, HEARTBEAT_MS = 2, 500
CLEAN_MS = ROUNDS * HEARTBEAT_MS + 1_000


@pytest.fixture
def setting(kafka: Kafka, unique_name: str) -> Iterator[Setting]:
    engine = KafkaEngine(kafka)
    yield Setting(engine, unique_name, unique_name, CLEAN_MS)
    engine.close()


@pytest.fixture
def shared(tmp_path: Path, kafka: Kafka, unique_name: str) -> Iterator[Setting]:
    with serving(tmp_path, [*rota.FLAGS, "--no-log"]) as coordinator:
        engine = SharedEngine(kafka, coordinator)
        yield Setting(engine, unique_name, unique_name, rota.CLEAN_MS, engine.flags)
        engine.close()


def test_restarts_kills_and_freezes_lose_nothing_and_repeat_only_what_was_not_committed(
    tmp_path: Path, setting: Setting, seed: int, report: list[str]
) -> None:
    history = stories.restarts_kills_and_freezes(tmp_path, setting, seed)
    report += lines("deliveries: restarts, kills and freezes on Kafka", history)
    assert history.faults() == []


def test_an_application_that_hangs_loses_its_partitions_until_it_goes_on(
    tmp_path: Path, setting: Setting, seed: int, report: list[str]
) -> None:
    history = stories.hangs(tmp_path, setting, seed)
    report += lines("deliveries: applications that hang, on Kafka", history)
    assert history.faults() == []


def test_a_record_that_fails_or_kills_becomes_a_dead_letter_while_its_neighbours_flow(
    tmp_path: Path, setting: Setting, seed: int, report: list[str]
) -> None:
    history = stories.poison(tmp_path, setting, seed)
    report += lines("deliveries: poison on Kafka", history)
    assert history.faults() == []


# What is done to whom is the same as above: `make test` does a part of it, each round of a soak all.
def test_where_rota_coordinates_restarts_kills_and_hangs_lose_nothing_either(
    tmp_path: Path, shared: Setting, seed: int, report: list[str], in_soak: bool
) -> None:
    acts = () if in_soak else (stories.kill_sidecar,)
    history = stories.restarts_kills_and_freezes(tmp_path, shared, seed, acts)
    report += lines("deliveries: restarts and kills on Kafka, Rota coordinates", history)
    assert history.faults() == []
    if in_soak:
        hangs = replace(shared, topic=f"{shared.topic}-hangs", group=f"{shared.group}-hangs")
        history = stories.hangs(tmp_path, hangs, seed)
        report += lines("deliveries: applications that hang on Kafka, Rota coordinates", history)
        assert history.faults() == []


def test_where_rota_coordinates_dead_letters_are_written_to_kafka(
    tmp_path: Path, shared: Setting, seed: int, report: list[str]
) -> None:
    history = stories.poison(tmp_path, shared, seed)
    report += lines("deliveries: poison on Kafka, Rota coordinates", history)
    assert history.faults() == []
