"""One operator process: it outlives the terms in which it leads."""

import argparse
import asyncio
import logging

import pytest

from rota_operator.cluster import process
from rota_operator.cluster.config import add_flags, config_of
from rota_operator.cluster.leadership import LeadershipLost
from rota_operator.cluster.leading import Environment, Leading
from rota_operator.cluster.metrics import Metrics
from rota_operator.cluster.process import Terms
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_service.event_log import EventLog
from tests.operator.cluster.api_server import api_at

WITHIN_S = 10
LOST = "leadership is lost: the lease was not renewed in time"


def test_a_process_that_lost_the_lease_is_a_candidate_again_with_nothing_of_the_former_term(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Leading] = []

    async def run_elected(_: Environment, leading: Leading, stop: asyncio.Event) -> None:
        assert leading not in seen
        seen.append(leading)
        leading.unready = f"term {len(seen)}"
        if len(seen) < 3:
            raise LeadershipLost(LOST)
        stop.set()

    async def story() -> None:
        parser, log = argparse.ArgumentParser(), logging.getLogger("terms")
        add_flags(parser)
        options = parser.parse_args(["--sidecar-image=rota-sidecar:1", "--lease-namespace=rota"])
        api = api_at("http://127.0.0.1:1")
        environment = Environment(
            config_of(options, "", "host-1"),
            api,
            EventLog(log),
            Metrics(),
            ProcessClocks(lambda: 0, lambda: 0.0),
            lambda: None,
        )
        terms = Terms(environment)
        await terms.run(asyncio.Event())
        await api.close()
        assert len(seen) == 3
        assert terms.unready == "term 3"
        assert caplog.messages == [LOST, LOST]

    monkeypatch.setattr(process, "run_elected", run_elected)
    asyncio.run(asyncio.wait_for(story(), WITHIN_S))
