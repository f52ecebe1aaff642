"""
Runs a folder of manifests: a coordinator, all workloads with their sidecars, the Fleet server, watches and displays.

Called by the command line. All manifests are validated before anything is started.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio

from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_operator.local.autoscaler import Autoscaler, AutoscalerPorts
from rota_operator.local.commands import (
    LocalPaths,
    app_command,
    log_file,
    replica_name,
    settings_file,
    sidecar_command,
    token_file,
)
from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.group_watches import GroupWatches, is_coordinated_locally, missing_library
from rota_operator.local.offset_resets import OffsetResets, ResetPorts
from rota_operator.local.offset_sources import open_source
from rota_operator.local.paths import ANY_PORT, CannotStart, free_address
from rota_operator.local.processes import Command, Processes, ReplicaEvent
from rota_operator.local.replica_secrets import NAMESPACE, Replica, ReplicaSecrets
from rota_operator.local.spark_size import SparkSize, follow_partitions, missing_spark
from rota_operator.local.workload import REPLICAS_MAX, LocalWorkload
from rota_operator.manifests.documents import BYTES_MAX, Document, InvalidManifest, decode, parse_documents
from rota_operator.manifests.resources import ConsumerGroup, Manifests, Workload, collect_resources
from rota_operator.manifests.spark import KIND as SPARK_KIND
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import EventKind
from rota_operator.plan.supported import unsupported
from rota_operator.replicas.events import DrainFailed, ProcessRole, ReplicaPolicy, ReplicaStopped, Restarting
from rota_operator.replicas.replica_set import ReplicaSet
from rota_operator.spec.model import ROTA
from rota_operator.spec.validation import FieldError
from rota_operator.timestamps import timestamp
from rota_proto.fleet.v1.fleet_pb2 import SidecarOrder

SUFFIXES = (".yaml", ".yml")
COORDINATOR_GRACE_S = 10.0
# Interval of connection attempts while the coordinator starts.
CHANNEL = (("grpc.max_reconnect_backoff_ms", 200), ("grpc.enable_http_proxy", 0))


def load(paths: list[Path], *, on_kafka: bool = False) -> Manifests:
    """Parse and validate all manifests in the files and folders. Raises InvalidManifest, CannotStart."""
    found: list[Document] = []
    for file in _files(paths):
        try:
            with file.open("rb") as manifest:
                data = manifest.read(BYTES_MAX + 1)
        except OSError as error:
            raise CannotStart(
                f"cannot read {file} ({error.strerror}); check that it exists and is readable"
            ) from None
        found += parse_documents(str(file), decode(str(file), data))
    manifests = collect_resources(found)
    wrong = [
        group.document.wrong(error.path, error.full_message)
        for group in manifests.groups.values()
        for error in (*unsupported(group.spec), *_conflicts(group, manifests, on_kafka=on_kafka))
    ]
    if wrong:
        raise InvalidManifest(wrong)
    if not manifests.workloads:
        raise CannotStart(
            "no workload to run; add a Deployment, a StatefulSet, or a ConsumerGroup with spark.enabled to the manifests"
        )
    return manifests


def _conflicts(group: ConsumerGroup, manifests: Manifests, *, on_kafka: bool) -> Iterator[FieldError]:
    """Check a group's coordination against `--kafka` and the other groups."""
    if on_kafka and group.spec.speaks_rota and group.spec.coordination == "Rota":
        wrong = (
            "must not be Rota with --kafka, which replaces Rota's servers by Kafka brokers; omit one of them"
        )
        yield FieldError(("spec", "coordination"), wrong)
    elif not on_kafka and is_rota_over_kafka(group):
        for other in manifests.groups.values():
            if other.spec.speaks_rota:
                wrong = (
                    f"must not be Rota over topics in Kafka while {'/'.join(other.name)} has its topics in Rota: one "
                    "coordinator supports only one of the two; run them separately, each with its own --home"
                )
                yield FieldError(("spec", "coordination"), wrong)
                return


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        else:
            yield path


Tasks = Sequence["asyncio.Task[None]"]
# Displays that run beside the processes and show their state.
Display = Callable[["Runner"], Coroutine[Any, Any, None]]


