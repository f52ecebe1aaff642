"""
Runs one sidecar as a process: its member, its deliveries, and its listeners for application, probes and drains.

Called by `__main__`. It ends on SIGTERM: the application finishes the records in flight, the member commits and leaves the
group, and the listeners close.
"""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from rota_service.event_log import EventLog
from rota_service.http_server import Page, Path, Paths, probes, text_page
from rota_sidecar import wiring
from rota_sidecar.config.loading import ConfigSources
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.core.member.actions import Ended
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.dead_letter_topic import DeadLetterTopic
from rota_sidecar.delivery.dead_letters import LazyDeadLetterWriter, dead_letter_of
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.delivery.effects import EffectPorts
from rota_sidecar.delivery.standalone_offsets import StandaloneOffsets
from rota_sidecar.engines.batch_slicing import BatchSlicer
from rota_sidecar.lifecycle.drain import DrainController
from rota_sidecar.lifecycle.drain_orders import Source
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.lifecycle.readiness import readiness_problem
from rota_sidecar.membership.state_file import StateFileError
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.end_offsets import EndOffsets
from rota_sidecar.observability.log_observer import LoggingObserver
from rota_sidecar.observability.partition_status import PartitionStatus, partition_statuses
from rota_sidecar.observability.progress import ProgressTimes
from rota_sidecar.observability.uncommitted import UncommittedTimestamps
from rota_sidecar.process.drain_requests import AFTER_DRAIN_MS, PATH, WrongRequest, request_of
from rota_sidecar.process.listeners import Listeners
from rota_sidecar.process.stdin import EndOfInput
from rota_sidecar.wiring import Strategies

if TYPE_CHECKING:
    from rota_sidecar.fleet.client import FleetClient
    from rota_sidecar.fleet.cluster_id import ClusterIdLookup
    from rota_sidecar.fleet.orders import OrderExecutor
    from rota_sidecar.observability.metrics import Metrics

# Requests that wait for the end of a drain at a time; probes and metrics need connections too.
WAITING_MAX = 16
# For a report that another pod may succeed this one.
LAST_REPORT_S = 1.0


async def serve_application(
    sources: ConfigSources, config: SidecarConfig, strategies: Strategies, event_log: EventLog
) -> str:
    """
    Run the sidecar until it ends; return why it failed, in one sentence, or an empty string.

    `config` is the one that `sources` has made. Raises StateFileError, BindError.
    """
    sidecar = Sidecar(config, strategies, event_log)
    if config.fleet.address:
        sidecar.connect_fleet(sources, strategies)
    return await sidecar.run()


