"""`rota up` lets a group with a hot partition rebalance, and the number of its replicas stays."""

from functools import partial
from pathlib import Path

import pytest

import rota
from tests.operator.local.test_autoscaling import AUTOSCALING, PARTITIONS, Scaled, running
from tests.support.load import Load

pytestmark = pytest.mark.process

# A replica processes 20 records per second at most: of 36 per second two thirds are for the first partition.
RATE, TURNS = 36.0, (0, 0, 1, 0, 0, 2, 0, 0, 3)
REPLICAS = 2
HOT, OTHERS = ["work-0"], [f"work-{number}" for number in range(1, PARTITIONS)]


def send(producer: rota.Producer, number: int) -> None:
    producer.send("work", b"%d" % number, partition=TURNS[number % len(TURNS)])


def owned(scaled: Scaled) -> list[list[str]]:
    """Partitions of each member, in their order."""
    return sorted(sorted(each["partitions"]) for each in scaled.group("work")["members"])


def test_the_neighbours_of_a_hot_partition_move_and_no_replica_is_added(tmp_path: Path) -> None:
    bounds = {"minReplicaCount": REPLICAS, "maxReplicaCount": REPLICAS, "catchUpSeconds": 60}
    with running(
        tmp_path, {"work": {**AUTOSCALING, **bounds}}, assignment={"strategy": "load-aware-sticky"}
    ) as scaled:
        scaled.until(lambda: list(map(len, owned(scaled))) == [PARTITIONS // REPLICAS] * REPLICAS)
        with rota.Producer(scaled.address) as producer, Load(partial(send, producer), RATE):
            scaled.until(lambda: scaled.decided("work", "LoadSkewed"))
            (decision, *_) = scaled.decided("work", "LoadSkewed")
            assert (decision["before"], decision["replicas"]) == (REPLICAS, REPLICAS)
            assert decision["inputs"]["rebalance_gain"] > 0
            scaled.until(lambda: owned(scaled) == [HOT, OTHERS])
        assert scaled.wanted("work") == REPLICAS
        said = [each["message"] for each in scaled.group("work")["history"] if each["kind"] == "scale"]
        assert any("work was ordered to rebalance: LoadSkewed: " in each for each in said)
        rebalances = [
            each["message"] for each in scaled.group("work")["history"] if each["kind"] == "rebalance"
        ]
        assert any(
            "moves other partitions away from the owner of a hot one: work-0" in each for each in rebalances
        )
