"""
Fixtures for tests against Prometheus.

A test says what its server scrapes, so none is shared.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.network import LOOPBACK, Network
from tests.support.prometheus.server import NO_JOBS, SCRAPE_INTERVAL, Job, Prometheus, running


class StartPrometheus(Protocol):
    """Starts servers that end with the test."""

    def __call__(
        self,
        *,
        rules: Sequence[Path] = (),
        reachable_from_pods: bool = False,
        jobs: Mapping[str, Job] = NO_JOBS,
        scrape_interval: str = SCRAPE_INTERVAL,
    ) -> Prometheus: ...


@pytest.fixture
def start_prometheus(request: pytest.FixtureRequest) -> Iterator[StartPrometheus]:
    """Start servers of one's own."""
    with ExitStack() as started:

        def start(
            *,
            rules: Sequence[Path] = (),
            reachable_from_pods: bool = False,
            jobs: Mapping[str, Job] = NO_JOBS,
            scrape_interval: str = SCRAPE_INTERVAL,
        ) -> Prometheus:
            # The cluster takes a while to start: it is asked for by those who need it only.
            network: Network = request.getfixturevalue("cluster") if reachable_from_pods else LOOPBACK
            return started.enter_context(
                running(rules=rules, network=network, jobs=jobs, scrape_interval=scrape_interval)
            )

        yield start
