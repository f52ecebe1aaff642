"""A group of Spark applications and plain consumers on Rota or on Kafka, whose members and coordinator a test kills."""

import os
import random
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark import outputs
from tests.support.coordinator import Coordinator
from tests.support.kafka import Kafka
from tests.support.processes import Process, wait_for
from tests.support.records import batch, committed, produce
from tests.support.spark import Spark
from tests.support.tree import REPO, python_path

JOBS = Path(__file__).with_name("jobs")
WITHIN_S = 300
# Of a broker that is asked for the members.
ANSWER_S = 5
# A look at the database is a new connection.
POLL_S = 0.2
# Answers about a group while its broker starts, or makes the topic of the groups; librdkafka asks again by itself for some.
NO_MEMBERS_YET = (
    KafkaError._TIMED_OUT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.NOT_COORDINATOR,
)


class Servers(Protocol):
    """The servers of a group: they have its records, and coordinate it."""

    # As applications name them.
    address: str

    def make_topic(self, name: str, partitions: int) -> None: ...

    def append(self, topic: str, partition: int, values: Sequence[str]) -> None: ...

    def restart(self) -> None:
        """Kill what coordinates the group, and start it again in the same place."""
        ...

    def members_of(self, group: str) -> int: ...

    def committed(self, group: str, partitions: int) -> Mapping[tuple[str, int], int]:
        """Offsets of the group that is named like its topic."""
        ...


class OnRota:
    """Records in the embedded log."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.address = f"rota://{coordinator.address}"

    def make_topic(self, name: str, partitions: int) -> None:
        """Make an empty topic."""
        self._coordinator.make_topic(name, partitions)

    def append(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Append records."""
        produce(self._coordinator.address, topic, partition, batch(values))

    def restart(self) -> None:
        """Kill the coordinator, which has the log too."""
        port = self._coordinator.address.rpartition(":")[2]
        self._coordinator.kill()
        self._coordinator.start(f"--listen=127.0.0.1:{port}")

    def members_of(self, group: str) -> int:
        """Number of members."""
        return self._coordinator.members_of(group)

    def committed(self, group: str, partitions: int) -> Mapping[tuple[str, int], int]:
        """Offsets of the group."""
        return committed(self._coordinator.address, group)


