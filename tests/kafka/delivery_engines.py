"""Engines of the delivery rounds whose records are Kafka's: coordinated by its brokers, and by Rota."""

from collections.abc import Mapping, Sequence

import grpc
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from typing_extensions import override

from tests.sidecar.delivery.rounds.engine import Engine, Position, committed_at
from tests.support.coordinator import Coordinator
from tests.support.kafka import Kafka

WITHIN_S = 60


class KafkaEngine(Engine):
    """One broker."""

    def __init__(self, kafka: Kafka) -> None:
        self.servers = kafka.bootstrap
        self._kafka = kafka
        self._producer = Producer({**kafka.client_config(), "linger.ms": 0})
        self._members: dict[str, Consumer] = {}
        # By topic.
        self._partitions: dict[str, int] = {}

    @override
    def make_topic(self, name: str, partitions: int) -> None:
        self._kafka.create_topic(name, partitions=partitions)
        self._partitions[name] = partitions

    @override
    def produce(self, topic: str, values: Mapping[int, Sequence[str]]) -> Mapping[Position, str]:
        made: dict[Position, str] = {}

        def acknowledge(error: KafkaError | None, message: Message) -> None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert error is None, error
            assert partition is not None
            assert offset is not None
            assert value is not None
            made[Position(partition, offset)] = value.decode()

        for partition, texts in values.items():
            for text in texts:
                self._producer.produce(topic, text.encode(), partition=partition, on_delivery=acknowledge)
        assert self._producer.flush(WITHIN_S) == 0
        return made

    @override
    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        if group not in self._members:
            self._members[group] = Consumer({**self._kafka.client_config(), "group.id": group})
        wanted = [TopicPartition(topic, partition) for partition in range(self._partitions[topic])]
        found = self._members[group].committed(wanted, timeout=WITHIN_S)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    @override
    def values_in(self, topic: str) -> Sequence[str]:
        consumer = Consumer({**self._kafka.client_config(), "group.id": f"{topic}-reader"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_S)
            consumer.assign([TopicPartition(topic, 0, 0)])
            messages = consumer.consume(end, timeout=WITHIN_S)
            return [(message.value() or b"").decode() for message in messages]
        finally:
            consumer.close()

    def close(self) -> None:
        """Close the connections; no call follows."""
        for consumer in self._members.values():
            consumer.close()
        # Without one that refers to it, librdkafka ends it: it would complain of a broker that ends.
        del self._producer


class SharedEngine(KafkaEngine):
    """The same broker; groups and what they commit are Rota's."""

    def __init__(self, kafka: Kafka, coordinator: Coordinator) -> None:
        super().__init__(kafka)
        self.flags = ("--coordination=rota", f"--coordinator-address={coordinator.address}")
        self._channel = grpc.insecure_channel(coordinator.address)

    @override
    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        return committed_at(self._channel, group, topic)

    @override
    def close(self) -> None:
        super().close()
        self._channel.close()
