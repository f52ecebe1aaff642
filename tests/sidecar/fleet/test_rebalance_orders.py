"""The operator lets a group rebalance: the member that leads it joins again."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.fleet.skewed import PARTITIONS, moves_the_neighbours
from tests.support.coordinator import Coordinator
from tests.support.records import batch, produce

pytestmark = pytest.mark.process


def test_an_ordered_rebalance_moves_other_partitions_away_from_a_hot_one(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    topic = "skewed"
    coordinator.make_topic(topic, PARTITIONS)

    def send(partition: int) -> None:
        produce(coordinator.address, topic, partition, batch(["v"]))

    asyncio.run(moves_the_neighbours(tmp_path, f"rota://{coordinator.address}", topic, send))
