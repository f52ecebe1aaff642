"""
A sidecar that delivers records, as a process: a member, deliveries, and the doors for application, probes and people.

Called by `program`. It ends on SIGTERM: the application finishes what it has, the member commits and leaves, and the
doors close.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from rota_service.event_log import EventLog
from rota_service.http_server import Page, Path, Paths, probes, text_page
from rota_sidecar import wiring
from rota_sidecar.config.delivery_flags import delivery_config
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
from rota_sidecar.observability.uncommitted import UncommittedTimestamps
from rota_sidecar.process.drain_requests import AFTER_DRAIN_MS, PATH, WrongRequest, request_of
from rota_sidecar.process.listeners import Doors
from rota_sidecar.process.stdin import EndOfInput
from rota_sidecar.wiring import Strategies

if TYPE_CHECKING:
    from rota_sidecar.fleet.client import FleetClient
    from rota_sidecar.fleet.orders import OrderExecutor
    from rota_sidecar.observability.metrics import Metrics

# Requests that wait for the end of a drain at a time; probes and metrics need connections too.
WAITING_MAX = 16


async def serve_application(
    options: argparse.Namespace, strategies: Strategies, arguments: Sequence[str], event_log: EventLog
) -> str:
    """Serve until that has ended; why it failed, in one sentence, or nothing. Raises StateFileError, BindError."""
    serving = Serving(options, strategies, event_log)
    if options.fleet:
        serving.report_to_fleet(strategies, arguments)
    return await serving.run()


class Serving:
    """One sidecar. To be made and used on a running loop."""

    def __init__(self, options: argparse.Namespace, strategies: Strategies, event_log: EventLog) -> None:
        self._options = options
        self._event_log = event_log
        self._counters = Counters(wiring.wall_s)
        self._uncommitted = UncommittedTimestamps()
        observers = (LoggingObserver(event_log), self._counters, self._uncommitted)
        self._driver = DeliveryDriver(delivery_config(options), observers, options.leave_timeout_ms)
        self._slicer = BatchSlicer()
        self._ports = self._effect_ports()
        self._driver.connect(self._ports)
        self._members = MemberLifecycle(options, strategies, self._driver, self._counters)
        self._draining = DrainController(self._driver, options.drain_timeout_ms, event_log.info)
        self._ends = EndOffsets(
            self._ports.records, lambda: frozenset(self._driver.delivery.held), self._members.measured
        )
        self._dead_letter_topic = DeadLetterTopic(
            self._ports.topics, lambda: self._driver.config.dead_letter_topic, self._complain
        )
        self._counters.on_change = self._changed
        self._fleet: FleetClient | None = None
        self._orders: OrderExecutor | None = None
        self._metrics: Metrics | None = None
        self._doors = Doors(options, self._driver, event_log)
        self._ending: asyncio.Task[None] | None = None
        self._has_signal = False
        # Requests that wait for the end of a drain.
        self._waiting = 0

    def report_to_fleet(self, strategies: Strategies, arguments: Sequence[str]) -> None:
        """And take its orders. To be called before it runs."""
        from rota_sidecar.fleet.client import FleetCallbacks, FleetClient
        from rota_sidecar.fleet.orders import OrderExecutor
        from rota_sidecar.fleet.reconfigure import Reconfigurer
        from rota_sidecar.fleet.reports import ReportBuilder

        options, driver, members = self._options, self._driver, self._members
        reconfiguring = Reconfigurer(options, arguments, strategies, driver, members)
        orders = OrderExecutor(driver, members, self._draining, reconfiguring, wiring.wall_ms)
        draining = lambda: self._draining.status
        reports = ReportBuilder(options.client_id, driver, members, self._counters, self._problems, draining)
        callbacks = FleetCallbacks(
            lambda: reports.made(self._facts(), orders.answers()), orders.execute, orders.requeue_answers
        )
        credentials = wiring.fleet_credentials(options)
        fleet = FleetClient(options.fleet, credentials, callbacks, wiring.chance, self._event_log.warning)
        orders.trigger_now = fleet.trigger_now
        self._fleet, self._orders = fleet, orders

    def _changed(self) -> None:
        self._ends.look()
        if self._fleet is not None:
            self._fleet.trigger_now()

    async def run(self) -> str:
        """Until it has ended; why it failed, or nothing."""
        self._draining.leave = self._end
        await self._doors.open(self._paths(), {PATH: Path(self._drain, "POST")}, self._slicer)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._end_by_signal, number.name)
        try:
            ended = await beside(self._members.run(), *self._tending())
            return ended.reason if ended.failed else ""
        except Exception as error:  # noqa: BLE001  the edge of the process: whatever it is, it is said and the doors close
            return self._broken(error)
        finally:
            await self._close()

    def _tending(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on beside the member."""
        yield self._driver.run()
        yield self._ends.run()
        yield self._dead_letter_topic.run()
        if self._options.ends_with_stdin:
            yield self._minding_input()
        if self._options.delivery_url:
            yield self._delivering_by_http()
        if self._fleet is not None:
            yield self._fleet.run()

    async def _delivering_by_http(self) -> None:
        from rota_sidecar.application.http_delivery import HttpDelivery, HttpSettings

        settings = HttpSettings(self._options.delivery_url, self._options.delivery_timeout_ms / 1000)
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
        ends_s = loop.time() + self._options.drain_timeout_ms / 1000
        await self._draining.finish()
        within_ms = self._draining.revoke_within_ms((ends_s - loop.time()) * 1000)
        within_ms = min(within_ms, self._options.leave_timeout_ms)
        await self._driver.put_back(within_ms)
        self._members.end(reason, within_ms, leave_static=self._draining.is_scaled_away)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._driver.fail(error)

    async def _minding_input(self) -> None:
        """Whoever started this for itself is gone when standard input ends."""
        await EndOfInput(sys.stdin.fileno()).wait()
        self._end("whoever started the sidecar is gone")

    def _broken(self, error: Exception) -> str:
        """What to say of what nobody expected. Raises StateFileError."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, StateFileError):
            raise error from None
        self._event_log.exception(error)
        return f"it broke ({type(error).__name__}: {error}): report this, with the lines above"

    async def _close(self) -> None:
        self._driver.end_attachment("the sidecar has stopped")
        await self._doors.close()
        if self._orders is not None:
            await self._orders.close()
        await self._ports.records.close()
        await self._ports.dead_letters.close()
        await self._ports.standalone_offsets.close()
        await self._ports.topics.close()

    def _paths(self) -> Paths:
        ready = probes(lambda: readiness_problem(self._driver, self._members, self._draining))
        return {**ready, "/metrics": Path(self._scrape), "/drained": Path(self._await_drained)}

    async def _scrape(self, _query: str) -> Page:
        from rota_sidecar.observability.metrics import CONTENT_TYPE, Metrics

        if self._metrics is None:
            self._metrics = Metrics(self._options.group_id, self._counters, self._facts, wiring.wall_s)
        return Page(HTTPStatus.OK, self._metrics.page(), CONTENT_TYPE)

    def _facts(self) -> Iterable[tuple[Partition, PartitionStatus]]:
        return partition_statuses(
            self._driver.delivery.partitions, self._ends, self._slicer, self._uncommitted
        )

    def _problems(self) -> Sequence[str]:
        """What is wrong now, and concerns no partition that it has."""
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
        for_ms = request.for_ms or self._options.drain_timeout_ms + AFTER_DRAIN_MS
        left = await self._draining.expire_in(Source.SOCKET, for_ms, request.then)
        if left:
            said = f"{left} records are still in the application's hands, and will come again"
            return text_page(HTTPStatus.GATEWAY_TIMEOUT, said)
        return text_page(HTTPStatus.OK, "drained")

    async def _await_drained(self, _query: str) -> Page:
        """Begin nothing: the application's container waits so for the drain that the sidecar's has begun."""
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
        options = self._options
        group_id = options.group_id
        return EffectPorts(
            records=wiring.records_for(options, self._driver.post_now, self._complain),
            dead_letters=LazyDeadLetterWriter(lambda: wiring.dead_letter_writer_for(options)),
            dead_letter_of=lambda due: dead_letter_of(due, group_id, self._slicer),
            topics=wiring.topics_for(options),
            standalone_offsets=StandaloneOffsets(
                group_id, lambda hear: wiring.coordination_for(options, hear)[0]
            ),
        )

    def _complain(self, problem: str) -> None:
        """Nothing can be read for now; or, without words, it can again."""
        if problem:
            self._counters.last_problem = problem
            self._event_log.warning(problem)
        else:
            self._event_log.info("reading", "records can be read again")


async def beside(members: Awaitable[Ended], *tending: Coroutine[Any, Any, None]) -> Ended:
    """How the members ended; what breaks beside them breaks them too."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in tending]
        ended = await members
        for task in tasks:
            task.cancel()
    return ended
