"""`rota groups` on a real Kafka broker: the same words for groups of any client."""

import json
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.cli.command import Rota
from tests.support.kafka import Kafka
from tests.support.kafka.consumers import newer, plain, wait_for_shares
from tests.support.processes import Process

pytestmark = pytest.mark.kafka

WITHIN_S = 60


@pytest.fixture
def rota(kafka: Kafka, tmp_path: Path) -> Rota:
    return Rota(kafka.bootstrap, tmp_path)


@pytest.fixture
def topic(rota: Rota, kafka: Kafka, unique_name: str) -> str:
    """Two partitions with five and three records."""
    kafka.create_topic(unique_name, partitions=2)
    for partition, count in enumerate((5, 3)):
        assert rota("produce", unique_name, "--partition", str(partition), stdin="x\n" * count).code == 0
    return unique_name


def committed(rota: Rota, group: str) -> list[int]:
    return [each["offset"] for each in rota("groups", "offsets", group, "-o", "json").data]


def test_of_what_was_committed_the_offset_is_shown(rota: Rota, topic: str, kafka: Kafka) -> None:
    """The text beside it comes out of this client with whatever lies behind it in memory, or as no text at all."""
    with closing(Consumer({**kafka.client_config(), "group.id": topic})) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3, metadata="m" * 16)], asynchronous=False)
    assert rota("groups", "offsets", topic, "-o", "json").data == [
        {"topic": topic, "partition": 0, "offset": 3, "metadata": None}
    ]
    assert rota("groups", "lag", topic).code == 0


def test_offsets_are_set_shown_measured_and_deleted(rota: Rota, topic: str) -> None:
    assert rota("groups", "reset", topic, "--to-offset", "2", "--topic", topic, "--execute").code == 0
    assert {"group": topic, "type": "Classic", "state": "Empty", "protocol": ""} in [
        {**each, "protocol": ""} for each in rota("groups", "list", "-o", "json").data
    ]
    found = rota("groups", "lag", topic, "-o", "json").data
    assert [(each["committed"], each["end"], each["lag_records"]) for each in found["partitions"]] == [
        (2, 5, 3),
        (2, 3, 1),
    ]
    assert found["lag_records"] == 4
    assert found["lag_seconds"] > 0

    dry = rota("groups", "reset", topic, "--to-earliest", "--dry-run", "-o", "json").data
    assert [(each["old"], each["new"]) for each in dry["partitions"]] == [(2, 0), (2, 0)]
    assert committed(rota, topic) == [2, 2]
    assert rota("groups", "reset", topic, "--shift-by", "2", "--execute").code == 0
    assert committed(rota, topic) == [4, 3]
    assert rota("groups", "reset", topic, "--by-duration", "1h", "--execute").code == 0
    assert committed(rota, topic) == [0, 0]

    assert rota("groups", "delete", topic, "--yes").lines == [f"deleted {topic}"]
    gone = rota("groups", "describe", topic)
    assert (gone.code, gone.error.startswith(f"group {topic} not found")) == (4, True)


def test_types_are_kafkas_and_all_groups_are_shown(rota: Rota, kafka: Kafka, topic: str) -> None:
    classic = f"{topic}-classic"
    rota("groups", "reset", classic, "--to-offset", "2", "--topic", topic, "--execute")
    with newer(kafka, topic, topic):
        wait_for_shares(kafka, topic, {"newer": 2})
        listed = {each["group"]: each["type"] for each in rota("groups", "list", "-o", "json").data}
        described = rota("groups", "describe", "--all-groups", "-o", "json").data
        measured = rota("groups", "lag", topic, classic, "-o", "json").data
    assert (listed[topic], listed[classic]) == ("Consumer", "Classic")
    types = {each["group"]: each["type"] for each in described}
    assert (types[topic], types[classic]) == ("Consumer", "Classic")
    assert {each["group"]: each["lag_records"] for each in measured}[classic] == 4


def test_the_current_offsets_are_kept(rota: Rota, kafka: Kafka, topic: str) -> None:
    assert rota("groups", "reset", topic, "--to-offset", "2", "--topic", f"{topic}:0", "--execute").code == 0
    done = rota("groups", "reset", topic, "--to-current", "--topic", topic, "--execute", "-o", "json").data
    assert [(each["old"], each["new"]) for each in done["partitions"]] == [(2, 2), (None, 3)]
    assert committed(rota, topic) == [2, 3]


def test_members_of_another_client_are_shown_and_left_alone(
    rota: Rota, kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    log = tmp_path / "watched"
    command = [sys.executable, "-m", "rota_cli", "groups", "watch", topic, "--interval", "0.2"]
    rota("groups", "reset", topic, "--to-earliest", "--topic", topic, "--execute")
    watching = Process.start("rota groups watch", command, log=log, env=rota.environment())
    try:
        watching.wait_until(lambda: "Empty" in log.read_text(), within_s=WITHIN_S)
        with plain(kafka, topic, topic, "cooperative-sticky"):
            wait_for_shares(kafka, topic, {"plain": 2})
            found = rota("groups", "describe", topic, "-o", "json").data
            refused = rota("groups", "reset", topic, "--to-latest", "--execute")
            kept = rota("groups", "delete", topic, "--yes")
            explained = rota("groups", "explain", topic, "-o", "json").data
            watching.wait_until(lambda: f"{topic}[0-1]: unassigned" in log.read_text(), within_s=WITHIN_S)
    finally:
        watching.stop(first=signal.SIGINT)
    assert watching.exit_code == 0
    assert (found["state"], found["strategy"], found["generation"]) == ("Stable", "cooperative-sticky", None)
    assert [(each["client_id"], each["assigned"]) for each in found["members"]] == [
        ("plain", {topic: [0, 1]})
    ]
    for done in (refused, kept):
        assert (done.code, f"group {topic} has members: stop its consumers first" in done.error) == (
            1,
            True,
        )
    assert explained[0]["says"].startswith("stable: 1 member shares 2 partitions")
    assert "Preparing to rebalance group" in json.dumps(explained)
