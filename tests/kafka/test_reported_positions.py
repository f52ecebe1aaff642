"""
Applications that read Kafka with a Kafka client, and have sidecars for membership and fenced commits: where Kafka
coordinates their group, and where Rota does.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typing_extensions import override

from tests.sidecar.delivery.reported_positions import stories
from tests.sidecar.delivery.reported_positions.engine import Engine, Record, Records, committed_on
from tests.sidecar.delivery.reported_positions.reader import Reader
from tests.support.coordinator import QUICK, serving
from tests.support.kafka import Kafka
from tests.support.processes import Process
from tests.support.sidecar import delivering
from tests.support.tree import REPO

pytestmark = pytest.mark.kafka
WITHIN_S = 60


class KafkaRecords(Records):
    """End offsets of a broker, read by Kafka's own client, which is in no group."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    @override
    def make_topic(self, name: str, partitions: int) -> None:
        self._kafka.create_topic(name, partitions=partitions)

    @override
    def produce(self, topic: str, partition: int, times_ms: Sequence[int]) -> None:
        producer = Producer(self._kafka.client_config())
        for index, at_ms in enumerate(times_ms):
            producer.produce(topic, str(index).encode(), partition=partition, timestamp=at_ms)
        assert producer.flush(WITHIN_S) == 0

    @override
    def read(self, topic: str, partition: int, offset: int) -> Sequence[Record]:
        # Whoever commits by itself waits for a coordinator that it has no use for.
        of_no_group = {"group.id": "of-no-group", "enable.auto.commit": False}
        consumer = Consumer({**self._kafka.client_config(), **of_no_group})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WITHIN_S)
            consumer.assign([TopicPartition(topic, partition, offset)])
            messages = consumer.consume(end - offset, timeout=WITHIN_S)
            return [
                Record(message.offset() or 0, message.timestamp()[1], (message.value() or b"").decode())
                for message in messages
            ]
        finally:
            consumer.close()


class Commits:
    """Committed offsets at Kafka's own coordinator."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._lookers: dict[str, Consumer] = {}

    def look(self, group: str, topic: str) -> Mapping[int, int]:
        """Of each partition of which anything is."""
        if group not in self._lookers:
            self._lookers[group] = Consumer({**self._kafka.client_config(), "group.id": group})
        partitions = [TopicPartition(topic, number) for number in range(stories.PARTITIONS)]
        found = self._lookers[group].committed(partitions, timeout=WITHIN_S)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def close(self) -> None:
        """Close the clients."""
        for looker in self._lookers.values():
            looker.close()


@pytest.fixture(scope="module", params=["Kafka coordinates", "Rota coordinates"])
def engine(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    records = KafkaRecords(kafka)
    if request.param == "Kafka coordinates":
        commits = Commits(kafka)
        yield Engine(kafka.bootstrap, (), records, commits.look)
        commits.close()
    else:
        with serving(tmp_path_factory.mktemp("coordinator"), [*QUICK, "--no-log"]) as coordinator:
            flags = ("--coordination=rota", f"--coordinator-address={coordinator.address}")
            yield Engine(kafka.bootstrap, flags, records, committed_on(coordinator))


def test_commits_and_lag_follow_what_is_reported(tmp_path: Path, engine: Engine, unique_name: str) -> None:
    stories.commits_and_lag_follow_what_is_reported(tmp_path, engine, unique_name)


def test_who_commits_itself_reports_for_its_lag_alone(
    tmp_path: Path, engine: Engine, unique_name: str
) -> None:
    stories.who_commits_itself_reports_for_its_lag_alone(tmp_path, engine, unique_name)


def test_a_partition_goes_on_where_its_last_owner_said_that_it_was(
    tmp_path: Path, engine: Engine, unique_name: str
) -> None:
    stories.a_partition_goes_on_where_its_last_owner_said_that_it_was(tmp_path, engine, unique_name)


def test_what_is_said_of_a_lost_partition_changes_nothing(
    tmp_path: Path, engine: Engine, unique_name: str
) -> None:
    stories.what_is_said_of_a_lost_partition_changes_nothing(tmp_path, engine, unique_name)


def test_the_application_of_the_guide_reads_reports_and_lets_go(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    commits = Commits(kafka)
    stage = stories.Stage(
        tmp_path, Engine(kafka.bootstrap, (), KafkaRecords(kafka), commits.look), unique_name
    )
    first, second = stage.sidecar("first", stories.NEVER), stage.sidecar("second", stories.NEVER)
    guide = (REPO / "docs/guide/consumer-service.md").read_text()
    script, log = tmp_path / "application.py", tmp_path / "application.log"
    script.write_text(
        guide.split("## Reading with another client")[1].split("```python\n")[1].split("```")[0]
    )
    with delivering(first):
        environment = {"KAFKA": kafka.bootstrap, "ROTA_SIDECAR": first.address}
        application = Process.start("application", [sys.executable, script], log=log, env=environment)
        try:
            records = stories.PARTITIONS * stories.RECORDS
            application.wait_until(lambda: log.read_text().count(": b'") == records, within_s=WITHIN_S)
            with delivering(second), Reader(second, unique_name) as reader:
                went = reader.take()
                assert reader.positions(*went) == dict.fromkeys(went, stories.RECORDS)
                reader.say_goodbye()
            os.kill(application.pid, signal.SIGTERM)
            assert application.wait(within_s=WITHIN_S) == 0
        finally:
            application.stop()
    kinds = [line for line in log.read_text().splitlines() if line.isupper()]
    assert [kind for kind, _ in groupby(kinds)] == ["ASSIGNED", "REVOKING", "REVOKED", "ASSIGNED"]
    commits.close()