class Runner:
    """A run of manifests; create on a running event loop. Raises CannotStart."""

    def __init__(
        self,
        manifests: Manifests,
        paths: LocalPaths,
        print_line: Callable[[str], None],
        wall_ms: Callable[[], int],
    ) -> None:
        missing = missing_library(manifests.groups.values(), paths) or missing_spark(manifests, paths)
        if missing:
            raise CannotStart(missing)
        self._manifests = manifests
        self.paths = paths
        self._print_line = print_line
        self._groups: dict[tuple[str, str, str], ConsumerGroup] = {
            (group.spec.scale_target_ref.kind, group.name.namespace, group.spec.scale_target_ref.name): group
            for group in manifests.groups.values()
            if group.spec.scale_target_ref is not None
        } | {
            (SPARK_KIND, *group.name): group
            for group in manifests.groups.values()
            if group.spec.spark.enabled
        }
        self._coordinator = Processes(
            ReplicaSet(ReplicaPolicy(has_sidecar=False)), self._coordinator_command, self._coordinator_event
        )
        self.workloads = [self._local_workload(workload) for workload in manifests.workloads.values()]
        overview = Overview(
            paths.servers, [(group.group_id, "/".join(group.name)) for group in manifests.groups.values()]
        )
        self.dashboard = DashboardState(overview, lambda: [each.view() for each in self.workloads], wall_ms)

        self._secrets = ReplicaSecrets()
        callbacks = FleetCallbacks(
            self._secrets.authenticate, lambda _, report: self.dashboard.add_report(report)
        )
        self._fleet = FleetServer(callbacks, order_ids(secrets.randbits(64)))
        self._channel = grpc.aio.insecure_channel(self.paths.coordinator.removeprefix(ROTA), options=CHANNEL)
        ports = ResetPorts(
            self.dashboard,
            lambda: self._fleet.connected,
            self._send_order,
            lambda group: open_source(group, self.paths, self._channel),
            wall_ms,
            self._record_reset,
        )
        self._resets = OffsetResets(
            list(manifests.groups.values()),
            ports,
            paths.home / "resets",
            lambda group: settings_file(paths, group),
            timestamp,
        )
        self.reset = self._resets.reset
        self._autoscalers = [
            Autoscaler(
                group, workload, AutoscalerPorts(self.dashboard, self._send_order, self._scale, wall_ms)
            )
            for workload in self.workloads
            if (group := workload.group) is not None and group.spec.autoscaling.enabled
        ]

        self._spark_sizes = [
            (group.group_id, self._spark_size(group, workload))
            for workload in self.workloads
            if (group := workload.group) is not None
            and group.spec.spark.enabled
            and group.spec.replicas is None
        ]

    async def run(self, stopping: asyncio.Event, displays: Sequence[Display] = ()) -> None:
        """Run until `stopping` is set or a task fails, then stop all processes; re-raises unexpected exceptions."""
        self._resets.begin_run()
        async with serve_fleet(self._fleet, ANY_PORT) as address, self._channel as channel:
            self.paths = replace(self.paths, fleet=address)
            groups = list(self._manifests.groups.values())
            if self._has_coordinator:
                self._coordinator.scale(1)
            for workload in self.workloads:
                workload.start()
            watches = GroupWatches(self.paths, channel, self.dashboard, self._print_line)
            watching = [
                asyncio.ensure_future(each)
                for each in (
                    watches.run(groups),
                    self.dashboard.run_recording(),
                    self._resets.run(),
                    *(each.run() for each in self._autoscalers),
                    *(follow_partitions(*each, self.dashboard) for each in self._spark_sizes),
                )
            ]
            showing = [asyncio.ensure_future(show(self)) for show in displays]
            try:
                await self._run_until(stopping, watching, showing)
            finally:
                await cancel_all(showing)

    async def _run_until(self, stopping: asyncio.Event, watching: Tasks, showing: Tasks) -> None:
        stop_waiter = asyncio.ensure_future(stopping.wait())
        failed = [self._coordinator.failed, *(each.processes.failed for each in self.workloads)]
        any_end: list[asyncio.Future[Any]] = [stop_waiter, *failed, *watching, *showing]
        try:
            await asyncio.wait(any_end, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_waiter.cancel()
            await asyncio.gather(*(each.processes.stop() for each in self.workloads))
            # The Fleet server waits for open streams.
            await cancel_all(watching)
            # The coordinator stops last: members that stop still commit there.
            await self._coordinator.stop()
            for each in (*failed, *watching, *showing):
                if each.done() and not each.cancelled():
                    each.result()
            for each in failed:
                each.cancel()

    async def coordinator_ready(self) -> None:
        """Wait until the local coordinator accepts connections; returns at once if there is none."""
        if self._has_coordinator:
            await self._channel.channel_ready()

    def force_stop(self) -> None:
        """Skip the drains of all stopping workloads."""
        for workload in self.workloads:
            workload.processes.force_stop()

    def scale(self, name: str, replicas: int) -> str:
        """
        Set the number of replicas of a workload; return the error, or an empty string.

        The name may omit the namespace if it is unambiguous.
        """
        found = [each for each in self.workloads if name in (each.name, each.short_name)]
        if len(found) != 1:
            what = "ambiguous workload name" if found else "unknown workload"
            return f'{what} "{name}"; expected one of {", ".join(each.name for each in self.workloads)}'
        if not 0 <= replicas <= REPLICAS_MAX:
            return f"replicas must be from 0 to {REPLICAS_MAX}; got {replicas}"
        (workload,) = found
        scaling = None if workload.group is None else workload.group.spec.autoscaling
        is_scaled = scaling is not None and scaling.enabled and not scaling.dry_run
        reason = "by request; the next decision of the autoscaler may overrule it" if is_scaled else ""
        self._scale(workload, replicas, reason)
        return ""

    def _scale(self, workload: LocalWorkload, replicas: int, reason: str = "") -> None:
        message = f"{workload.short_name} scaled from {workload.wanted} to {replicas} replicas"
        message += f": {reason}" if reason else ""
        workload.scale(replicas)
        self._print_line(message)
        self.dashboard.record_event(workload.group_id, EventKind.SCALE, message)

    @property
    def _has_coordinator(self) -> bool:
        groups = self._manifests.groups.values()
        return not self.paths.kafka or any(is_coordinated_locally(group, self.paths) for group in groups)

    async def _send_order(self, replica: str, order: SidecarOrder, within_s: float) -> str:
        return str((await self._fleet.order(SidecarRef(NAMESPACE, replica), order, within_s)).error)

    def _record_reset(self, group_id: str, message: str) -> None:
        self._print_line(f"group {group_id}: {message}")
        self.dashboard.record_event(group_id, EventKind.RESET, message)

    def _local_workload(self, workload: Workload) -> LocalWorkload:
        group = self._groups.get((workload.kind, *workload.name))

        def command(number: int, part: ProcessRole) -> Command:
            if part is ProcessRole.SIDECAR:
                assert group is not None, "a workload without a ConsumerGroup has no sidecar"
                name = replica_name(workload, number)
                self._secrets.issue(Replica(name, group.group_id), token_file(self.paths, name))
                return sidecar_command(workload, group, number, self.paths, free_address())
            return app_command(self._manifests, workload, group, number, self.paths)

        return LocalWorkload(workload, group, command, self._replica_event)

    def _spark_size(self, group: ConsumerGroup, workload: LocalWorkload) -> SparkSize:
        return SparkSize(group.spec.spark, lambda: workload.wanted, partial(self._scale, workload))

    def _replica_event(self, workload: LocalWorkload, event: ReplicaEvent) -> None:
        replica = workload.replica(event.replica)
        if isinstance(event, Restarting):
            message = f"{replica}: {event.part.value} exited with code {event.code}; restarting"
            self._print_line(f"{message} (log: {log_file(self.paths, replica, event.part.value)})")
            if event.part is ProcessRole.SIDECAR:
                # The reports of the stopped replica are outdated.
                self.dashboard.remove_replica(workload.group_id, replica)
        elif isinstance(event, DrainFailed):
            message = f"{replica}: stopping without a complete drain: {event.reason}"
            self._print_line(message)
        else:
            message = f"{replica}: stopped"
            self._print_line(message)
            self.dashboard.remove_replica(workload.group_id, replica)
            self._secrets.revoke(Replica(replica, workload.group_id or ""))
        self.dashboard.record_event(workload.group_id, EventKind.PROCESS, message)

    def _coordinator_event(self, event: ReplicaEvent) -> None:
        if isinstance(event, Restarting):
            log = self.paths.home / "logs" / "coordinator.log"
            self._print_line(f"coordinator exited with code {event.code}; restarting (log: {log})")
        elif isinstance(event, ReplicaStopped):
            self._print_line("coordinator: stopped")

    def _coordinator_command(self, number: int, part: ProcessRole) -> Command:
        home, address = self.paths.home, self.paths.coordinator.removeprefix(ROTA)
        argv = [
            str(self.paths.python),
            "-m",
            "rota_coordinator",
            f"--store=sqlite:{home / 'coordinator.sqlite'}",
            f"--listen={address}",
            "--http-listen=127.0.0.1:0",
            # All members start within a moment: a long initial rebalance delay would only slow down the
            # start.
            "--group-initial-rebalance-delay-ms=500",
            # With its own log, the coordinator would accept offsets of the log's topics only.
            *(["--no-log"] if any(map(is_rota_over_kafka, self._manifests.groups.values())) else []),
            "--log-format=json",
        ]
        return Command(argv, {}, home, home / "logs" / "coordinator.log", COORDINATOR_GRACE_S)


async def cancel_all(tasks: Tasks) -> None:
    """Cancel the tasks and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def is_rota_over_kafka(group: ConsumerGroup) -> bool:
    """True if Rota coordinates the group and its topics are in Kafka."""
    return group.spec.coordination == "Rota" and not group.spec.speaks_rota
