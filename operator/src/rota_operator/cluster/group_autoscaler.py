"""
Scales the workload of one ConsumerGroup by the decisions of `rota_operator.autoscaling`. Made and polled by `autoscalers`.

At each poll the group is measured, and the decision recorded. More pods are one request to the workload's scale subresource. Fewer go
through the state machine of `scale_down`: the victims drain, pods of a Deployment get the lowest deletion cost, then the number falls.
A rebalance with the same number is an order to the sidecar whose member leads the group.
Each change reads the workload first, and is bound to the version that was read: a workload that is rolled out, or that another client
has scaled meanwhile, is left alone. Drains expire by themselves, so an operator that ends at any step leaves no pod drained; deletion
costs that it leaves are removed by the next scale-down.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from rota_operator.autoscaling.decision import Decision, decide, needed_replicas
from rota_operator.autoscaling.inputs import Inputs, Knowledge
from rota_operator.autoscaling.measure import Measurement, measure
from rota_operator.autoscaling.rebalance_orders import (
    ANSWER_S,
    rebalance_order,
    rebalance_problem,
    rebalance_receivers,
)
from rota_operator.autoscaling.scale_down import (
    Action,
    Begin,
    DrainAnswered,
    Event,
    Finished,
    Idle,
    OrderDrain,
    ReplicasObserved,
    RolloutBegan,
    ScaleAnswered,
    ScaleDown,
    SetReplicas,
    Tick,
    VictimEnded,
    VictimOrder,
    choose_victims,
)
from rota_operator.cluster.api import Api, loop_time
from rota_operator.cluster.errors import ApiError, Conflict, NotFound
from rota_operator.cluster.event_recorder import NORMAL, WARNING, Fact
from rota_operator.cluster.kinds import POD, workload_kind
from rota_operator.cluster.queues import Key
from rota_operator.cluster.scaling_record import changed, history_of, is_new, rebalanced, recorded
from rota_operator.cluster.seen_versions import order_of
from rota_operator.fleet.principal import SidecarRef
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.scaling import (
    DELETION_COST,
    VICTIM_COST,
    ScaleTarget,
    candidates_of,
    has_victim_cost,
    scale_target_of,
)
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.status import Scaling
from rota_operator.status.inputs import AutoscalerState
from rota_operator.timestamps import milliseconds
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Of one change, while a controller writes the status of the workload.
ATTEMPTS_MAX = 8
FEW_SAMPLES = "the load was not measured often enough yet"


class Reading(NamedTuple):
    """A group as it is now, with the live reports of its sidecars by the names of their pods."""

    view: GroupView
    reports: Mapping[str, pb.SidecarReport]


class Subject(NamedTuple):
    """A ConsumerGroup that Rota scales, and its workload."""

    uid: str
    spec: ConsumerGroupSpec
    target: ScaleTarget


class AutoscalerPorts(NamedTuple):
    """Everything that autoscalers need of the leader."""

    api: Api
    wall_ms: Callable[[], int]
    # None: the group is not watched.
    read: Callable[[Key, ConsumerGroupSpec], Reading | None]
    # Sends an order to a sidecar, and waits so many seconds for its answer.
    order: Callable[[SidecarRef, pb.SidecarOrder, float], Awaitable[pb.OrderAnswer]]
    # The API server holds a decision in the status: the plan applies spec.replicas no more.
    is_recorded: Callable[[Key], bool]
    # A decision that is not the one before it.
    on_decision: Callable[[Key, Decision], None]
    # The state for the status has changed.
    on_state: Callable[[Key], None]
    record_event: Callable[[Key, Fact], None]
    on_exception: Callable[[Exception], None]


class GroupAutoscaler:
    """
    The autoscaler of one ConsumerGroup; thread-confined to one event loop.

    Invariant: at most one change of the number of pods is under way.
    """

    def __init__(self, key: Key, ports: AutoscalerPorts, subject: Subject, former: Scaling) -> None:
        """Begin with the record that the status holds."""
        self._key = key
        self._ports = ports
        self._subject = subject
        self._record = former
        self._history = history_of(former)
        self._last: Measurement | None = None
        self._scale_down = ScaleDown()
        self._problem = FEW_SAMPLES
        # The change that is under way: its reason for people, and the number that is set.
        self._reason = ""
        self._setting: int | None = None
        self._is_acting = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> AutoscalerState:
        """State for the status."""
        return AutoscalerState(self._record, self._problem)

    @property
    def polling_interval_s(self) -> int:
        """Time between two polls, in seconds."""
        return self._subject.spec.autoscaling.polling_interval

    def close(self) -> None:
        """End what is under way; drains expire."""
        for task in self._tasks:
            task.cancel()

    def update(self, subject: Subject) -> None:
        """Take over what a reconcile has read; it may have read the workload before the last change of this autoscaler."""
        before, now = self._subject.target, subject.target
        if before.workload == now.workload:
            if order_of(now.resource_version) < order_of(before.resource_version):
                subject = subject._replace(target=before)
            self._say_overruled(subject)
        self._subject = subject
        if not isinstance(self._scale_down.state, Idle):
            self._handle(ReplicasObserved(subject.target.replicas))
        if subject.target.is_rolling_out:
            self._handle(RolloutBegan())

    def _say_overruled(self, subject: Subject) -> None:
        """Record that a number was changed that the next decision may overrule."""
        if subject.spec.autoscaling.dry_run or not self._ports.is_recorded(self._key):
            return
        before, now = self._subject, subject
        if now.target.replicas not in (before.target.replicas, self._setting):
            message = (
                f"another client scaled {now.target.text} from {before.target.replicas} to {now.target.replicas} replicas; the "
                "autoscaler's next decision may overrule it"
            )
            self._ports.record_event(self._key, Fact(NORMAL, "ReplicasChanged", message))
        if now.spec.replicas not in (None, before.spec.replicas):
            message = f"spec.replicas is {now.spec.replicas} now, which is the initial number only; the autoscaler's number stays"
            self._ports.record_event(self._key, Fact(NORMAL, "ReplicasChanged", message))

    def poll(self) -> None:
        """Measure, decide, record the decision, and begin what was decided."""
        spec = self._subject.spec
        reading = self._ports.read(self._key, spec)
        if reading is None:
            return
        target = self._subject.target
        self._last = measure(
            self._last, reading.view, reading.reports, target.replicas, self._ports.wall_ms()
        )
        limit = spec.delivery.rate_limit.max
        sample = replace(
            self._last.sample,
            is_rolling_out=target.is_rolling_out,
            service_rate_max=float(limit) if limit else None,
        )
        self._history = self._history.with_sample(sample, spec.autoscaling)
        if sample.members and self._history.start_ms is None:
            self._spawn(self._look_at_starts())
        decision = decide(self._history, spec.autoscaling)
        assert decision is not None, "there is a sample"
        self._note(decision)
        if not spec.autoscaling.dry_run and self._ports.is_recorded(self._key):
            self._apply(decision)

    async def _look_at_starts(self) -> None:
        """Take over how long the pods that are there took to start, until a growth tells it."""
        try:
            start_ms = start_ms_of(await self._pods())
        except ApiError:
            # It stays unknown, and the next poll looks again.
            return
        self._history = self._history.with_earlier_start(start_ms)

    async def _pods(self) -> list[Object]:
        selector = f"{CLAIM_LABEL}={self._subject.uid}"
        return [each async for each in self._ports.api.list(POD, self._key.namespace, selector)]

    def _note(self, decision: Decision) -> None:
        """Record a decision."""
        spec, former = self._subject.spec.autoscaling, self._record
        needed = needed_replicas(decision.inputs, spec)
        self._record = recorded(former, decision, self._history, needed, dry_run=spec.dry_run)
        self._problem = problem_of(decision.inputs, self._problem, spec.fallback.failure_threshold)
        if is_new(former, decision):
            self._ports.on_decision(self._key, decision)
            if spec.dry_run and decision.is_change:
                change = (
                    "let the group rebalance"
                    if decision.is_rebalance
                    else f"scale {self._subject.target.text} from {decision.inputs.replicas} to {decision.replicas} replicas"
                )
                message = f"would {change} (dry run): {decision.reason}: {decision.explanation}"
                self._ports.record_event(self._key, Fact(NORMAL, "ScalingRecommended", message))
        self._ports.on_state(self._key)

    def _apply(self, decision: Decision) -> None:
        before, after = decision.inputs.replicas, decision.replicas
        if not decision.is_change or self._is_acting or not isinstance(self._scale_down.state, Idle):
            return
        self._is_acting = True
        self._reason = f"{decision.reason}: {decision.explanation}"
        if decision.is_rebalance:
            self._spawn(self._rebalance(decision))
            return
        self._spawn(self._grow(before, after) if after > before else self._begin_scale_down(before, after))

    async def _rebalance(self, decision: Decision) -> None:
        """Order the member that leads the group to join again."""
        try:
            reading = self._ports.read(self._key, self._subject.spec)
            if reading is None:
                return
            # Also if it fails: an order without an answer may have been executed.
            at_ms = self._ports.wall_ms()
            self._history = self._history.with_rebalance(at_ms, decision.inputs.hot_partitions)
            self._record = rebalanced(self._record, at_ms)
            self._ports.on_state(self._key)
            pods, order = rebalance_receivers(reading.reports), rebalance_order(decision)
            answers = await asyncio.gather(
                *(self._ports.order(SidecarRef(self._key.namespace, each), order, ANSWER_S) for each in pods)
            )
        finally:
            self._is_acting = False
        problem = rebalance_problem({pod: each.error for pod, each in zip(pods, answers, strict=True)})
        if problem:
            message = f"group {reading.view.group_id} does not rebalance: {problem}"
            self._ports.record_event(self._key, Fact(WARNING, "RebalanceFailed", message))
        else:
            message = f"ordered a rebalance of group {reading.view.group_id}: {self._reason}"
            self._ports.record_event(self._key, Fact(NORMAL, "RebalanceOrdered", message))

    async def _grow(self, before: int, after: int) -> None:
        try:
            problem = await self._set_replicas(before, after)
        finally:
            self._is_acting = False
        if not problem:
            self._history = self._history.with_change(self._ports.wall_ms(), before, after)
        self._report(before, after, problem)

    async def _begin_scale_down(self, before: int, after: int) -> None:
        """Choose the victims, and begin to drain them."""
        try:
            target = self._subject.target
            pods = await self._pods()
            reading = self._ports.read(self._key, self._subject.spec)
            if reading is None or self._subject.target.replicas != before:
                return
            candidates = [*candidates_of(pods, reading.view)]
            victims = choose_victims(candidates, before - after, target.order)
            # Of a scale-down that another life of the operator has begun.
            left = [each["metadata"]["name"] for each in pods if has_victim_cost(each)]
            await self._set_costs([each for each in left if each not in victims], None)
            self._history = self._history.with_change(self._ports.wall_ms(), before, after)
            self._handle(Begin(before, after, victims))
        finally:
            self._is_acting = False

    def tick(self) -> None:
        """Report deadlines, and victims that have left the group without an answer: nothing of them is in flight."""
        state = self._scale_down.state
        if isinstance(state, Idle):
            return
        reading = self._ports.read(self._key, self._subject.spec)
        if reading is not None:
            joined = {each.name for each in reading.view.members if each.member_id is not None}
            for victim in state.plan.victims:
                if victim not in joined and victim not in reading.reports:
                    self._handle(VictimEnded(victim))
        self._handle(Tick())

    def _handle(self, event: Event) -> None:
        state = self._scale_down.state
        victims = () if isinstance(state, Idle) else state.plan.victims
        for action in self._scale_down.step(event, int(loop_time() * 1000)):
            self._perform(action, victims)

    def _perform(self, action: Action, victims: tuple[str, ...]) -> None:
        match action:
            case OrderDrain(victim, within_ms):
                self._spawn(self._drain(victim, within_ms))
            case SetReplicas(replicas, chosen):
                self._spawn(self._shrink(replicas, chosen))
            case Finished(before, after, problem):
                if problem:
                    self._spawn(self._clear_costs(victims))
                self._report(before, after, problem)
            case _:
                assert_never(action)

    async def _drain(self, victim: str, within_ms: int) -> None:
        order = pb.SidecarOrder(drain=pb.Drain(within_ms=within_ms))
        answer = await self._ports.order(SidecarRef(self._key.namespace, victim), order, within_ms / 1000)
        self._handle(DrainAnswered(victim, answer.error))

    async def _shrink(self, replicas: int, victims: tuple[str, ...]) -> None:
        state = self._scale_down.state
        if isinstance(state, Idle):
            return
        try:
            await self._set_costs(victims, VICTIM_COST)
            problem = await self._set_replicas(state.plan.before, replicas)
        except ApiError as error:
            problem = str(error)
        self._handle(ScaleAnswered(problem))

    async def _clear_costs(self, victims: tuple[str, ...]) -> None:
        await self._set_costs(victims, None)

    async def _set_costs(self, pods: list[str] | tuple[str, ...], cost: str | None) -> None:
        """Set or remove the deletion costs of pods that exist. Raises ApiError."""
        if self._subject.target.order is VictimOrder.HIGHEST_ORDINAL:
            return
        changes = {"metadata": {"annotations": {DELETION_COST: cost}}}
        for pod in pods:
            try:
                await self._ports.api.patch(POD, self._key.namespace, pod, changes)
            except NotFound:
                continue

    async def _set_replicas(self, before: int, after: int) -> str:
        """Set the number of pods, unless another client has changed it; returns what is wrong. Raises ApiError."""
        target = self._subject.target
        kind, where = workload_kind(target.workload), (self._key.namespace, target.workload.name)
        self._setting = after
        try:
            for _ in range(ATTEMPTS_MAX):
                found = await self._ports.api.find(kind, *where)
                if found is None:
                    return f"{target.text} does not exist"
                if problem := change_problem(found, before, after):
                    return problem
                try:
                    scale = await self._ports.api.scale(kind, *where, after, version_of(found))
                except Conflict:
                    continue
                newest = replace(target, replicas=after, resource_version=version_of(scale))
                self._subject = self._subject._replace(target=newest)
                return ""
            return f"other clients change {target.text} at the same time"
        finally:
            self._setting = None

    def _report(self, before: int, after: int, problem: str) -> None:
        text = self._subject.target.text
        if problem:
            fact = Fact(
                WARNING, "ScaleFailed", f"{text} stays at {before} replicas instead of {after}: {problem}"
            )
        else:
            fact = Fact(NORMAL, "Scaled", f"scaled {text} from {before} to {after} replicas: {self._reason}")
            self._record = changed(self._record, self._ports.wall_ms())
            self._ports.on_state(self._key)
        self._ports.record_event(self._key, fact)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiError as error:
            message = f"{self._subject.target.text} is not scaled: {error}"
            self._ports.record_event(self._key, Fact(WARNING, "ScaleFailed", message))
        # One ConsumerGroup must not stop the others, whatever is wrong with it.
        except Exception as error:  # noqa: BLE001
            self._ports.on_exception(error)


def change_problem(workload: Object, before: int, after: int) -> str:
    """Return why a workload, as it is now, must not be scaled as it was decided."""
    found = scale_target_of(workload)
    if found.replicas != before:
        return f"the number of replicas was changed to {found.replicas} meanwhile"
    return "a rollout has begun" if found.is_rolling_out and after < before else ""


def start_ms_of(pods: Sequence[Object]) -> int | None:
    """
    Return the shortest time that one of these pods took from its creation until it was ready; None: no pod is ready.

    The shortest, because one that was not ready for a while has been ready again since.
    """
    starts = [
        milliseconds(condition["lastTransitionTime"]) - milliseconds(pod["metadata"]["creationTimestamp"])
        for pod in pods
        for condition in (pod.get("status") or {}).get("conditions") or ()
        if (condition["type"], condition["status"]) == ("Ready", "True")
    ]
    return max(0, min(starts)) if starts else None


def version_of(found: Object) -> str:
    """Return the resource version of an object."""
    version: str = found["metadata"]["resourceVersion"]
    return version


def problem_of(inputs: Inputs, former: str, failure_threshold: int) -> str:
    """Return why the load is unknown; a few failed samples, or a rebalance, do not make a known load unknown."""
    if inputs.knowledge is Knowledge.GOOD:
        return ""
    if inputs.knowledge is Knowledge.UNKNOWN and (former or inputs.bad_samples >= failure_threshold):
        return inputs.problem
    return former
