"""
The operator process: reads credentials, leads, and stops in order.

The HTTP pages start first, so that probes answer while the process waits for the API server or for the lease. Then Fleet is served
and `leading` runs, until one of them fails, which ends the process and lets Kubernetes start it again, or until SIGTERM or SIGINT.
A lost lease, or watches that have failed, end the leader's work, and the process is a candidate again. The lease is released last,
when nothing writes any more.
"""

import asyncio
import random
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from rota_operator.cluster import credentials
from rota_operator.cluster.api import Api
from rota_operator.cluster.config import ClusterConfig
from rota_operator.cluster.handlers import WatchFailed
from rota_operator.cluster.leadership import Clocks, LeaderElection, LeadershipLost, LeaseName
from rota_operator.cluster.leading import Environment, Leading
from rota_operator.cluster.metrics import CONTENT_TYPE, Metrics
from rota_operator.cluster.page import Leadership, access_of, leader_of, page_of
from rota_operator.cluster.page_groups import PageGroups
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.page.server import serve_page
from rota_operator.timestamps import micro_timestamp
from rota_service.addresses import BindError
from rota_service.event_log import EventLog
from rota_service.http_server import HttpServer, Page, Path, Paths, probes

ORDER_ID_BITS = 64
# Between two terms; drawn, so that two processes do not follow each other.
PAUSE_S = (0.5, 1.5)


class Terms:
    """The process's terms as a leader, one after the other. Invariant: `unready` is of the present one, or of the next."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._leading = self._next()

    @property
    def unready(self) -> str:
        """Return why the process is not ready; empty: it is, as a candidate is, which has nothing to do."""
        return self._leading.unready

    @property
    def page_groups(self) -> PageGroups | None:
        """Return what the page shows; None while this process does not lead."""
        return self._leading.page_groups

    async def run(self, stop: asyncio.Event) -> None:
        """Do the leader's work in each term until `stop` is set; without an election each term is this process's. Raises what it fails with."""
        while not stop.is_set():
            try:
                if self._environment.config.lease_name:
                    await run_elected(self._environment, self._leading, stop)
                else:
                    await self._leading.run()
            except (LeadershipLost, WatchFailed) as lost:
                self._environment.event_log.warning(str(lost))
                # Nothing of a former term is trusted.
                self._leading = self._next()
                await asyncio.sleep(random.uniform(*PAUSE_S))

    def _next(self) -> Leading:
        return Leading(self._environment, random.getrandbits(ORDER_ID_BITS))


async def run(config: ClusterConfig, event_log: EventLog, clocks: ProcessClocks) -> None:
    """Run until SIGTERM or SIGINT. Raises NoCredentials, BindError, and what else ends the process."""
    api = Api(await credentials.load(config.kubeconfig))
    metrics, stop = Metrics(), asyncio.Event()
    signals = partial(take_signals, stop)
    signals()
    terms = Terms(Environment(config, api, event_log, metrics, clocks, signals))
    http = HttpServer(pages(lambda: terms.unready, metrics), "--http-listen", checks_host=False)
    try:
        address = await http.start(config.http_address)
        event_log.info("http", f"http on {address}", address=address)
        async with serving_page(terms, config, api, event_log, clocks):
            await first_of(wait_for(stop), terms.run(stop))
        event_log.info("stopped", "stopped")
    finally:
        await http.stop()
        await api.close()


@asynccontextmanager
async def serving_page(
    terms: Terms, config: ClusterConfig, api: Api, event_log: EventLog, clocks: ProcessClocks
) -> AsyncIterator[None]:
    """Serve the web page within the block, if there is an address for it. Raises BindError."""
    if not config.page_address:
        yield
        return
    leadership = Leadership(lambda: terms.page_groups, partial(leader_of, api, config), config.identity)
    async with AsyncExitStack() as stack:
        try:
            page = page_of(leadership, access_of(api, clocks.monotonic_s))
            address = await stack.enter_async_context(serve_page(page, config.page_address))
        except OSError as error:
            raise BindError(
                f"--page-listen {config.page_address} cannot be listened on ({error.strerror}); name another address"
            ) from None
        event_log.info("page", f"page on {address}", address=address)
        yield


async def run_elected(environment: Environment, leading: Leading, stop: asyncio.Event) -> None:
    """Do the leader's work while this process holds the lease. Raises LeadershipLost, and what the work fails with."""
    config, event_log, clocks = environment.config, environment.event_log, environment.clocks
    lease = LeaseName(config.lease_namespace, config.lease_name)
    # Unique among all processes and all their terms.
    identity = f"{config.identity}_{uuid.uuid4().hex}"
    times = Clocks(clocks.monotonic_s, lambda: micro_timestamp(clocks.wall_ms()))
    election = LeaderElection(environment.api, lease, identity, times, event_log.warning)

    async def lead() -> None:
        # A candidate is ready: it has nothing to do.
        leading.unready = ""
        await election.wait_until_leading()
        event_log.info("elected", f"{identity} holds the lease {lease.namespace}/{lease.name}")
        await leading.run()

    release = asyncio.Event()
    electing = asyncio.create_task(election.run(release))
    try:
        await first_of(wait_for(stop), lead(), wait_until_done(electing))
    finally:
        release.set()
        await asyncio.gather(electing, return_exceptions=True)
    electing.result()


async def first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side until one of them ends; cancel the others. Raises what the one has raised."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


async def wait_for(event: asyncio.Event) -> None:
    """Wait until an event is set."""
    await event.wait()


async def wait_until_done(task: "asyncio.Task[None]") -> None:
    """Wait until a task has ended, however it has; it goes on if this is cancelled."""
    await asyncio.wait({task})


def pages(unready_reason: Callable[[], str], metrics: Metrics) -> Paths:
    """Return the HTTP pages."""

    async def show(_query: str) -> Page:
        return Page(HTTPStatus.OK, metrics.text(), CONTENT_TYPE)

    return {**probes(unready_reason), "/metrics": Path(show)}


def take_signals(stop: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set the event."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
