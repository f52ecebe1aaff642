"""
Builds the coordinator from its options, serves until a stop signal, and shuts down in order. Called by `__main__`.

Start: store, router, access control, gRPC port, HTTP page. Shutdown drains the log and the slots before it ends the
streams, so that decided requests are answered and other processes claim the slots at once.
"""

import argparse
import asyncio
import gc
import signal
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import NamedTuple

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.quotas import Quotas
from rota_coordinator.observability.metrics import CONTENT_TYPE, Metrics
from rota_coordinator.observability.round_log import RoundLog
from rota_coordinator.options import quota_of
from rota_coordinator.rpc.group_service import make_server
from rota_coordinator.rpc.sessions import Sessions
from rota_coordinator.rpc.watch import Watchers
from rota_coordinator.runtime.clocks import Clocks, elapsed_ms, elapsed_s, wall_s
from rota_coordinator.runtime.compaction import Compaction
from rota_coordinator.runtime.environments import LogEnvironment, SlotEnvironment
from rota_coordinator.runtime.failpoints import Failpoints
from rota_coordinator.runtime.observer import Observers
from rota_coordinator.runtime.overload import Stalls
from rota_coordinator.runtime.ownership import Lease, OwnershipCallbacks, SharedOwnership
from rota_coordinator.runtime.restored import prepare_restored, skip_producer_ids
from rota_coordinator.runtime.retention import Retention
from rota_coordinator.runtime.router import Service
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.security.wiring import secure
from rota_coordinator.store.port import LEASE_MS_MAX, LogStore, SharedStore, Store, StoreError
from rota_service.event_log import EventLog, open_event_log
from rota_service.http_server import HttpServer, Page, Path, probes

GRACE_S = 5
# Thresholds of Python's garbage collector; the defaults are 700, 10 and 10.
COLLECT_AFTER = (50_000, 20, 100)


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT, then shut down."""
    event_log = open_event_log("rota-coordinator", options.log_format)
    security = secure(options, quota_of(options), event_log.warning)
    failpoints = Failpoints(options.failpoints, event_log.warning)
    metrics = Metrics(lambda: service.slots, security.connections.counts)
    clock = asyncio.get_running_loop().time
    observers = Observers([metrics, RoundLog(event_log, clock)], event_log.warning)
    # A suspension counts as a stall, and the lease keeps running meanwhile.
    stalls = Stalls(elapsed_s, observers)
    lease = Lease(elapsed_ms, options.slot_lease_ms)
    clocks = Clocks(clock, wall_s)
    store, shared, rows = await open_store(options)
    sessions, watchers = Sessions(), Watchers(store.slots)
    environment = SlotEnvironment(
        store,
        GroupConfig(**{field.name: getattr(options, field.name) for field in fields(GroupConfig)}),
        now_ms=clocks.monotonic_ms,
        new_uuid=lambda: str(uuid.uuid4()),
        notify=sessions.notify,
        group_changed=watchers.changed,
        slot_changed=watchers.slot_changed,
        report=event_log.warning,
        report_exception=event_log.exception,
        may_serve=lease.runs if shared else lambda: True,
        failpoints=failpoints,
        observers=observers,
        stalls=stalls,
        quotas=Quotas(security.quota_of),
        member_removed=sessions.forget,
        wall=clocks.wall,
    )
    service = Service(environment, options.advertise or options.listen)
    if shared:
        callbacks = OwnershipCallbacks(event_log.warning, sessions.go_away)
        service.ownership = SharedOwnership(shared, service.slots, lambda: service.address, lease, callbacks)
    if rows is not None:
        service.serve_log(log_environment(rows, options, clocks, event_log, environment.quotas))
    server = make_server(access_control := security.access_control(service), sessions, watchers, service.log)
    host = options.listen.rpartition(":")[0]
    port = security.listen(server, options.listen)
    service.address = options.advertise or f"{host}:{port}"
    stopped = stop_signals()
    if failpoints.names:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, failpoints.arm)
    http = http_server(lambda: "stopping" if stopped.done() else service.missing(), metrics)
    address = await http.start(options.http_listen)
    event_log.info("http", f"http on {address}", address=address)
    stalls.start()
    await server.start()

    def listening() -> None:
        tune_garbage_collector()
        event_log.info("listening", f"listening on {host}:{port}", address=f"{host}:{port}")

    tasks = [
        asyncio.create_task(service.run(listening)),
        asyncio.create_task(expire_offsets(service, options.offsets_check_interval_ms / 1000)),
        *(asyncio.create_task(each) for each in log_tasks(service.log, options)),
        asyncio.create_task(security.keep(access_control, port)),
    ]
    await until_stopped(stopped, tasks)
    event_log.info("stopping", "stopping")
    await service.leave()
    sessions.finish()
    await server.stop(GRACE_S)
    await store.close()
    await http.stop()
    stalls.stop()
    event_log.info("stopped", "stopped")


async def prepare(options: argparse.Namespace) -> int:
    """Prepare a restored store for `--restored`, and return its number of groups."""
    clocks = Clocks(asyncio.get_running_loop().time, wall_s)
    engine, _, rest = options.store.partition(":")
    if engine == "sqlite":
        from rota_coordinator.store import sqlite

        if not FilePath(rest).exists():
            raise StoreError(f"{rest} does not exist; copy the backup there before --restored")
        file = sqlite.open_store(FilePath(rest), slots=options.slots, restoring=True)
        try:
            count = await prepare_restored(file, None, clocks.wall_ms)
            await skip_producer_ids(file, clocks.wall_ms())
            await file.end_restore()
        finally:
            await file.close()
        return count
    # Reading a slot may take longer than the lease of a coordinator.
    options.slot_lease_ms = LEASE_MS_MAX
    store, shared, _ = await open_store(options)
    try:
        return await prepare_restored(store, shared, clocks.wall_ms)
    finally:
        await store.close()


async def until_stopped(stopped: "asyncio.Task[bool]", tasks: "Sequence[asyncio.Task[None]]") -> None:
    """Wait for a stop signal, or for a task that ends with an error, which ends the process."""
    await asyncio.wait({*tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()


def log_environment(
    rows: LogStore, options: argparse.Namespace, clocks: Clocks, event_log: EventLog, quotas: Quotas
) -> LogEnvironment:
    """Return the dependencies of the embedded log."""
    new_uuid = lambda: uuid.uuid4().bytes
    return LogEnvironment(
        rows,
        LogConfig(min_compaction_lag_ms=options.log_min_compaction_lag_ms),
        clocks.wall_ms,
        new_uuid,
        event_log.warning,
        event_log.exception,
        clocks.wall,
        quotas,
    )


def tune_garbage_collector() -> None:
    """

    Make garbage collections rarer, and exclude the objects that exist by now.
    Every commit creates objects that stay, so that the default thresholds would scan all groups many times a second
    without finding garbage.
    """
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def http_server(unready_reason: Callable[[], str], metrics: Metrics) -> HttpServer:
    """Return the server of the pages for probes and Prometheus, which may name the pod by any Host, on loopback too."""

    async def scrape(_query: str) -> Page:
        return Page(HTTPStatus.OK, metrics.page(), CONTENT_TYPE)

    paths = {**probes(unready_reason), "/metrics": Path(scrape)}
    return HttpServer(paths, "--http-listen", checks_host=False)


def stop_signals() -> "asyncio.Task[bool]":
    """Return a task that is done after SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return asyncio.create_task(stopped.wait())


