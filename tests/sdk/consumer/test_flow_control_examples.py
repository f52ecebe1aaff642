"""The examples of flow control: a topic that lags is read alone until it has caught up, and topics are read by priority."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import Group
from tests.support.coordinator import serving
from tests.support.processes import Process
from tests.support.tree import REPO

FOLDER = REPO / "examples" / "flow-control"
WAIT_MS = 60_000
WITHIN_S = 90


@pytest.fixture
def group() -> Iterator[Group]:
    with Group(partitions=2) as made:
        yield made


def send(group: Group, topic: str, count: int) -> None:
    for _ in range(count):
        group.send(topic, b"")


def catching_up(group: Group, **limits: int) -> tuple[rota.Consumer, Any]:
    """A consumer of payments and clicks, and the example around it."""
    consumer = group.consumer(max_poll_records=10)
    catch_up = runpy.run_path(str(FOLDER / "catch_up.py"))["CatchUp"](consumer, "payments", **limits)
    consumer.subscribe(["payments", "clicks"], listener=catch_up)
    return consumer, catch_up


def read_by_catch_up(catch_up: Any, count: int) -> list[str]:  # noqa: ANN401  the example's class
    """Topics of so many records or more, in the order in which they are returned."""
    topics: list[str] = []
    while len(topics) < count:
        polled = catch_up.poll(WAIT_MS)
        assert polled
        topics += [partition.topic for partition, records in polled.items() for _ in records]
    return topics


def test_the_other_topics_are_paused_until_the_one_that_lags_has_caught_up(group: Group) -> None:
    send(group, "clicks", 30)
    send(group, "payments", 100)
    consumer, catch_up = catching_up(group, lag_max=50)
    assert read_by_catch_up(catch_up, 130) == ["payments"] * 100 + ["clicks"] * 30
    assert (consumer.paused(), catch_up.is_behind) == (set(), False)
    assert len(consumer.assignment()) == 4


def test_a_topic_that_lags_again_is_read_alone_again(group: Group) -> None:
    send(group, "clicks", 40)
    send(group, "payments", 1)
    consumer, catch_up = catching_up(group, lag_max=50)
    first = read_by_catch_up(catch_up, 10)
    send(group, "payments", 60)
    assert set(read_by_catch_up(catch_up, 61 - first.count("payments"))) == {"payments"}
    assert {each.topic for each in consumer.paused()} == {"clicks"}
    assert set(read_by_catch_up(catch_up, 40 - first.count("clicks"))) == {"clicks"}


def test_a_small_lag_pauses_nothing(group: Group) -> None:
    send(group, "payments", 50)
    send(group, "clicks", 10)
    consumer, catch_up = catching_up(group, lag_max=50)
    while len(consumer.assignment()) < 4:
        catch_up.poll(WAIT_MS)
    assert (consumer.paused(), catch_up.is_behind) == (set(), False)


def test_partitions_that_come_back_while_the_topic_lags_are_paused_too(group: Group) -> None:
    send(group, "clicks", 10)
    send(group, "payments", 100)
    consumer, catch_up = catching_up(group, lag_max=50)
    read_by_catch_up(catch_up, 1)
    clicks = rota.TopicPartition("clicks", 0)
    group.take_away(clicks)
    while clicks in consumer.assignment():
        catch_up.poll(0)
    group.give_back(clicks)
    while clicks not in consumer.assignment():
        catch_up.poll(0)
    assert clicks in consumer.paused()


def prioritized(group: Group) -> Any:  # noqa: ANN401  the example's class
    topics = ["alarms", "orders", "reports"]
    consumer = group.consumer(max_poll_records=10)
    priorities = runpy.run_path(str(FOLDER / "priorities.py"))["Priorities"](consumer, topics)
    for topic in topics:
        group.create_topic(topic, 2)
    consumer.subscribe(topics, listener=priorities)
    return priorities


def read_by_priority(priorities: Any, count: int) -> list[str]:  # noqa: ANN401  the example's class
    topics: list[str] = []
    while len(topics) < count:
        topics += [record.topic for record in priorities.poll(WAIT_MS)]
    return topics


def test_topics_are_read_in_the_order_of_their_priority(group: Group) -> None:
    for topic in ("reports", "orders", "alarms"):
        send(group, topic, 25)
    priorities = prioritized(group)
    expected = ["alarms"] * 25 + ["orders"] * 25 + ["reports"] * 25
    assert read_by_priority(priorities, 75) == expected


def test_an_urgent_record_waits_for_one_poll_at_most(group: Group) -> None:
    send(group, "reports", 50)
    priorities = prioritized(group)
    assert set(read_by_priority(priorities, 10)) == {"reports"}
    send(group, "alarms", 3)
    assert read_by_priority(priorities, 3) == ["alarms"] * 3
    send(group, "orders", 2)
    send(group, "alarms", 2)
    assert read_by_priority(priorities, 4) == ["alarms"] * 2 + ["orders"] * 2
    assert set(read_by_priority(priorities, 40)) == {"reports"}


@pytest.mark.process
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("example", "order"),
    [("catch_up", ["payments", "clicks"]), ("priorities", ["alarms", "orders", "reports"])],
)
def test_the_example_reads_a_real_log_in_its_order(example: str, order: list[str], tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        server = f"rota://{coordinator.address}"
        rota.create_topics(server, dict.fromkeys(order, 3))
        with rota.Producer(server) as producer:
            for topic in reversed(order):
                producer.send_many(topic, [b""] * 300, [b"%d" % number for number in range(300)]).result(30)
        log = tmp_path / "example.log"
        process = Process.start(example, [sys.executable, str(FOLDER / f"{example}.py"), server], log=log)
        process.wait_until(lambda: len(log.read_text().splitlines()) >= 300 * len(order), within_s=WITHIN_S)
        process.stop()
        assert process.exit_code == 0
        read = [line.split()[0] for line in log.read_text().splitlines()]
        assert read == [topic for topic in order for _ in range(300)]
