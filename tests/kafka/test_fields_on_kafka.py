"""Effects of those fields of a ConsumerGroup that concern Kafka, on a group that runs on a laptop."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.operator.local.groups import ROTA, WITHIN_S, Groups
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_rota_coordinates_where_it_is_to_and_the_records_are_in_kafka(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name)
    groups = Groups(tmp_path)
    spec = {
        "bootstrapServers": [kafka.bootstrap],
        "coordination": "Rota",
        "coordinatorAddress": ROTA,
        "groupId": unique_name,
        "topics": [unique_name],
        "offsets": {"commit": {"mode": "sync"}},
    }
    groups.add("shared", spec, "poll")
    with groups.running(groups.manifests) as groups.process:
        producer = Producer(kafka.client_config())
        producer.produce(unique_name, value=b"one")
        producer.flush(WITHIN_S)
        groups.until("the record", lambda: groups.values("shared") == ["one"])
        groups.until("its commit", lambda: groups.committed(unique_name, unique_name) == 1)
        assert [member.client_id for member in groups.described(unique_name).members] == ["shared-0"]
        known = AdminClient(kafka.client_config()).list_consumer_groups(request_timeout=WITHIN_S).result()
        assert unique_name not in {group.group_id for group in known.valid}
