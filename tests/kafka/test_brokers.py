"""Brokers that fail, and the command that keeps one: nothing of them stays behind."""

import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.process import command
from tests.support.kafka import MORTAL
from tests.support.kafka.fixtures import StartKafka
from tests.support.processes import wait_for
from tests.support.workdir import sweep

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60


def test_three_nodes_lose_one_and_take_it_back(start_kafka: StartKafka, unique_name: str) -> None:
    kafka = start_kafka(3, settings=MORTAL)
    kafka.create_topic(unique_name)
    admin = AdminClient(kafka.client_config())
    producer = Producer({**kafka.client_config(), "acks": "all"})

    kafka.broker(2).kill()
    producer.produce(unique_name, value=b"while one is away")
    assert producer.flush(TIMEOUT_S) == 0, "two of three copies are enough"

    kafka.broker(2).start()
    # It answers before the others know it again.
    wait_for(
        "all three are known",
        lambda: sorted(admin.list_topics(timeout=TIMEOUT_S).brokers) == [1, 2, 3],
        within_s=TIMEOUT_S,
    )


def test_command_ends_cleanly_when_asked(tmp_path: Path) -> None:
    with command.started("kafka", log=tmp_path / "log") as kafka:
        assert len(kafka.servers) == 1
        folder = kafka.folder()

        assert kafka.end(signal.SIGTERM) == 0

        assert kafka.left_behind() == []
        assert not folder.exists()


def test_killed_command_leaves_nothing(tmp_path: Path) -> None:
    with command.started("kafka", log=tmp_path / "log") as kafka:
        assert len(kafka.servers) == 1
        folder = kafka.folder()

        assert kafka.end(signal.SIGKILL) == -signal.SIGKILL

        assert kafka.left_behind() == []
    sweep("kafka")  # what the next start begins with
    assert not folder.exists()
