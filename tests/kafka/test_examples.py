"""The same manifests as on a laptop alone, and on a broker: `rota up --kafka`."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from typing_extensions import override

from tests.cli.command import Rota
from tests.examples import stories
from tests.examples.laptop import Laptop
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

PAGE = 10_000


class OnKafka(Laptop):
    """One example, with a broker that stands for Rota's servers."""

    def __init__(self, example: str, home: Path, partitions: int, kafka: Kafka) -> None:
        super().__init__(example, home, partitions, [f"--kafka={kafka.bootstrap}"])
        self._config = kafka.client_config()

    @override
    def values_in(self, topic: str, field: str) -> list[str]:
        """A field of all records that count, as far as the topic is there."""
        settings: dict[str, str | int | float | bool] = {
            "group.id": "onlooker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        consumer = Consumer({**self._config, **settings})
        try:
            if topic not in consumer.list_topics().topics:
                return []
            consumer.assign([TopicPartition(topic, number, 0) for number in range(self._partitions)])
            found: list[str] = []
            ends = 0
            while ends < self._partitions:
                for message in consumer.consume(PAGE, timeout=0.2):
                    error = message.error()
                    if error is None:
                        found.append(json.loads(message.value() or b"{}")[field])
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ends += 1
                    else:
                        raise KafkaException(error)
            return found
        finally:
            consumer.close()


def test_every_order_has_its_price_once(tmp_path: Path, kafka: Kafka) -> None:
    laptop = OnKafka("orders", tmp_path / ".rota", 12, kafka)
    stories.every_order_has_its_price_once(laptop)
    # The command line finds what `rota up` has written down, and nobody is in the group any more.
    rota = Rota("", tmp_path)
    lag = rota("groups", "lag", "shop.orders-enricher", environment={"ROTA_BOOTSTRAP_SERVERS": ""})
    assert "orders" in "".join(lag.lines)
    assert (tmp_path / ".rota" / "address").read_text() == f"kafka://{kafka.bootstrap}\n"
    checks = rota("doctor", "-o", "json", environment={"ROTA_BOOTSTRAP_SERVERS": ""}).data
    assert {each["what"]: each["says"] for each in checks}[
        "address"
    ] == f"{kafka.bootstrap}, from .rota/address"
    assert [each for each in checks if each["verdict"] != "ok"] == []


def test_every_payment_has_one_receipt_whoever_is_killed(tmp_path: Path, kafka: Kafka) -> None:
    laptop = OnKafka("exactly-once", tmp_path / ".rota", 6, kafka)
    stories.every_payment_has_one_receipt_whoever_is_killed(laptop)
