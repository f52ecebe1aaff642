"""
The work of the leader: everything that reads and changes ConsumerGroups, put together, run side by side, stopped in order.

It starts with one list of all ConsumerGroups, because claims are decided on all of them; then workers, writers and kopf's watches
run until one of them ends, or the caller cancels `run`. They stop in this order: no reconcile starts, running ones are cancelled
(the next life decides anew), and so are the writers; then the group watches, then Fleet, last kopf, which cancels whatever is left.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version as version_of_distribution
from typing import Any, NamedTuple, TypeVar

from rota_operator.autoscaling.decision import Decision as ScaleDecision
from rota_operator.cluster import handlers
from rota_operator.cluster.api import Api
from rota_operator.cluster.authority import AuthorityFile
from rota_operator.cluster.autoscalers import Autoscalers, read_group
from rota_operator.cluster.channels import Channels
from rota_operator.cluster.client_workloads import ClientWorkloads
from rota_operator.cluster.config import ClusterConfig
from rota_operator.cluster.errors import ApiError, NotFound
from rota_operator.cluster.event_recorder import EventRecorder, Fact
from rota_operator.cluster.group_autoscaler import AutoscalerPorts
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.index import ResourceIndex, key_of
from rota_operator.cluster.kafka_access import read_credentials
from rota_operator.cluster.kinds import CONSUMER_GROUP
from rota_operator.cluster.metrics import Metrics
from rota_operator.cluster.observe import Surroundings
from rota_operator.cluster.offset_resets import RESET_ENDS, OffsetResets, ResetPorts
from rota_operator.cluster.owned_index import OwnedIndex
from rota_operator.cluster.page_groups import PageGroups
from rota_operator.cluster.perform import Performer
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key, ReconcileQueue
from rota_operator.cluster.reconciler import (
    JITTER,
    Outcome,
    Reconciler,
    Reports,
    problem_of,
    record_action,
    record_outcome,
)
from rota_operator.cluster.reset_execution import ExecutionPorts, ResetExecution
from rota_operator.cluster.reset_lookups import OffsetSources
from rota_operator.cluster.reset_plans import ResetPlans
from rota_operator.cluster.shared_reads import SharedReads
from rota_operator.cluster.sidecars import ClusterFleet, FleetEnvironment
from rota_operator.cluster.status_writer import StatusWriter
from rota_operator.engines.port import Unavailable
from rota_operator.overview.view import EventKind
from rota_operator.reconcile.decision import Decision, Refusal
from rota_operator.reconcile.group import spark_version_of
from rota_operator.reconcile.observed import Object, Observed, OperatorSettings
from rota_operator.resets.machine import is_suspending
from rota_operator.spec.model import Alerts, ConsumerGroupSpec
from rota_operator.spec.status import ConsumerGroupStatus
from rota_operator.spec.validation import spec_of
from rota_operator.status.inputs import (
    ApplicationState,
    Pods,
    Sidecars,
    StatusInputs,
    application_states,
    pods_of,
)
from rota_operator.status.status import status_of
from rota_operator.timestamps import timestamp
from rota_service.event_log import EventLog

# Reconciles at a time. Each waits for the API server most of its time, and for others to share a list with.
WORKERS = 16
# For which the objects of a ConsumerGroup are trusted to be as the watches show them, since all of them were read.
TRUST_S = 60.0
# For an object of a ConsumerGroup, or its group at the coordinator: our own write is followed by those of controllers.
SETTLE_S = 0.5
# While the API server does not answer at the start, or does not know ConsumerGroups yet.
RETRY_S = 2.0
# For kopf to end.
STOP_S = 5.0
NO_DEFINITION = "the API server does not know ConsumerGroups; apply crds/consumergroups.yaml"
NOT_LISTED = "the ConsumerGroups have not been listed yet"
STOPPING = "stopping"
MANAGED_FIELDS = "managedFields"
# All parts of Rota share one version.
VERSION = version_of_distribution("rota-operator")
Result = TypeVar("Result")


class Decided(NamedTuple):
    """
    Everything that the status of a ConsumerGroup needs of its last outcome.

    The objects that were read are not kept: they are most of the memory that a ConsumerGroup takes.
    """

    # Its metadata alone, without managed fields.
    resource: Object
    # None: it is invalid.
    spec: ConsumerGroupSpec | None
    # Without its actions.
    decision: Decision
    pods: Pods | None
    applications: tuple[ApplicationState, ...]
    failure: Refusal | None
    problem: Refusal | None


class Environment(NamedTuple):
    """Everything that the process hands in."""

    config: ClusterConfig
    api: Api
    event_log: EventLog
    metrics: Metrics
    clocks: ProcessClocks
    # Sets the process's signal handlers, again after kopf has set its own.
    take_signals: Callable[[], None]


class Leading:
    """
    The leader's objects; created on a running event loop, run once.

    Invariant: `unready` is empty exactly while the watches run.
    """

    def __init__(self, environment: Environment, first_order_id: int) -> None:
        config, api, event_log = environment.config, environment.api, environment.event_log
        wall_ms = environment.clocks.wall_ms
        # Nothing of a former term is trusted.
        api.seen.forget()
        self.unready = NOT_LISTED
        # The watches run, in this process.
        self._is_leading = False
        self._environment = environment
        self._resources = ResourceIndex()
        # A timed reconcile reads all objects, a resync among them.
        self._owned = OwnedIndex(min(TRUST_S, (1 - JITTER) * config.resync_seconds))
        self._authority = AuthorityFile(config.tls_ca, event_log.warning)
        self._kafka = read_credentials(config.kafka_clusters)
        self._events = EventRecorder(api, wall_ms, config.identity, event_log.warning)
        self._status = StatusWriter(api, self._compute_status, self._export, event_log)
        self._groups = GroupWatches(
            Channels(lambda: self._authority.pem, insecure=config.insecure, token_file=config.token_file),
            GroupCallbacks(
                self._view_changed, self._status.numbers_changed, self._on_state, event_log.exception
            ),
            wall_ms,
        )
        self._page_groups = PageGroups(self._groups, wall_ms)
        self._fleet = ClusterFleet(
            FleetEnvironment(api, self._resources, self._groups, environment.clocks, event_log),
            first_order_id,
            self._status.view_changed,
            self._is_resetting,
            self._on_state,
        )
        self._resets = self._offset_resets()
        self._autoscalers = Autoscalers(self._autoscaler_ports())
        self._queue = ReconcileQueue(self._failed, WORKERS)
        # By ConsumerGroup that exists.
        self._decided_last: dict[Key, Decided] = {}

    @property
    def page_groups(self) -> PageGroups | None:
        """Return what the page shows; None while this process does not lead."""
        return self._page_groups if self._is_leading else None

    async def run(self) -> None:
        """Lead until cancelled. Raises what a task has failed with, WatchFailed, BindError, CertificateError."""
        try:
            await self._run()
        finally:
            for key in self._decided_last:
                self._environment.metrics.remove(key)

    async def _run(self) -> None:
        config, event_log = self._environment.config, self._environment.event_log
        self.unready = NOT_LISTED
        version = await self._first(self._environment.api.version)
        await self._first(self._list)
        reconciler = self._reconciler(version)
        # kopf's end cancels every task that was started after it, and a cancelled stream is not ended for its sidecar:
        # Fleet starts later, and has ended all streams before.
        async with self._watching() as watching, self._fleet.serve(config) as address:
            event_log.info("fleet", f"fleet on {address}", address=address)
            await self._run_tasks(
                watching,
                self._queue.run(partial(self._reconcile, reconciler)),
                self._status.run(),
                self._events.run(),
                *self._fleet.tasks(),
                self._resets.run(),
                self._autoscalers.run(),
                *((self._page_groups.run(),) if config.page_address else ()),
                self._authority.follow(self._authority_changed),
                *self._clients(),
            )

    async def _run_tasks(
        self, watching: "asyncio.Task[None]", *coroutines: Coroutine[Any, Any, None]
    ) -> None:
        """Run tasks until one of them, or the watches, end; then end the tasks. Raises what a task has failed with."""
        tasks = [asyncio.create_task(each) for each in coroutines]
        self.unready, self._is_leading = "", True
        self._environment.event_log.info(
            "leading", f"reconciling {len(self._resources.keys())} ConsumerGroups"
        )
        try:
            await asyncio.wait({*tasks, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.unready, self._is_leading = STOPPING, False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._groups.close()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator["asyncio.Task[None]"]:
        """Run kopf's watches within the block. Raises what they have failed with."""
        stop = asyncio.Event()
        watching = asyncio.create_task(self._watch(stop))
        try:
            yield watching
        finally:
            stop.set()
            await asyncio.wait({watching}, timeout=STOP_S)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not watching.cancelled():
            watching.result()

    async def _watch(self, stop: asyncio.Event) -> None:
        environment = self._environment
        note, warn = environment.api.seen.note, environment.event_log.warning
        on_event = handlers.Handlers(self._resources, self._enqueue, note, warn, self._owned)
        registry = handlers.registry_of(on_event, environment.api.connection_info)
        await handlers.watch(registry, environment.config.namespaces, stop, environment.take_signals)

    async def _first(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat a request until the API server answers it."""
        while True:
            try:
                return await request()
            except NotFound:
                self.unready = NO_DEFINITION
            except ApiError as error:
                self.unready = str(error)
            self._environment.event_log.warning(self.unready)
            await asyncio.sleep(RETRY_S)

    async def _list(self) -> None:
        """Fill the index, and queue every ConsumerGroup."""
        for namespace in self._environment.config.namespaces or (None,):
            async for body in self._environment.api.list(CONSUMER_GROUP, namespace):
                self._resources.update(body)
                self._queue.add(key_of(body))

    def _authority_changed(self) -> None:
        """Pass the authority of now on: to the ConfigMaps, and to the channels to coordinators."""
        self._environment.event_log.info(
            "authority", "the certificate authority has changed; passing it on to sidecars and clients"
        )
        self._groups.reconnect()
        for key in self._resources.keys():  # noqa: SIM118  a method, of no mapping
            self._queue.add(key)

    def _settings(self) -> OperatorSettings:
        config = self._environment.config
        return OperatorSettings(
            sidecar_image=config.sidecar_image,
            fleet_address=config.fleet_address,
            authority=self._authority.text,
            insecure=config.insecure,
            manages_spark=config.spark,
        )

    def _clients(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the task for workloads that belong to no group; without an authority they have nothing to get."""
        if self._authority.pem is not None:
            environment = self._environment
            namespaces, warn = environment.config.namespaces, environment.event_log.warning
            yield ClientWorkloads(environment.api, self._settings, namespaces, warn).run()

    def _reconciler(self, version: tuple[int, int]) -> Reconciler:
        environment = self._environment
        config = environment.config
        return Reconciler(
            environment.api,
            Surroundings(
                self._resources,
                self._groups,
                SharedReads(environment.api),
                self._owned,
                self._settings,
                version,
                self._kafka,
                self._fleet.drains.progress,
            ),
            Performer(
                environment.api,
                self._groups,
                self._fleet,
                partial(record_action, self._events),
                self._owned,
            ),
            self._groups,
            Reports(self._decided, self._gone),
            float(config.resync_seconds),
        )

    def _is_resetting(self, key: Key) -> bool:
        return self._resets.is_active(key)

    def _offset_resets(self) -> OffsetResets:
        environment = self._environment
        api, server, access = environment.api, self._fleet.server, self._groups.reset_access
        plans = ResetPlans(api, timestamp)
        source = OffsetSources(server, access).open
        ports = ResetPorts(
            api,
            environment.clocks.wall_ms,
            self._reset_written,
            self._reset_event,
            environment.event_log.warning,
            environment.event_log.exception,
        )
        return OffsetResets(ports, ResetExecution(ExecutionPorts(api, server, access, source), plans))

    def _autoscaler_ports(self) -> AutoscalerPorts:
        environment = self._environment
        return AutoscalerPorts(
            environment.api,
            environment.clocks.wall_ms,
            partial(read_group, self._groups),
            self._fleet.server.order,
            lambda key: bool(self._status.written(key).scaling.decisions),
            self._scale_decided,
            self._status.view_changed,
            self._scaling_event,
            environment.event_log.exception,
        )

    def _scale_decided(self, key: Key, decision: ScaleDecision) -> None:
        before = decision.inputs.replicas
        self._environment.metrics.scale_decided(key, before, decision.replicas, decision.reason)

    def _scaling_event(self, key: Key, fact: Fact) -> None:
        """Record an Event about the number of pods, in the history that the page shows as well."""
        if (last := self._decided_last.get(key)) is not None:
            self._events.record(last.resource, fact)
            self._groups.record_event(key, EventKind.SCALE, fact.message)

    def _reset_written(self, key: Key, resource: Object) -> None:
        """Take over the record of a reset: the settings of the sidecars may change by it."""
        self._status.observed(key, resource)
        self._queue.add(key)

    def _reset_event(self, resource: Object, fact: Fact) -> None:
        """Record an Event about a reset; its end is in the history that the page shows as well."""
        self._events.record(resource, fact)
        if fact.reason in RESET_ENDS:
            self._groups.record_event(key_of(resource), EventKind.RESET, fact.message)

    async def _reconcile(self, reconciler: Reconciler, key: Key) -> float | None:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        outcome = "error"
        try:
            again_s = await reconciler.reconcile(key)
            outcome = "success"
            return again_s
        finally:
            self._environment.metrics.reconciled(outcome, clock() - started_s)

    def _enqueue(self, key: Key, *, is_own: bool) -> bool:
        """Reconcile a ConsumerGroup: at once if it has changed itself."""
        return self._queue.add(key, 0.0 if is_own else SETTLE_S)

    def _view_changed(self, key: Key) -> None:
        self._status.view_changed(key)
        self._page_groups.changed(key)

    def _on_state(self, key: Key) -> None:
        self._queue.add(key, SETTLE_S)

    def _failed(self, key: Key, error: Exception) -> None:
        """Log a failed reconcile; what is neither the API server's answer nor a coordinator's is a bug."""
        if isinstance(error, (ApiError, Unavailable, TimeoutError)):
            reason = str(error) or "it took too long"
            self._environment.event_log.warning(f"reconciling {key.namespace}/{key.name} failed: {reason}")
        else:
            self._environment.event_log.exception(error)

    def _decided(self, key: Key, outcome: Outcome) -> None:
        was = self._decided_last.get(key)
        self._decided_last[key] = decided_of(outcome)
        # Our own finalizer is no reason to reconcile again.
        self._resources.refresh(outcome.observed.resource)
        record_outcome(self._events, None if was is None else was.problem, outcome)
        self._autoscalers.decided(key, outcome)
        self._resets.decided(key, outcome.observed.resource, is_accepted=outcome.decision.refusal is None)
        self._status.observed(key, outcome.observed.resource)

    def _gone(self, key: Key) -> None:
        last = self._decided_last.pop(key, None)
        if last is not None:
            self._events.forget(last.resource["metadata"]["uid"])
        self._status.forget(key)
        self._fleet.forget(key)
        self._resets.forget(key)
        self._autoscalers.forget(key)
        self._environment.metrics.remove(key)
        # A watch that was interrupted does not report what was deleted meanwhile.
        if (claim := self._resources.drop(key)) is not None:
            for rival in self._resources.rivals(claim):
                self._queue.add(Key(rival.namespace, rival.name))

    def _export(self, key: Key, status: Mapping[str, Any]) -> None:
        """Update the series of a ConsumerGroup whose status was computed."""
        alerts = None if is_suspending(status) else alerts_of(self._decided_last[key].spec)
        self._environment.metrics.update(key, status, alerts)

    def _compute_status(self, key: Key, former: ConsumerGroupStatus) -> ConsumerGroupStatus | None:
        last = self._decided_last.get(key)
        if last is None:
            return None
        now_ms = self._environment.clocks.wall_ms()
        return status_of(
            StatusInputs(
                resource=last.resource,
                spec=last.spec,
                former=former,
                decision=last.decision,
                now=timestamp(now_ms),
                now_ms=now_ms,
                group=self._groups.view(key),
                progress=self._groups.progress(key),
                pods=last.pods,
                applications=last.applications,
                failure=last.failure,
                problem=self._groups.problem(key),
                cluster_id=self._groups.cluster_id(key),
                kafka_problem=self._groups.kafka_problem(key),
                sidecars=Sidecars(
                    VERSION,
                    self._groups.versions(key),
                    self._fleet.settings.refusals(key),
                    self._fleet.fenced.messages(key),
                ),
                autoscaler=self._autoscalers.state(key),
            )
        )


def decided_of(outcome: Outcome) -> Decided:
    """Return what the status needs of an outcome."""
    observed = outcome.observed
    applications = application_states(observed.spark, observed.resource)
    metadata = {name: each for name, each in observed.resource["metadata"].items() if name != MANAGED_FIELDS}
    return Decided(
        resource={"metadata": metadata},
        spec=spec_of(observed.resource),
        decision=replace(outcome.decision, actions=()),
        pods=_pods_of(observed, applications),
        applications=applications,
        failure=outcome.failure,
        problem=problem_of(outcome),
    )


def _pods_of(observed: Observed, applications: Sequence[ApplicationState]) -> Pods | None:
    """Return the pods of the workload, or the SparkApplications."""
    if observed.target is not None:
        return pods_of(observed.target, observed.refused_pods)
    if not spark_version_of(observed.resource):
        return None
    return Pods(len(applications), sum(each.is_running for each in applications))


def alerts_of(spec: ConsumerGroupSpec | None) -> Alerts | None:
    """Return the thresholds in force: the defaults while the spec is invalid, and none while the group is suspended."""
    if spec is None:
        return Alerts()
    return None if spec.suspend else spec.monitoring.alerts
