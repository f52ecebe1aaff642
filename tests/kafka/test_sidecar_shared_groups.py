"""A group of sidecars as Kafka's own tools see it, and shared with other clients, with either as the leader."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.kafka import Kafka
from tests.support.kafka.consumers import Partition, console, newer, plain, wait_for_shares
from tests.support.kafka.tools import describe_group
from tests.support.sidecar import Sidecar, running, settle

pytestmark = pytest.mark.kafka

PARTITIONS = 6
HALF = PARTITIONS // 2
RECORDS = 4
TIMEOUT_S = 60
STRATEGIES = ("range", "cooperative-sticky")
LEADERS = ("sidecar", "plain", "console-consumer")


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    """One for each test; its group has the same name."""
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    return unique_name


def sidecar(kafka: Kafka, folder: Path, topic: str, *more: str, name: str = "sidecar") -> Sidecar:
    """One whose client id is its name."""
    flags = (f"--topics={topic}", f"--client-id={name}", "--heartbeat-interval-ms=300", *more)
    return Sidecar(folder, kafka.bootstrap, topic, flags, name=name)


def test_kafkas_own_tool_shows_members_assignment_lag_and_state(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    producer = Producer(kafka.client_config())
    for partition in range(PARTITIONS):
        for _ in range(RECORDS):
            producer.produce(topic, b"record", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    first, second = (sidecar(kafka, tmp_path, topic, name=name) for name in ("orders-a", "orders-b"))
    with running(first, second):
        shares = wait_for_shares(kafka, topic, {"orders-a": HALF, "orders-b": HALF})
        held = {"orders-a": first.wait_until_it_has(HALF), "orders-b": second.wait_until_it_has(HALF)}
        assert held == shares
        settle(first, second)
        for each in (first, second):
            assert each.commit({partition: partition[1] % RECORDS for partition in each.partitions}) == {}

        offsets = describe_group(kafka, topic)
        assert {(row["CLIENT-ID"], row["TOPIC"], int(row["PARTITION"])) for row in offsets} == {
            (name, *partition) for name, partitions in shares.items() for partition in partitions
        }
        for row in offsets:
            committed = int(row["PARTITION"]) % RECORDS
            assert (int(row["CURRENT-OFFSET"]), int(row["LAG"])) == (committed, RECORDS - committed)
            assert row["HOST"] == "/127.0.0.1"

        members = {row["CLIENT-ID"]: row for row in describe_group(kafka, topic, "--members", "--verbose")}
        for name, partitions in shares.items():
            numbers = ",".join(str(number) for _, number in sorted(partitions))
            assert members[name]["CURRENT-ASSIGNMENT"] == f"{topic}:{numbers}"
            assert members[name]["#PARTITIONS"] == str(HALF)
            assert members[name]["CONSUMER-ID"].startswith(f"{name}-")

        (state,) = describe_group(kafka, topic, "--state")
        assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == (
            "cooperative-sticky",
            "Stable",
            "2",
        )


@pytest.mark.parametrize("leader", LEADERS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_is_shared_with_other_clients_whoever_leads(
    kafka: Kafka, topic: str, tmp_path: Path, strategy: str, leader: str
) -> None:
    ours = sidecar(kafka, tmp_path, topic, f"--assignors={strategy}")
    begin: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
        "sidecar": lambda: running(ours),
        "plain": lambda: plain(kafka, topic, topic, strategy),
        "console-consumer": lambda: console(kafka, topic, topic, strategy, tmp_path / "console.log"),
    }
    # The first one of a group leads it.
    ordered = sorted(begin, key=lambda name: name != leader)
    shares: Mapping[str, set[Partition]] = {}
    with ExitStack() as members:
        for count, name in enumerate(ordered, 1):
            members.enter_context(begin[name]())
            shares = wait_for_shares(kafka, topic, dict.fromkeys(ordered[:count], PARTITIONS // count))
            assert set().union(*shares.values()) == {(topic, number) for number in range(PARTITIONS)}
        assert ours.wait_until_it_has(PARTITIONS // len(ordered)) == shares["sidecar"]
        joined = [event for event in ours.events if event["event"] == "joined"]
        assert {(event["assignor"], event["leads"]) for event in joined} == {(strategy, leader == "sidecar")}


def test_a_cooperative_member_keeps_what_it_has_when_another_client_comes_and_goes(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    ours = sidecar(kafka, tmp_path, topic)
    with running(ours):
        ours.wait_until_it_has(PARTITIONS)
        with plain(kafka, topic, topic, "cooperative-sticky") as other:
            kept, moved = ours.wait_until_it_has(HALF), other.wait_until_it_has(HALF)
            assert not kept & moved
        ours.wait_until_it_has(PARTITIONS)
        given_up = [event["partitions"] for event in ours.events if event["event"] == "revoked"]
        assert given_up == [{topic: sorted(number for _, number in moved)}]
        assert ours.count("lost") == 0


def test_a_static_member_that_was_replaced_learns_it_and_stays_away(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    # It keeps the client id of the one before.
    instance = ("--group-instance-id=orders-0", "--client-id=orders")
    first, second = (sidecar(kafka, tmp_path, topic, *instance, name=name) for name in ("before", "after"))
    with running(first):
        first.wait_until_it_has(PARTITIONS)
        with running(second):
            second.wait_until_it_has(PARTITIONS)
            assert first.wait_for_exit() == 1
            assert "FENCED_INSTANCE_ID" in first.wait("stopped")["reason"]
            assert first.partitions == set()
            wait_for_shares(kafka, topic, {"orders": PARTITIONS})
            assert second.commit(dict.fromkeys(second.partitions, 0)) == {}
            assert second.count("revoking") == second.count("lost") == 0


def test_a_group_that_a_newer_consumer_converts_is_reported_and_shared(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    # A leader that is no sidecar, and writes nothing beside the partitions: librdkafka's hands each member's own data back.
    leader = console(kafka, topic, topic, "cooperative-sticky", tmp_path / "console.log")
    ours = sidecar(kafka, tmp_path, topic)
    with leader:
        wait_for_shares(kafka, topic, {"console-consumer": PARTITIONS})
        with running(ours):
            ours.wait_until_it_has(HALF)
            with newer(kafka, topic, topic):
                assert ours.wait("foreign_protocol")["type"] == "consumer"
                names = ("console-consumer", "sidecar", "newer")
                shares = wait_for_shares(kafka, topic, dict.fromkeys(names, PARTITIONS // len(names)))
                assert ours.wait_until_it_has(2) == shares["sidecar"]
            # It has left, and the group is a classic one again.
            shares = wait_for_shares(kafka, topic, {"console-consumer": HALF, "sidecar": HALF})
            assert ours.wait_until_it_has(HALF) == shares["sidecar"]


def test_a_group_that_a_sidecar_leads_is_not_converted(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    ours = sidecar(kafka, tmp_path, topic)
    with running(ours):
        ours.wait_until_it_has(PARTITIONS)
        with newer(kafka, topic, topic) as other:
            assert "The group id does not exist" in other.wait_until_it_fails()
        assert len(ours.partitions) == PARTITIONS
        assert ours.count("foreign_protocol") == 0
