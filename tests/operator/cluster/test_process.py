"""One operator process: it outlives the terms in which it leads."""

import argparse
import asyncio
import logging

import aiohttp
import pytest

from rota_operator.cluster import process
from rota_operator.cluster.api import Api
from rota_operator.cluster.config import add_flags, config_of
from rota_operator.cluster.handlers import WatchFailed
from rota_operator.cluster.kinds import POD
from rota_operator.cluster.leadership import LeadershipLost
from rota_operator.cluster.leading import Environment, Leading
from rota_operator.cluster.metrics import Metrics
from rota_operator.cluster.process import Terms
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_service.addresses import BindError
from rota_service.event_log import EventLog
from tests.operator.cluster.api_server import ApiServer, api_at, run
from tests.operator.cluster.page_world import LEADER, answer_of
from tests.support.ports import free_port

WITHIN_S = 60
GONE = "the API server cannot be watched: Gone"
# Of the terms that run.
STOPS: list[asyncio.Event] = []
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
        terms = await run_terms()
        assert len(seen) == 3
        assert terms.unready == "term 3"
        assert caplog.messages == [LOST, LOST]

    monkeypatch.setattr(process, "run_elected", run_elected)
    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def environment_of(api: Api, *flags: str) -> Environment:
    """Environment of a process with these flags."""
    parser, log = argparse.ArgumentParser(), logging.getLogger("terms")
    add_flags(parser)
    options = parser.parse_args(["--sidecar-image=rota-sidecar:1", "--lease-namespace=rota", *flags])
    clocks = ProcessClocks(lambda: 0, lambda: 0.0)
    return Environment(config_of(options, "", "host-1"), api, EventLog(log), Metrics(), clocks, lambda: None)


async def run_terms(*flags: str) -> Terms:
    """Run the terms of a process until one of them sets the event."""
    api = api_at("http://127.0.0.1:1")
    terms, stop = Terms(environment_of(api, *flags)), asyncio.Event()
    STOPS.append(stop)
    await terms.run(stop)
    await api.close()
    return terms


def test_watches_that_have_failed_begin_a_new_term_in_which_no_version_counts_as_seen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terms: list[Leading] = []

    async def run(leading: Leading) -> None:
        assert leading not in terms
        terms.append(leading)
        seen = leading._environment.api.seen
        assert seen.newest(POD) == ""
        seen.note(POD, "7")
        if len(terms) < 2:
            raise WatchFailed(GONE)
        STOPS[-1].set()

    monkeypatch.setattr(Leading, "run", run)
    asyncio.run(asyncio.wait_for(run_terms("--lease-name="), WITHIN_S))
    assert len(terms) == 2
    assert caplog.messages == [GONE]


@pytest.mark.process
def test_a_candidate_serves_the_page_and_names_the_leader() -> None:
    async def story(api: Api) -> None:
        address = f"127.0.0.1:{free_port()}"
        environment = environment_of(api, f"--page-listen={address}")
        config, log, clocks = environment.config, environment.event_log, environment.clocks
        async with (
            process.serving_page(Terms(environment), config, api, log, clocks),
            aiohttp.ClientSession() as browser,
        ):
            token = {"Authorization": "Bearer admin"}
            async with browser.get(f"http://{address}/api/state", headers=token) as response:
                said = f"host-1 does not lead, {LEADER} does; run `kubectl rota ui` again"
                assert (response.status, await response.json()) == (503, {"error": said})
            with pytest.raises(BindError, match=f"--page-listen {address} cannot be listened on"):
                async with process.serving_page(Terms(environment), config, api, log, clocks):
                    pass
        # Without an address there is no page.
        without = environment_of(api, "--page-listen=").config
        async with process.serving_page(Terms(environment), without, api, log, clocks):
            with pytest.raises(OSError, match="Connect"):
                await asyncio.open_connection(*address.split(":"))

    run(ApiServer(answer_of), story)