class Sidecar:
    """Sidecar of one member; create and use it on a running loop. Invariant: `run` is called once, and closes what it opened."""

    def __init__(self, config: SidecarConfig, strategies: Strategies, event_log: EventLog) -> None:
        self._config = config
        self._event_log = event_log
        self._counters = Counters()
        self._uncommitted = UncommittedTimestamps()
        self._progress = ProgressTimes(wiring.wall_ms)
        observers = (LoggingObserver(event_log), self._counters, self._uncommitted, self._progress)
        self._driver = DeliveryDriver(config.delivery, observers, config.process.leave_timeout_ms)
        self._slicer = BatchSlicer()
        self._ports = self._effect_ports()
        self._driver.connect(self._ports)
        self._members = MemberLifecycle(config, strategies, self._driver, self._counters)
        self._draining = DrainController(self._driver, config.process.drain_timeout_ms, event_log.info)
        self._ends = EndOffsets(
            self._ports.records, lambda: frozenset(self._driver.delivery.held), self._members.measured
        )
        self._dead_letter_topic = DeadLetterTopic(
            self._ports.topics, lambda: self._driver.config.dead_letter_topic, self._complain
        )
        self._counters.on_change = self._changed
        self._fleet: FleetClient | None = None
        self._orders: OrderExecutor | None = None
        self._cluster_id: ClusterIdLookup | None = None
        self._metrics: Metrics | None = None
        self._listeners = Listeners(config, self._driver, event_log)
        self._ending: asyncio.Task[None] | None = None
        self._has_signal = False
        # Requests that wait for the end of a drain.
        self._waiting = 0

    def connect_fleet(self, sources: ConfigSources, strategies: Strategies) -> None:
        """Set up reports to Fleet and the execution of its orders; call it before `run`."""
        from importlib.metadata import version

        from rota_sidecar.fleet.client import FleetCallbacks, FleetClient
        from rota_sidecar.fleet.cluster_id import ClusterIdLookup
        from rota_sidecar.fleet.orders import OrderExecutor
        from rota_sidecar.fleet.queries import OffsetQueries
        from rota_sidecar.fleet.reconfigure import Reconfigurer
        from rota_sidecar.fleet.reports import Health, ReportBuilder, Reporter

        config, driver, members = self._config, self._driver, self._members
        reconfiguring = Reconfigurer(sources, config, strategies, driver, members)
        queries = OffsetQueries(
            driver, self._ports.topics, lambda: driver.participation.subscription or config.subscription
        )
        orders = OrderExecutor(driver, members, self._draining, reconfiguring, queries, wiring.wall_ms)
        reporter = Reporter(config.member.client_id, version("rota-sidecar"), config.fleet.settings_hash)
        health = Health(
            self._problems, lambda: self._draining.status, self._readiness_problem, self._known_cluster_id
        )
        reports = ReportBuilder(reporter, driver, members, self._counters, health, wiring.wall_ms)
        callbacks = FleetCallbacks(
            lambda: reports.made(self._statuses(), orders.answers()),
            orders.execute,
            orders.begin_stream,
            orders.end_stream,
        )
        credentials = wiring.fleet_credentials(config)
        fleet = FleetClient(
            config.fleet.address, credentials, callbacks, wiring.chance, self._event_log.warning
        )
        orders.trigger_now = fleet.trigger_now
        # Without Fleet nobody learns of it: the place waits for the end of the pod.
        driver.may_give_up_instance = lambda: members.has_instance_of_fleet and fleet.is_connected
        driver.give_up_instance = lambda within_ms: members.give_up_instance(
            within_ms, leave_static=self._draining.is_scaled_away
        )
        self._draining.may_await_successor = lambda: (
            (orders.expects_hand_over and driver.may_give_up_instance())
            or (members.succession.may_await_successor and fleet.is_connected)
        )
        # Without Fleet the successor would never get it, and joins as any other.
        driver.may_give_up_membership = lambda: bool(members.succession.successor) and fleet.is_connected
        driver.give_up_membership = members.give_up_membership
        members.succession.is_connected = lambda: fleet.is_connected
        self._draining.awaits_successor = lambda: driver.delivery.awaits_successor
        self._fleet, self._orders = fleet, orders
        if not config.backend.stores_in_rota:
            self._cluster_id = ClusterIdLookup(partial(wiring.cluster_id, config), fleet.trigger_now)

    def _changed(self) -> None:
        self._ends.look()
        if self._fleet is not None:
            self._fleet.trigger_now()

    async def run(self) -> str:
        """Run until the member has ended; return why it failed, or an empty string."""
        self._draining.leave = self._end
        drain = {PATH: Path(self._drain, "POST")}
        await self._listeners.open(self._paths(), drain, self._slicer, lambda: self._collector().samples())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end_by_signal, number.name)
        try:
            ended = await run_beside(self._run_members(), *self._side_tasks())
            return ended.reason if ended.failed else ""
        except Exception as error:  # noqa: BLE001  the edge of the process: every failure is logged, and the listeners close
            return self._unexpected(error)
        finally:
            await self._close()

    async def _run_members(self) -> Ended:
        ended = await self._members.run()
        has_given_up = self._members.given_up_instance or self._members.succession.given_up is not None
        if self._fleet is not None and has_given_up:
            # The pod's end, of which the operator learns otherwise, may be many seconds later.
            await self._fleet.finish(LAST_REPORT_S)
        return ended

    def _side_tasks(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the coroutines that run as long as the member."""
        yield self._driver.run()
        yield self._ends.run()
        yield self._dead_letter_topic.run()
        if self._config.process.ends_with_stdin:
            yield self._end_with_stdin()
        if self._config.http_delivery.url:
            yield self._deliver_by_http()
        if self._fleet is not None:
            yield self._fleet.run()
        if self._cluster_id is not None:
            yield self._cluster_id.run()

    async def _deliver_by_http(self) -> None:
        from rota_sidecar.application.http_delivery import HttpDelivery, HttpSettings

        settings = HttpSettings(self._config.http_delivery.url, self._config.http_delivery.timeout_ms / 1000)
        await HttpDelivery(self._driver, self._slicer, settings, self._event_log.info).run()

    def _end(self, reason: str) -> None:
        """Drain, leave the group and end, within the drain time."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._finish(reason))
            self._ending.add_done_callback(self._finished)

    def _end_by_signal(self, reason: str) -> None:
        """The first signal ends the sidecar; the second one stops the wait for verdicts."""
        if self._has_signal:
            self._draining.finish_now()
        self._has_signal = True
        self._end(reason)

    async def _finish(self, reason: str) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._config.process.drain_timeout_ms / 1000
        await self._draining.finish()
        within_ms = self._draining.revoke_within_ms((ends_s - loop.time()) * 1000)
        within_ms = min(within_ms, self._config.process.leave_timeout_ms)
        await self._driver.put_back(within_ms)
        self._members.end(reason, within_ms, leave_static=self._draining.is_scaled_away)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._driver.fail(error)

    async def _end_with_stdin(self) -> None:
        """End the sidecar when standard input ends, as it does when the process that started the sidecar exits."""
        await EndOfInput(sys.stdin.fileno()).wait()
        self._end("standard input has ended: the process that started the sidecar is gone")

    def _unexpected(self, error: Exception) -> str:
        """Log an unexpected error; return the message of the exit. Raises StateFileError."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, StateFileError):
            raise error from None
        self._event_log.exception(error)
        return f"unexpected error ({type(error).__name__}: {error}); report it, with the lines above"

    async def _close(self) -> None:
        self._driver.end_attachment("the sidecar has stopped")
        await self._listeners.close()
        if self._orders is not None:
            await self._orders.close()
        await self._ports.records.close()
        await self._ports.dead_letters.close()
        await self._ports.standalone_offsets.close()
        await self._ports.topics.close()

    def _paths(self) -> Paths:
        return {
            **probes(self._readiness_problem),
            "/metrics": Path(self._scrape),
            "/drained": Path(self._await_drained),
        }

    def _readiness_problem(self) -> str:
        return readiness_problem(self._driver, self._members, self._draining)

    def _known_cluster_id(self) -> str:
        return "" if self._cluster_id is None else self._cluster_id.found

    async def _scrape(self, _query: str) -> Page:
        from rota_sidecar.observability.metrics import CONTENT_TYPE

        return Page(HTTPStatus.OK, self._collector().page(), CONTENT_TYPE)

    def _collector(self) -> "Metrics":
        from rota_sidecar.observability.metrics import GroupOfMetrics, Metrics

        if self._metrics is None:
            granularity = self._config.listeners.metrics_granularity
            of_group = GroupOfMetrics(self._config.member.group_id, granularity)
            self._metrics = Metrics(of_group, self._counters, self._statuses, wiring.wall_s)
        return self._metrics

    def _statuses(self) -> Iterable[tuple[Partition, PartitionStatus]]:
        return partition_statuses(
            self._driver.delivery.partitions, self._ends, self._slicer, self._uncommitted, self._progress
        )

    def _problems(self) -> Sequence[str]:
        """Return the current problems that concern none of the member's partitions."""
        missing = [f"topic {name} does not exist: create it" for name in self._members.current.member.missing]
        return [
            *missing,
            *([self._dead_letter_topic.problem] if self._dead_letter_topic.problem else []),
        ]

    async def _drain(self, query: str) -> Page:
        try:
            request = request_of(query)
        except WrongRequest as error:
            return text_page(HTTPStatus.BAD_REQUEST, str(error))
        for_ms = request.for_ms or self._config.process.drain_timeout_ms + AFTER_DRAIN_MS
        left = await self._draining.expire_in(Source.SOCKET, for_ms, request.then)
        if left:
            message = f"{left} records are still in flight; they will be redelivered"
            return text_page(HTTPStatus.GATEWAY_TIMEOUT, message)
        return text_page(HTTPStatus.OK, "drained")

    async def _await_drained(self, _query: str) -> Page:
        """Wait for a drain that has begun elsewhere: the `preStop` of the application's container calls this."""
        if self._waiting >= WAITING_MAX:
            return text_page(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{WAITING_MAX} requests wait for a drain already"
            )
        self._waiting += 1
        try:
            is_drained = await self._draining.drained()
        finally:
            self._waiting -= 1
        if is_drained:
            return text_page(HTTPStatus.OK, "drained")
        return text_page(HTTPStatus.GATEWAY_TIMEOUT, self._draining.status or "no drain has begun")

    def _effect_ports(self) -> EffectPorts:
        config = self._config
        group_id = config.member.group_id
        return EffectPorts(
            records=wiring.records_for(config, self._driver.post_now, self._complain),
            dead_letters=LazyDeadLetterWriter(lambda: wiring.dead_letter_writer_for(config)),
            dead_letter_of=lambda due: dead_letter_of(due, group_id, self._slicer),
            topics=wiring.topics_for(config),
            standalone_offsets=StandaloneOffsets(
                group_id, lambda on_event: wiring.coordination_for(config, on_event)[0]
            ),
        )

    def _complain(self, problem: str) -> None:
        """Report that records cannot be read; with an empty problem, that they can be read again."""
        if problem:
            self._counters.last_problem = problem
            self._event_log.warning(problem)
        else:
            self._event_log.info("reading", "records can be read again")


async def run_beside(members: Awaitable[Ended], *side_tasks: Coroutine[Any, Any, None]) -> Ended:
    """Run the members with the side tasks; return how the members ended. A side task that fails ends them too."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in side_tasks]
        ended = await members
        for task in tasks:
            task.cancel()
    return ended
