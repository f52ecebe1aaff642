"""Fixtures that the tests of the command line share."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Rota
from tests.support.coordinator import QUICK, Coordinator, serving


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """A coordinator with its log, for all tests of a file: they keep apart by names."""
    with serving(tmp_path_factory.mktemp("coordinator"), QUICK) as running:
        yield running


@pytest.fixture
def rota(coordinator: Coordinator, tmp_path: Path) -> Rota:
    """The command, in a folder of its own, where the environment names the coordinator."""
    return Rota(f"rota://{coordinator.address}", tmp_path)


@pytest.fixture
def name() -> str:
    """For a topic or a group that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"
