"""Topics that grow under a group of processes on Rota's coordinator and its log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sidecar.membership.rolling.growth import Cluster, growth
from tests.support.coordinator import Coordinator, serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])
def test_partitions_that_are_added_while_members_run_or_are_away_get_an_owner(
    tmp_path: Path, coordinator: Coordinator, *, is_static: bool
) -> None:
    cluster = Cluster(f"rota://{coordinator.address}", coordinator.make_topic, coordinator.grow_topic)
    growth(tmp_path, cluster, "static" if is_static else "dynamic", is_static=is_static)
