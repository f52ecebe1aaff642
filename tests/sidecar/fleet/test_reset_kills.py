"""Resets on Rota that are finished although the operator and sidecars are killed at each of their steps."""

from collections import Counter
from pathlib import Path

import grpc
import pytest

from tests.log.owners import group_offsets
from tests.sidecar.fleet.reset_kills import count, drawn, play
from tests.support.coordinator import Coordinator

pytestmark = [pytest.mark.process, pytest.mark.soak("resets"), pytest.mark.timeout(600)]
# As the fixture `topic` fills each partition.
RECORDS = 40


def test_offsets_are_those_of_the_plan_and_all_members_resume(
    tmp_path: Path, coordinator: Coordinator, topic: str, seed: int, counters: Counter[str], *, in_soak: bool
) -> None:
    def committed() -> dict[int, int]:
        with grpc.insecure_channel(coordinator.address) as channel:
            return group_offsets(channel, topic, topic, 2)

    servers = f"rota://{coordinator.address}"
    disturbances = drawn(seed, in_soak=in_soak)
    play(tmp_path, servers, topic, RECORDS, committed, disturbances)
    counters.update(count(disturbances))
