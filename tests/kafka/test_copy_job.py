"""The copy job on a Kafka broker: under kills and delays each record is copied once, and in order."""

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.log.copiers import Copier, Settings, command
from tests.log.copies import PARTITIONS, Content, Pair, differences, fill
from tests.log.copy_kills import (
    IN_SOAK,
    Rising,
    Size,
    double_owners,
    drawn,
    kill_while_copying,
    static,
)
from tests.log.owners import WITHIN_S
from tests.support.kafka import Kafka
from tests.support.workdir import logs

pytestmark = pytest.mark.kafka

SIZE = Size(records=30_000, kills=4)
RECORDS_OF_A_FIGHT = 4_000
PAGE = 10_000
POLLS_MAX = 300
BEGINS = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def content(kafka: Kafka, topic: str, isolation: str) -> Content:
    """All of a topic."""
    settings: dict[str, str | int | float | bool] = {
        "group.id": f"{topic}-content",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    consumer = Consumer({**kafka.client_config(), **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[Pair]] = {index: [] for index in range(PARTITIONS)}
    ends = 0
    for _ in range(POLLS_MAX):
        for message in consumer.consume(PAGE, timeout=1):
            error, partition = message.error(), message.partition()
            if error is None and partition is not None:
                found[partition].append((message.key(), message.value()))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                raise KafkaException(error)
        if ends == PARTITIONS:
            break
    consumer.close()
    assert ends == PARTITIONS
    return found


def offsets_of(onlooker: Consumer, topic: str) -> Mapping[int, int]:
    """Committed offsets of a group; empty while the broker's coordinator is loading."""
    try:
        found = onlooker.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], WITHIN_S)
    except KafkaException as failed:
        if failed.args[0].code() not in BEGINS:
            raise
        return {}
    return {each.partition: each.offset for each in found}


class Job:
    """Two topics of a broker, and who copies."""

    def __init__(self, kafka: Kafka, name: str, folder: Path, records: int) -> None:
        self._kafka = kafka
        self._group = name
        self._logs = logs(folder)
        self._source, self._target = f"{name}-originals", f"{name}-copies"
        for topic in (self._source, self._target):
            kafka.create_topic(topic, partitions=PARTITIONS)
        self.source = fill(kafka.bootstrap, self._source, records)
        # Another isolation would wait for a moment in which no transaction is open, and there is hardly one.
        self._onlooker = Consumer(
            {**kafka.client_config(), "group.id": name, "isolation.level": "read_uncommitted"}
        )
        self._offsets = Rising(lambda: offsets_of(self._onlooker, self._source))
        self._copiers: list[Copier] = []

    def start(self, *flags: str, consumer: Settings) -> Copier:
        name = f"{self._group}-{len(self._copiers)}"
        run = command(
            *(self._kafka.bootstrap, self._source, self._target),
            consumer={"group_id": self._group, **consumer},
            producer={"transactional_id": name},
        )
        self._copiers.append(Copier(name, [*run, *flags], self._logs / f"{name}.log", self._offsets))
        return self._copiers[-1]

    def copies(self) -> Content:
        return content(self._kafka, self._target, "read_committed")

    def close(self) -> None:
        for copier in self._copiers:
            copier.process.kill()
        self._onlooker.close()


@pytest.mark.timeout(900)
@pytest.mark.soak("exactly-once")
def test_a_copy_is_equal_however_often_copiers_are_killed(
    kafka: Kafka, unique_name: str, tmp_path: Path, seed: int, in_soak: bool, counters: Counter[str]
) -> None:
    size = IN_SOAK if in_soak else SIZE
    with closing(Job(kafka, unique_name, tmp_path, size.records)) as job:
        copiers = [job.start(consumer=static(number)) for number in range(PARTITIONS)]
        kinds = [kill for copier in copiers for kill in (copier.kill, copier.kill_alone)]
        chance = random.Random(seed)
        kills = kill_while_copying(copiers, drawn(kinds, size.kills, chance), job.source.ends, chance)
        counters["kills of the copy on Kafka"] = kills

        assert differences(job.source.content, job.copies()) == []
        assert (sum(map(len, job.source.content.values())), kills) == size
        assert double_owners(tenure for copier in copiers for tenure in copier.tenures()) == []
        counters["records copied on Kafka"] = size.records


def test_the_next_owner_waits_for_the_transaction_of_one_who_has_left(
    kafka: Kafka, unique_name: str, tmp_path: Path
) -> None:
    """A broker asks for the generation when offsets come into a transaction, and not again at its end."""
    hangs = {"max_poll_interval_ms": 2_000}
    with closing(Job(kafka, unique_name, tmp_path, RECORDS_OF_A_FIGHT)) as job:
        first = job.start("--stop-at=offered", "--stop-after=3", consumer=hangs)
        first.wait_until_stopped()
        second = job.start(consumer=hangs)
        second.wait_until_owns()
        first.go_on()
        second.wait_until_done(job.source.ends)
        second.finish()
        first.finish()

        assert differences(job.source.content, job.copies()) == []


def test_who_has_left_brings_no_offsets_into_its_transaction(
    kafka: Kafka, unique_name: str, tmp_path: Path
) -> None:
    hangs = {"max_poll_interval_ms": 2_000}
    with closing(Job(kafka, unique_name, tmp_path, RECORDS_OF_A_FIGHT)) as job:
        first = job.start("--stop-at=produced", "--stop-after=3", consumer=hangs)
        first.wait_until_stopped()
        second = job.start(consumer=hangs)
        second.wait_until_owns()
        first.go_on()
        assert first.wait_for("refused").startswith("UNKNOWN_MEMBER_ID")
        second.wait_until_done(job.source.ends)
        second.finish()
        first.finish()

        assert differences(job.source.content, job.copies()) == []
