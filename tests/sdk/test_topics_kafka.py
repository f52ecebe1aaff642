"""rota.create_topics on a real Kafka broker."""

import pytest

import rota
from rota import errors
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_topics_are_made_once_and_stay_as_they_are(kafka: Kafka, unique_name: str) -> None:
    rota.create_topics(kafka.bootstrap, {unique_name: 3})
    rota.create_topics(f"kafka://{kafka.bootstrap}", {unique_name: 5, f"{unique_name}-more": 2})
    with rota.Producer(kafka.bootstrap) as producer:
        assert len(producer.partitions_for(unique_name)) == 3
        assert len(producer.partitions_for(f"{unique_name}-more")) == 2


def test_a_topic_that_cannot_be_is_refused_by_its_name(kafka: Kafka) -> None:
    with pytest.raises(errors.InvalidTopic, match="no/topic"):
        rota.create_topics(kafka.bootstrap, {"no/topic": 1})
