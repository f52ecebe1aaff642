"""
The two autoscalers of a model group. `act` is called at the begin of each step.

`RotaScaler` is the shell of `rota_operator.autoscaling`: it measures views and reports that are as old as those of the operator, decides, and
drains victims by the real state machine. `KedaScaler` reads lag from the broker, and sets the number as a ScaledObject and its HPA do.
"""

import random
from collections.abc import Sequence
from typing import Protocol, assert_never

from rota_operator.autoscaling.decision import Decision, decide
from rota_operator.autoscaling.history import History
from rota_operator.autoscaling.measure import Measurement, measure
from rota_operator.autoscaling.scale_down import (
    Action,
    Begin,
    Candidate,
    DrainAnswered,
    Event,
    Finished,
    Idle,
    OrderDrain,
    ReplicasObserved,
    ScaleAnswered,
    ScaleDown,
    SetReplicas,
    Tick,
    VictimEnded,
    VictimOrder,
    choose_victims,
)
from rota_operator.overview.description import PREPARING, STABLE, UNKNOWN
from rota_operator.overview.view import EventKind, GroupView, HistoryEvent, MemberView, PartitionView
from rota_operator.spec.workload import Autoscaling
from rota_proto.fleet.v1.fleet_pb2 import MemberReport, SidecarReport
from tests.simulation.autoscaling.figures import (
    FINISH_S,
    LOOK_TAKES_S,
    REPORT_S,
    TERMINATE_S,
)
from tests.simulation.autoscaling.group import TOPIC, ModelGroup, Pod, PodState
from tests.simulation.autoscaling.hpa import SYNC_S
from tests.simulation.autoscaling.keda import POLLING_S, KafkaTrigger, ScaledObject
from tests.simulation.autoscaling.traces import PARTITIONS

HISTORY_SHOWN = 10


class Scaler(Protocol):
    """An autoscaler of a model group."""

    def act(self) -> None:
        """Do what is due at the group's time."""
        ...


