"""The sidecar as a process where Kafka has the records: coordinated by its brokers, or by Rota."""

from pathlib import Path

import pytest

from tests.support.coordinator import QUICK, serving
from tests.support.kafka import Kafka
from tests.support.sidecar import Sidecar, running, settle

pytestmark = pytest.mark.kafka
PARTITIONS = 6


def crash_and_share(tmp_path: Path, kafka: Kafka, topic: str, *flags: str) -> None:
    """A member that crashes goes on as itself beside another one, whom that costs nothing."""
    kafka.create_topic(topic, partitions=PARTITIONS)
    subscribed = [f"--topics={topic}", "--session-timeout-ms=60000", *flags]
    remembering = [*subscribed, f"--state-folder={tmp_path}/state"]
    crashes = Sidecar(tmp_path, kafka.bootstrap, topic, remembering, name="crashes")
    other = Sidecar(tmp_path, kafka.bootstrap, topic, subscribed, name="other")
    with running(crashes, other):
        had = crashes.wait_until_it_has(3)
        taken = other.wait_until_it_has(3)
        settle(crashes, other)
        assert crashes.commit(dict.fromkeys(had, 5)) == {}
        before, seen = crashes.events[-1], other.count("revoking")
        crashes.kill()
        crashes.start()
        assert crashes.wait_until_it_has(3) == had
        after = crashes.wait("joined")
        assert (after["member_id"], after["generation"], after["incarnation"]) == (
            before["member_id"],
            before["generation"],
            before["incarnation"],
        )
        assert crashes.fetch() == dict.fromkeys(had, 5)
        assert other.count("revoking") == seen
        assert other.terminate() == 0
        assert crashes.wait_until_it_has(PARTITIONS) == had | taken
        assert crashes.count("problem") == crashes.count("foreign_protocol") == 0
        assert crashes.terminate() == 0


def test_after_a_crash_a_member_on_kafka_goes_on_as_the_same_one(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    crash_and_share(tmp_path, kafka, unique_name)


def test_rota_coordinates_groups_that_read_from_kafka(tmp_path: Path, kafka: Kafka, unique_name: str) -> None:
    with serving(tmp_path, [*QUICK, "--no-log"]) as coordinator:
        address = f"--coordinator-address={coordinator.address}"
        crash_and_share(tmp_path, kafka, unique_name, "--coordination=rota", address)
