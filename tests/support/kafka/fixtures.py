"""
Fixtures for tests against Apache Kafka.

Most tests share one broker and keep apart by the names of their topics and groups. A test that stops brokers,
needs several, or needs a login starts its own.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.support.kafka.brokers import Kafka, running
from tests.support.kafka.security import SecurityName
from tests.support.network import LOOPBACK, Network


class StartKafka(Protocol):
    """Starts brokers that end with the test."""

    def __call__(
        self,
        nodes: int = 1,
        *,
        security: SecurityName = "plaintext",
        reachable_from_pods: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> Kafka: ...


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One broker without a login, shared by all tests of the run."""
    with running() as shared:
        yield shared


@pytest.fixture
def start_kafka(request: pytest.FixtureRequest) -> Iterator[StartKafka]:
    """Start brokers of one's own."""
    with ExitStack() as started:

        def start(
            nodes: int = 1,
            *,
            security: SecurityName = "plaintext",
            reachable_from_pods: bool = False,
            settings: Mapping[str, str] | None = None,
        ) -> Kafka:
            # The cluster takes a while to start: it is asked for by those who need it only.
            network: Network = request.getfixturevalue("cluster") if reachable_from_pods else LOOPBACK
            return started.enter_context(
                running(nodes, security=security, network=network, settings=settings)
            )

        yield start


@pytest.fixture
def unique_name() -> str:
    """A name for a topic or a group that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"