class RotaScaler:
    """Rota's autoscaler, with the core's own functions."""

    def __init__(
        self,
        group: ModelGroup,
        spec: Autoscaling,
        chance: random.Random,
        history: History | None = None,
    ) -> None:
        """Begin with a history; without one, the group was there before, and its replicas have been seen to start."""
        self._group = group
        self._spec = spec
        self._history = history or History(start_ms=int(sum(group.trace.pod_start_s) / 2 * 1000))
        self._last: Measurement | None = None
        self._scale_down = ScaleDown()
        # Drains that are under way: the victims, and the times of their answers.
        self._drains: dict[str, float] = {}
        self._next_poll_s = float(group.step_s * chance.randrange(spec.polling_interval // group.step_s or 1))
        # Time of the first look at the offsets; the next ones follow at intervals.
        self._looked_s = chance.uniform(0, group.setting.offsets_s)
        self.decisions: list[Decision] = []

    def act(self) -> None:
        """Answer drains that are done, renew the others, and poll if it is due."""
        now_s = self._group.now_s
        if not isinstance(self._scale_down.state, Idle):
            for victim in [name for name, done_s in self._drains.items() if done_s <= now_s]:
                del self._drains[victim]
                self._handle(DrainAnswered(victim))
            self._handle(Tick())
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + self._spec.polling_interval
            self._poll()

    def _poll(self) -> None:
        group = self._group
        now_ms = int(group.now_s * 1000)
        age_s = (group.now_s - self._looked_s) % (group.setting.offsets_s + LOOK_TAKES_S)
        view = view_of(group, age_s)
        reports = reports_of(group, group.setting.reports_s) if group.trace.is_known(group.now_s) else {}
        self._last = measure(self._last, view, reports, group.replicas, now_ms)
        self._history = self._history.with_sample(self._last.sample, self._spec)
        decision = decide(self._history, self._spec)
        assert decision is not None, "there is a sample"
        if not isinstance(self._scale_down.state, Idle):
            self._handle(ReplicasObserved(group.replicas))
        elif decision.is_rebalance:
            self.decisions.append(decision)
            self._history = self._history.with_rebalance(now_ms, decision.inputs.hot_partitions)
            group.order_rebalance()
        elif decision.replicas != group.replicas:
            self._apply(decision, now_ms)

    def _apply(self, decision: Decision, now_ms: int) -> None:
        group, before, after = self._group, decision.inputs.replicas, decision.replicas
        self.decisions.append(decision)
        self._history = self._history.with_change(now_ms, before, after)
        if after > before:
            group.replicas = after
            group.add_pods(after - before)
            return
        candidates = [Candidate(each.name, each.number, len(each.partitions)) for each in group.staying()]
        victims = choose_victims(candidates, before - after, VictimOrder.FEWEST_PARTITIONS)
        self._handle(Begin(before, after, victims))
        for pod in group.staying():
            if pod.name in victims and pod.state is PodState.STARTING:
                self._handle(VictimEnded(pod.name))

    def _handle(self, event: Event) -> None:
        for action in self._scale_down.step(event, int(self._group.now_s * 1000)):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        group = self._group
        match action:
            case OrderDrain(victim, _):
                self._drain(victim)
            case SetReplicas(replicas, victims):
                group.replicas = replicas
                for pod in [each for each in group.pods if each.name in victims]:
                    group.remove(pod, group.now_s + group.draw(TERMINATE_S))
                self._handle(ScaleAnswered())
            case Finished():
                self._drains.clear()
            case _:
                assert_never(action)

    def _drain(self, victim: str) -> None:
        group = self._group
        pod = next((each for each in group.pods if each.name == victim), None)
        if pod is not None and pod.state is PodState.RUNNING:
            pod.state = PodState.DRAINING
            self._drains[victim] = group.now_s + group.draw(FINISH_S)


def view_of(group: ModelGroup, age_s: float = 0.0) -> GroupView:
    """Return what the operator's overview knows, with offsets of this age; within a gap it knows the members and nothing of their work."""
    is_known = group.trace.is_known(group.now_s)
    partitions = tuple(
        _partition_view(group, each, age_s if is_known else None) for each in range(PARTITIONS)
    )
    members = tuple(_member_view(each, is_known) for each in group.members())
    history = tuple(
        HistoryEvent(
            int(each.end_s * 1000), EventKind.REBALANCE, "", each.generation, round(each.pause_s * 1000)
        )
        for each in reversed(group.rebalances[-HISTORY_SHOWN:])
        if each.end_s <= group.now_s
    )
    state = PREPARING if group.is_rebalancing() else STABLE
    return GroupView(
        TOPIC, TOPIC, state, group.generation, group.strategy, members, partitions, 0, 0,
        None, None, None, None, len(group.rebalances), history,
    )  # fmt: skip


def _partition_view(group: ModelGroup, number: int, age_s: float | None) -> PartitionView:
    """Return what is known of a partition, with offsets of this age; None: nothing but its owner."""
    pod = group.owner(number)
    owner = None if pod is None else pod.name
    if age_s is None:
        return PartitionView(TOPIC, number, owner)
    end, committed = group.ended(number, age_s), group.committed(number, age_s)
    return PartitionView(
        TOPIC, number, owner, committed=committed, end=end, lag_records=end - committed,
        lag_seconds=group.uncommitted_s(number, age_s),
    )  # fmt: skip


def _member_view(pod: Pod, is_known: bool) -> MemberView:
    return MemberView(
        pod.name, pod.name, STABLE if is_known else UNKNOWN, None, (), draining=pod.state is PodState.DRAINING
    )


def reports_of(group: ModelGroup, interval_s: float = REPORT_S) -> dict[str, SidecarReport]:
    """Return the last reports of the sidecars, as far as they are measured."""
    found = {}
    for each in group.members():
        done, busy_s = each.counters(interval_s, group.step_s)
        member = MemberReport(records_done=int(done), busy_seconds=busy_s)
        found[each.name] = SidecarReport(member=member, sidecar=each.name)
    return found


class KedaScaler:
    """KEDA and its HPA, on a Deployment."""

    def __init__(
        self, group: ModelGroup, trigger: KafkaTrigger, bounds: tuple[int, int], chance: random.Random
    ) -> None:
        self._group = group
        self._scaled = ScaledObject(trigger, *bounds)
        self._next_sync_s = float(group.step_s * chance.randrange(SYNC_S // group.step_s))
        self._next_poll_s = float(group.step_s * chance.randrange(POLLING_S // group.step_s))

    def act(self) -> None:
        """Poll and sync if they are due."""
        group = self._group
        now_s = group.now_s
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + POLLING_S
            self._set(self._scaled.poll(now_s, group.replicas, self._lags()))
        if now_s >= self._next_sync_s:
            self._next_sync_s = now_s + SYNC_S
            self._set(self._scaled.sync(now_s, group.replicas, self._lags()))

    def _lags(self) -> Sequence[int] | None:
        group = self._group
        return group.lags() if group.trace.is_known(group.now_s) else None

    def _set(self, replicas: int) -> None:
        """Set the number; of pods that run, a ReplicaSet removes the newest first, and before them those that do not run yet."""
        group = self._group
        before, group.replicas = group.replicas, replicas
        if replicas > before:
            group.add_pods(replicas - before)
        ranked = sorted(group.staying(), key=lambda each: (each.state is PodState.STARTING, each.number))
        for pod in ranked[replicas:] if replicas < before else ():
            group.remove(pod, group.now_s + group.draw(FINISH_S))