class OnKafka:
    """Records on a broker of one's own."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.address = kafka.bootstrap

    def make_topic(self, name: str, partitions: int) -> None:
        """Make an empty topic."""
        self._kafka.create_topic(name, partitions=partitions)

    def append(self, topic: str, partition: int, values: Sequence[str]) -> None:
        """Append records, each once."""
        producer = Producer({**self._kafka.client_config(), "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(WITHIN_S) == 0

    def restart(self) -> None:
        """Kill the broker."""
        self._kafka.broker(1).kill()
        self._kafka.broker(1).start()

    def members_of(self, group: str) -> int:
        """Number of members."""
        # A client that has asked before the broker was killed is not answered afterwards.
        admin = AdminClient(self._kafka.client_config())
        asked = admin.describe_consumer_groups([group], request_timeout=ANSWER_S)
        try:
            return len(asked[group].result(WITHIN_S).members)
        except KafkaException as error:
            if error.args[0].code() not in NO_MEMBERS_YET:
                raise
            return 0

    def committed(self, group: str, partitions: int) -> Mapping[tuple[str, int], int]:
        """Offsets of the group."""
        with closing(Consumer({**self._kafka.client_config(), "group.id": group})) as consumer:
            wanted = [TopicPartition(group, number) for number in range(partitions)]
            found = consumer.committed(wanted, WITHIN_S)
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


class SharedGroup:
    """The members that the test has started, and what they have to process. Group and topic have one name."""

    def __init__(self, servers: Servers, spark: Spark, dsn: str, folder: Path) -> None:
        self.servers = servers
        self.dsn = dsn
        self.name = "shared"
        self._spark = spark
        self._folder = folder
        # Of executors too.
        self._database_file = folder / "database"
        self._database_file.write_text(dsn)
        self._lives = 0
        self._partitions = 0
        self._amounts: list[int] = []

    def prepare(self, partitions: int) -> None:
        """Make the empty topic, and the empty tables."""
        self._partitions = partitions
        self.servers.make_topic(self.name, partitions)
        outputs.create_tables(self.dsn)

    def application(self, *, executors: int = 1) -> tuple[str, Process]:
        """Start a Spark application; gives the name under which it writes."""
        writer = self._next_writer("application")
        return writer, self._spark.submit(
            JOBS / "shared_application.py",
            *self._arguments(writer),
            settings={"spark.cores.max": str(executors)},
        )

    def consumer(self) -> tuple[str, Process]:
        """Start a plain consumer."""
        writer = self._next_writer("consumer")
        command = [sys.executable, "-m", "tests.spark.jobs.shared_consumer", *self._arguments(writer)]
        log = self._folder / f"{writer}.log"
        environment = {"PYTHONPATH": python_path()}
        return writer, Process.start(writer, command, log=log, cwd=REPO, env=environment)

    def append(self, records: int) -> None:
        """Append so many records to each partition."""
        for partition in range(self._partitions):
            first = len(self._amounts)
            amounts = range(first, first + records)
            self._amounts += amounts
            self.servers.append(self.name, partition, [str(each) for each in amounts])

    def wait_for_members(self, number: int, *processes: Process) -> None:
        """Return when the group has so many members; raise when one of the processes has ended."""
        self._wait(f"{number} members", lambda: self.servers.members_of(self.name) == number, processes)

    def wait_until_stored(self, records: int, *processes: Process) -> None:
        """Return when so many records are processed."""
        self._wait(f"{records} records are stored", lambda: outputs.stored(self.dsn) >= records, processes)

    def wait_until_all_is_stored(self, *processes: Process) -> None:
        """Return when all records are processed."""
        self.wait_until_stored(self.records, *processes)

    @property
    def records(self) -> int:
        """Number of records so far."""
        return len(self._amounts)

    def check(self) -> None:
        """Each record has one output, in the order of its partition; totals and offsets are those of all records."""
        each_has = self.records // self._partitions
        for partition in range(self._partitions):
            assert outputs.offsets_of(self.dsn, partition) == [*range(each_has)]
        totals: dict[str, int] = {}
        for amount in self._amounts:
            totals[outputs.name_of(amount)] = totals.get(outputs.name_of(amount), 0) + amount
        assert dict(outputs.rows_in(self.dsn, "SELECT name, amount FROM totals")) == totals
        ends = {(self.name, partition): each_has for partition in range(self._partitions)}
        assert outputs.positions(self.dsn) == ends
        wait_for(
            "the group's offsets follow those of the store",
            lambda: self.servers.committed(self.name, self._partitions) == ends,
            within_s=WITHIN_S,
        )

    def _wait(self, what: str, holds: Callable[[], bool], processes: Sequence[Process]) -> None:
        def holds_while_they_run() -> bool:
            for each in processes:
                each.check_running()
            return holds()

        wait_for(what, holds_while_they_run, within_s=WITHIN_S, poll_s=POLL_S)

    def _next_writer(self, kind: str) -> str:
        self._lives += 1
        return f"{kind}-{self._lives}"

    def _arguments(self, writer: str) -> list[str]:
        return [self.servers.address, self.name, str(self._database_file), writer]


def kill_an_executor(spark: Spark, draw: random.Random) -> None:
    """Kill an executor of the cluster, and wait until another one has its place."""
    executors = spark.executors
    killed = draw.choice(executors)
    os.kill(killed, signal.SIGKILL)
    wait_for(
        "the cluster has another executor",
        lambda: len({*spark.executors} - {killed}) >= len(executors),
        within_s=120,
    )
