"""The examples of threads keep order per partition and commit what is done, and only that."""

import runpy
import threading
from typing import Any

import pytest

import rota
from rota.testing import Group
from tests.support.tree import REPO

FOLDER = REPO / "examples" / "threading"
WAIT_S = 10
RECORDS = 300


@pytest.fixture
def group() -> Group:
    made = Group(partitions=3)
    for number in range(RECORDS):
        made.send("orders", b"%d" % number, partition=number % 3)
    return made


class Work:
    """Remembers the offsets of each partition, in the order in which they were worked on."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = {}
        self.done = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, record: rota.Record) -> None:
        with self._lock:
            self.seen.setdefault(record.partition, []).append(record.offset)
            if sum(map(len, self.seen.values())) >= RECORDS:
                self.done.set()


def everything() -> dict[int, list[int]]:
    return {partition: list(range(RECORDS // 3)) for partition in range(3)}


def committed_everything() -> dict[rota.TopicPartition, int]:
    return {rota.TopicPartition("orders", partition): RECORDS // 3 for partition in range(3)}


def test_a_consumer_of_its_own_for_each_thread(group: Group) -> None:
    example: dict[str, Any] = runpy.run_path(str(FOLDER / "one_consumer_per_thread.py"))
    work = Work()
    worker = example["Worker"](work, lambda: group.consumer("orders"))
    worker.start()
    assert work.done.wait(WAIT_S)
    worker.stop()
    worker.join()
    assert work.seen == everything()
    assert group.committed == committed_everything()


def test_workers_keep_the_order_of_each_partition_and_commit_what_is_done(group: Group) -> None:
    example: dict[str, Any] = runpy.run_path(str(FOLDER / "workers.py"))
    work = Work()
    consumer = group.consumer(enable_auto_commit=False, max_poll_records=20)
    crew = example["Crew"](consumer, work, workers=3)
    consumer.subscribe("orders", listener=crew)
    while not work.done.is_set():
        crew.poll(timeout_ms=10)
    crew.close()
    assert work.seen == everything()
    assert group.committed == committed_everything()
    consumer.close()


def test_workers_finish_a_partition_before_it_goes(group: Group) -> None:
    example: dict[str, Any] = runpy.run_path(str(FOLDER / "workers.py"))
    begun, go_on = threading.Event(), threading.Event()

    def work(record: rota.Record) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    partition = rota.TopicPartition("orders", 0)
    consumer = group.consumer(enable_auto_commit=False, max_poll_records=5)
    crew = example["Crew"](consumer, work, workers=3)
    consumer.subscribe("orders", listener=crew)
    while not begun.is_set() or partition not in consumer.paused():
        crew.poll(timeout_ms=100)
    group.take_away(partition)
    threading.Timer(0.05, go_on.set).start()
    while partition in consumer.assignment():
        crew.poll(timeout_ms=10)
    assert group.committed[partition] == 5
    crew.close()
    consumer.close()