class OpenedStore(NamedTuple):
    """The configured store, by the ports that it implements."""

    store: Store
    # Set if several processes use the store.
    shared: SharedStore | None = None
    # Set if the store holds records and the embedded log is enabled.
    rows: LogStore | None = None


async def open_store(options: argparse.Namespace) -> OpenedStore:
    """Open the store of --store."""
    engine, _, rest = options.store.partition(":")
    if engine == "sqlite":
        from rota_coordinator.store import sqlite

        file = sqlite.open_store(FilePath(rest), slots=options.slots)
        return OpenedStore(file, rows=file if options.log else None)
    # Imported on demand: a coordinator on SQLite needs no PostgreSQL client.
    from rota_coordinator.store import postgres, postgres_tls

    if not options.insecure and (refused := postgres_tls.problem(options.store)):
        raise StoreError(refused)
    store = await postgres.open_store(options.store, options.slot_lease_ms, options.slots)
    return OpenedStore(store, shared=store)


async def expire_offsets(service: Service, every_s: float) -> None:
    """Expire offsets periodically."""
    while True:
        await asyncio.sleep(every_s)
        service.expire_offsets()


def log_tasks(log: TopicLog | None, options: argparse.Namespace) -> "Sequence[Coroutine[None, None, None]]":
    """Return the tasks that delete and compact records periodically; they run forever, also without a log."""
    every_s = options.log_retention_check_interval_ms / 1000
    return retain_records(log, every_s), compact_records(log, every_s)


async def retain_records(log: TopicLog | None, every_s: float) -> None:
    """Apply retention periodically; runs forever, also without a log."""
    retention = None if log is None else Retention(log)
    while True:
        await asyncio.sleep(every_s)
        if retention is not None:
            await retention.run()


async def compact_records(log: TopicLog | None, every_s: float) -> None:
    """Compact logs periodically; runs forever, also without a log."""
    compaction = None if log is None else Compaction(log, log.environment.store)
    while True:
        await asyncio.sleep(every_s)
        if compaction is not None:
            await compaction.run()
