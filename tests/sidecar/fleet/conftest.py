"""A coordinator for each module, and a topic with records for each test."""

from collections.abc import Iterator

import pytest

from tests.sidecar.fleet.stories import RECORDS
from tests.support.coordinator import Coordinator
from tests.support.coordinator import serving as coordinating
from tests.support.records import fill


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with coordinating(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture
def topic(coordinator: Coordinator, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions for each test, with records in both; a group of the same name."""
    name = str(request.node.name).removeprefix("test_")[:60]
    coordinator.make_topic(name, 2)
    fill(coordinator.address, name, 2, RECORDS)
    return name
