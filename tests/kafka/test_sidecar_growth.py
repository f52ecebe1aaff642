"""Topics that grow under a group of processes on a Kafka broker."""

from pathlib import Path

import pytest

from tests.sidecar.membership.rolling.growth import Cluster, growth
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
def test_partitions_that_are_added_while_members_run_or_are_away_get_an_owner(
    tmp_path: Path, kafka: Kafka, unique_name: str, *, is_static: bool
) -> None:
    def make_topic(name: str, partitions: int) -> None:
        kafka.create_topic(name, partitions=partitions)

    growth(tmp_path, Cluster(kafka.bootstrap, make_topic, kafka.grow_topic), unique_name, is_static=is_static)
