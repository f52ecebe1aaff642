"""Listeners of consumers in several processes on Rota: all that goes is told before anything that comes, everywhere."""

from functools import partial
from pathlib import Path

import pytest

import rota
from tests.conformance.driver import DEFAULT
from tests.conformance.server import ServerDriver
from tests.sdk.consumer.listener_rules import assigned_too_early, faults, revocations
from tests.sdk.consumer.listener_story import PARTITIONS, several_rebalances
from tests.sdk.consumer.listener_worker import RECORDS_PER_PARTITION
from tests.support.coordinator import serving

pytestmark = pytest.mark.process
STRATEGIES = ("range", "cooperative-sticky")
# Of the story, those that take partitions from two members and more for certain: one joins them, and one ends in good order.
REBALANCES_MIN = 2


def test_revoked_partitions_are_reported_before_assigned_ones_in_every_process(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        servers = f"rota://{coordinator.address}"
        rota.create_topics(servers, {"events": PARTITIONS})
        with rota.Producer(servers) as producer:
            for number in range(PARTITIONS * RECORDS_PER_PARTITION):
                producer.send("events", b"%d" % number, partition=number % PARTITIONS)
        connect = partial(ServerDriver, coordinator.address, DEFAULT)
        groups = several_rebalances(tmp_path, servers, "events", STRATEGIES, connect)
    for group in groups:
        lives = [member.life for member in group.members]
        assert faults(lives, eager=group.strategy == "range") == []
        if group.strategy == "range":
            # Of the whole group, over the processes: a generation is taken from all members before the next is given to any.
            assert assigned_too_early(lives) == []
            together = [generation for generation, members in revocations(lives).items() if members > 1]
            assert len(together) >= REBALANCES_MIN
