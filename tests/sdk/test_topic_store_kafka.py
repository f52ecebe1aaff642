"""Local state in a compacted topic of a real Kafka broker."""

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from rota.stores import OwnerReplaced, StoreFenced, TopicStore
from tests.sdk.databases import P0, member
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

WITHIN_S = 30


def test_state_moves_to_the_next_owner_and_late_ones_are_fenced(kafka: Kafka, unique_name: str) -> None:
    first, second = (TopicStore(kafka.bootstrap, unique_name, chunk_bytes=50) for _ in range(2))
    with first, second:
        first.create_topic(1)
        second.create_topic(1)
        wanted = ConfigResource(ResourceType.TOPIC, unique_name)
        # Its futures fail once the client is gone.
        admin = AdminClient(kafka.client_config())
        (config,) = admin.describe_configs([wanted]).values()
        assert config.result(WITHIN_S)["cleanup.policy"].value == "compact"

        tenure = first.assign(member(1), [P0])
        assert (first.restore(tenure, P0), tenure.positions) == ({}, {P0: None})
        state = {b"%d" % number: bytes(number * 30) for number in range(8)}
        with first.transaction(tenure, P0) as tx:
            tx.put(state)
            tx.save(1)
        with first.transaction(tenure, P0) as tx:
            tx.put({b"7": b"short", b"0": None})
            tx.save(2)
        later = second.assign(member(2), [P0])
        expected = {**state, b"7": b"short"}
        del expected[b"0"]
        assert (second.restore(later, P0), later.positions) == (expected, {P0: 2})

        with pytest.raises(OwnerReplaced), first.transaction(tenure, P0) as tx:
            tx.put({b"1": b"late"})
        with pytest.raises(StoreFenced) as fenced:
            first.assign(member(1), [P0])
        assert fenced.value.generation == 2
        again = second.assign(member(2), [P0])
        assert second.restore(again, P0) == expected
