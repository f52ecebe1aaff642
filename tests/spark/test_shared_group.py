"""Two Spark applications on a standalone cluster and plain consumers share a group, while members and servers are killed."""

import os
import random
import signal
from collections import Counter
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import pytest

from tests.spark import outputs
from tests.spark.shared_group import OnKafka, OnRota, Servers, SharedGroup, kill_an_executor
from tests.support.coordinator import serving
from tests.support.kafka import MORTAL
from tests.support.kafka.fixtures import StartKafka
from tests.support.processes import Process
from tests.support.spark import Spark

# Ten seconds for each driver that starts: for the tier `spark` it takes too long.
pytestmark = [pytest.mark.spark, pytest.mark.soak("spark-group-kills", only=True), pytest.mark.timeout(1_200)]

PARTITIONS = 8
# Records that come to each partition at a time.
RECORDS = 500


class Happening(StrEnum):
    """Something that happens to the group, by the name under which it is counted."""

    DRIVER = "drivers killed"
    EXECUTOR = "executors killed"
    COORDINATOR = "coordinators killed"
    JOIN = "members joined"


class Story:
    """The members that run, and what happens to them. Invariant: each process in `running` is a member of the group."""

    def __init__(self, group: SharedGroup, spark: Spark, draw: random.Random) -> None:
        self._group = group
        self._spark = spark
        self._draw = draw
        self._applications = dict(group.application() for _ in range(2))
        self._consumers = dict([group.consumer()])
        group.wait_for_members(3, *self.running)

    @property
    def running(self) -> list[Process]:
        """All members."""
        return [*self._applications.values(), *self._consumers.values()]

    @property
    def writers(self) -> set[str]:
        """Names of all members."""
        return {*self._applications, *self._consumers}

    def happen(self, what: Happening) -> None:
        """Let something happen while records are processed, and wait until all of them are."""
        before = self._group.records
        self._group.append(RECORDS)
        part = self._draw.randrange(1, RECORDS * PARTITIONS // 2)
        self._group.wait_until_stored(before + part, *self.running)
        match what:
            case Happening.DRIVER:
                self._kill_driver()
            case Happening.EXECUTOR:
                kill_an_executor(self._spark, self._draw)
            case Happening.COORDINATOR:
                self._group.servers.restart()
            case Happening.JOIN:
                self._consumers |= dict([self._group.consumer()])
            case _:
                assert_never(what)
        self._group.wait_until_all_is_stored(*self.running)
        self._group.wait_for_members(len(self.running), *self.running)

    def _kill_driver(self) -> None:
        """Kill a driver and its Java; its sidecar has a session of its own, and notices."""
        killed = self._draw.choice(sorted(self._applications))
        process = self._applications.pop(killed)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(within_s=60)
        self._applications |= dict([self._group.application()])


def test_each_record_is_processed_once_and_in_order_whoever_is_killed(
    spark: Spark,
    database: str,
    tmp_path: Path,
    seed: int,
    counters: Counter[str],
    start_kafka: StartKafka,
) -> None:
    draw = random.Random(seed)
    kind = "Kafka" if seed % 2 else "Rota"
    with ExitStack() as running:
        servers: Servers = (
            OnKafka(start_kafka(settings=MORTAL))
            if kind == "Kafka"
            else OnRota(running.enter_context(serving(tmp_path)))
        )
        group = SharedGroup(servers, spark, database, tmp_path)
        group.prepare(PARTITIONS)
        story = Story(group, spark, draw)
        for each in draw.sample(list(Happening), len(Happening)):
            story.happen(each)
            counters[f"{each} on {kind}"] += 1
        group.append(RECORDS)
        group.wait_until_all_is_stored(*story.running)
        group.check()
        # Members of every kind, and the one that joined in mid-stream, have partitions of their own.
        assert outputs.writers(database).keys() >= story.writers
        for process in story.running:
            process.stop()
    counters["records of shared groups"] += group.records
