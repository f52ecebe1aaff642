"""`rota topics`, `produce` and `consume` on a real Kafka broker."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.cli.command import Rota
from tests.support.kafka import Kafka
from tests.support.ports import free_port

pytestmark = pytest.mark.kafka

WITHIN_S = 60


@pytest.fixture
def rota(kafka: Kafka, tmp_path: Path) -> Rota:
    return Rota(f"kafka://{kafka.bootstrap}", tmp_path)


def test_a_topic_is_made_listed_described_and_deleted(rota: Rota, unique_name: str) -> None:
    made = rota("topics", "create", unique_name, "-p", "3", "--retention", "7d")
    assert made.lines == [f"created topic {unique_name} with 3 partitions"]
    assert rota("topics", "create", unique_name).code == 1
    unknown = dict.fromkeys(("retention_ms", "retention_bytes", "cleanup_policy", "delete_retention_ms"))
    assert {"topic": unique_name, "partitions": 3, **unknown} in rota("topics", "list", "-o", "json").data
    rota("produce", unique_name, "--partition", "1", stdin="a\nb\n")
    rows = [line.split() for line in rota("topics", "describe", unique_name).lines]
    assert rows[1:] == [
        [unique_name, "0", "0", "0", "0"],
        [unique_name, "1", "0", "2", "2"],
        [unique_name, "2", "0", "0", "0"],
    ]
    assert rota("topics", "delete", unique_name, "not-there", "--yes").code == 4
    assert rota("topics", "delete", unique_name, "--yes").lines == [f"deleted {unique_name}"]


def test_partitions_are_added_and_retention_is_altered(rota: Rota, kafka: Kafka, unique_name: str) -> None:
    rota("topics", "create", unique_name, "-p", "2", "--retention-bytes", "64MiB")
    rota("produce", unique_name, "--partition", "1", stdin="a\nb\n")
    grown = rota("topics", "add-partitions", unique_name, "--partitions", "3")
    assert grown.lines == [f"topic {unique_name} has 3 partitions"]
    assert [each["end"] for each in rota("topics", "describe", unique_name, "-o", "json").data] == [0, 2, 0]
    assert "must be at least 4" in rota("topics", "add-partitions", unique_name, "--partitions", "2").error
    altered = rota("topics", "alter", unique_name, "--retention", "12h")
    assert altered.lines == [f"altered topic {unique_name}: retention 12h"]
    wanted = ConfigResource(ResourceType.TOPIC, unique_name)
    # Kept: it fails what it has not answered when it is gone.
    admin = AdminClient(kafka.client_config())
    (config,) = admin.describe_configs([wanted]).values()
    found = {name: config.result(WITHIN_S)[name].value for name in ("retention.ms", "retention.bytes")}
    assert found == {"retention.ms": "43200000", "retention.bytes": str(64 << 20)}
    assert rota("topics", "alter", "not-there", "--retention", "12h").code == 4


def test_records_before_an_offset_are_deleted_when_that_is_meant(rota: Rota, unique_name: str) -> None:
    rota("topics", "create", unique_name, "-p", "2")
    rota("produce", unique_name, "--partition", "1", stdin="a\nb\nc\n")
    before = ("topics", "delete-records", unique_name, "--partition", "1", "--before")
    assert f"offsets 0 to 1 of {unique_name}[1] would be deleted" in rota(*before, "2").error
    assert f"{unique_name}[1] ends at offset 3" in rota(*before, "4", "--yes").error
    missing = rota("topics", "delete-records", unique_name, "--partition", "2", "--before", "1", "--yes")
    assert "has no partition 2 (it has 2)" in missing.error
    for _ in range(2):
        assert rota(*before, "2", "--yes").lines == [f"{unique_name}[1] starts at offset 2"]
    assert rota("consume", unique_name, "--from-beginning", "--value-only").lines == ["c"]


def test_what_is_produced_is_consumed_up_to_the_end(rota: Rota, kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name, partitions=2)
    assert rota("produce", unique_name, "--key-separator", ":", stdin="a:1\nb:2\nc:3\n").code == 0
    records = [
        json.loads(line) for line in rota("consume", unique_name, "--from-beginning", "-o", "json").lines
    ]
    assert sorted((each["key"], each["value"]) for each in records) == [("a", "1"), ("b", "2"), ("c", "3")]
    assert (
        len(rota("consume", unique_name, "--from-beginning", "--value-only", "--max-records", "2").lines) == 2
    )


def test_each_record_has_all_headers_in_their_order(rota: Rota, unique_name: str) -> None:
    rota("topics", "create", unique_name)
    assert rota("produce", unique_name, "--header", "a=1", "--header", "a=2", stdin="x\n").code == 0
    (line,) = rota("consume", unique_name, "--from-beginning", "-o", "json").lines
    assert json.loads(line)["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]


def test_a_transaction_at_the_end_is_no_reason_to_wait(rota: Rota, kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name)
    producer = Producer({**kafka.client_config(), "transactional.id": unique_name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(unique_name, value=b"counts", headers={"kind": b"x"})
    producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(unique_name, value=b"does not")
    producer.flush()
    producer.abort_transaction()
    committed = rota("consume", unique_name, "--from-beginning", "--read-committed", "-o", "json")
    (record,) = (json.loads(line) for line in committed.lines)
    assert (record["value"], record["headers"]) == ("counts", [{"name": "kind", "value": "x"}])


def test_a_broker_that_is_not_there_is_code_3_at_once(rota: Rota) -> None:
    done = rota("topics", "list", "-b", f"127.0.0.1:{free_port()}")
    assert (done.code, "check the address and that Kafka is running" in done.error) == (3, True)


def test_a_doctor_finds_nothing_wrong_with_a_broker(rota: Rota) -> None:
    done = rota("doctor")
    assert done.code == 0
    assert [line.split()[:2] for line in done.lines if " coordinator " in line] == [["ok", "coordinator"]]
