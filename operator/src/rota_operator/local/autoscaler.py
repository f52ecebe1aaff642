"""
Scales one workload by the decisions of `rota_operator.autoscaling`: measures its group, starts replicas, drains and stops them, and orders
rebalances with the same number of them.

Run by the runner for each group with `spec.autoscaling.enabled`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, assert_never

from rota_operator.autoscaling.decision import Decision, decide
from rota_operator.autoscaling.decision_log import DecisionLog
from rota_operator.autoscaling.history import History
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
from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.workload import LocalWorkload
from rota_operator.manifests.resources import ConsumerGroup
from rota_operator.overview.view import EventKind
from rota_operator.replicas.events import ProcessRole
from rota_operator.replicas.replica_set import Running
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Send an order to a replica's sidecar: its name, the order and the time to wait in seconds in, the error out.
SendOrder = Callable[[str, pb.SidecarOrder, float], Awaitable[str]]
# Set the number of replicas of a workload, for this reason.
Scale = Callable[[LocalWorkload, int, str], None]


@dataclass(frozen=True)
class AutoscalerPorts:
    """Functions through which an autoscaler reads and acts."""

    dashboard: DashboardState
    send_order: SendOrder
    scale: Scale
    wall_ms: Callable[[], int]


class Autoscaler:
    """The autoscaler of one workload; thread-confined to one event loop."""

    def __init__(self, group: ConsumerGroup, workload: LocalWorkload, ports: AutoscalerPorts) -> None:
        self._group = group
        self._spec = group.spec.autoscaling
        self._workload = workload
        self._ports = ports
        self._history = History()
        self._last: Measurement | None = None
        self._log = DecisionLog(dry_run=self._spec.dry_run)
        self._scale_down = ScaleDown()
        self._reason = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Decide at each polling interval until cancelled; re-raises what fails."""
        loop = asyncio.get_running_loop()
        next_poll_s = loop.time() + self._spec.polling_interval
        try:
            while True:
                tick_ms = self._scale_down.next_tick_ms
                wake_s = next_poll_s if tick_ms is None else min(next_poll_s, tick_ms / 1000)
                await self._sleep(wake_s - loop.time())
                self._watch_victims()
                if loop.time() >= next_poll_s:
                    next_poll_s = loop.time() + self._spec.polling_interval
                    self.poll()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _sleep(self, seconds: float) -> None:
        """Sleep; a drain order that failed unexpectedly ends it."""
        if not self._tasks:
            await asyncio.sleep(max(0.0, seconds))
            return
        timer = asyncio.ensure_future(asyncio.sleep(max(0.0, seconds)))
        try:
            done, _ = await asyncio.wait({timer, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        for each in done & self._tasks:
            self._tasks.discard(each)
            each.result()

    def poll(self) -> None:
        """Measure, decide, and begin what was decided."""
        now_ms, group_id = self._ports.wall_ms(), self._group.group_id
        view = self._ports.dashboard.group(group_id)
        assert view is not None, "the runner knows the groups of its workloads"
        replicas = self._workload.wanted
        self._last = measure(self._last, view, self._ports.dashboard.reports(group_id), replicas, now_ms)
        limit = self._group.spec.delivery.rate_limit.max
        sample = replace(self._last.sample, service_rate_max=float(limit) if limit else None)
        self._history = self._history.with_sample(sample, self._spec)
        decision = decide(self._history, self._spec)
        assert decision is not None, "there is a sample"
        is_new = self._log.add(decision)
        self._workload.decisions = self._log.decisions
        if self._spec.dry_run:
            if is_new and decision.is_change:
                scale = f"scale from {replicas} to {decision.replicas}"
                change = "let the group rebalance" if decision.is_rebalance else scale
                message = f"autoscaling (dry run) would {change}: {decision.explanation}"
                self._ports.dashboard.record_event(group_id, EventKind.SCALE, message)
        elif isinstance(self._scale_down.state, Idle):
            self._apply(decision, now_ms)
        else:
            self._handle(ReplicasObserved(replicas))
        self._ports.dashboard.notify()

    def _apply(self, decision: Decision, now_ms: int) -> None:
        before, after = decision.inputs.replicas, decision.replicas
        if decision.is_rebalance:
            self._history = self._history.with_rebalance(now_ms, decision.inputs.hot_partitions)
            self._spawn(self._rebalance(decision))
            return
        if after == before:
            return
        self._history = self._history.with_change(now_ms, before, after)
        self._reason = f"{decision.reason.value}: {decision.explanation}"
        if after > before:
            self._ports.scale(self._workload, after, self._reason)
        else:
            candidates = [Candidate(self._workload.replica(each), each, 0) for each in range(before)]
            victims = choose_victims(candidates, before - after, VictimOrder.HIGHEST_ORDINAL)
            self._handle(Begin(before, after, victims))

    async def _rebalance(self, decision: Decision) -> None:
        """Order the member that leads the group to join again."""
        group_id, order = self._group.group_id, rebalance_order(decision)
        replicas = rebalance_receivers(self._ports.dashboard.reports(group_id))
        errors = await asyncio.gather(*(self._ports.send_order(each, order, ANSWER_S) for each in replicas))
        problem = rebalance_problem(dict(zip(replicas, errors, strict=True)))
        message = (
            f"{self._workload.short_name} does not rebalance: {problem}"
            if problem
            else f"{self._workload.short_name} was ordered to rebalance: {decision.reason.value}: {decision.explanation}"
        )
        self._ports.dashboard.record_event(group_id, EventKind.SCALE, message)

    def _watch_victims(self) -> None:
        """Report deadlines, and victims without a running sidecar: nothing of them is in flight."""
        state = self._scale_down.state
        if isinstance(state, Idle):
            return
        running = {
            self._workload.replica(number)
            for number, parts in self._workload.processes.replicas.replicas.items()
            if isinstance(parts[ProcessRole.SIDECAR], Running)
        }
        for victim in state.plan.victims:
            if victim not in running:
                self._handle(VictimEnded(victim))
        self._handle(Tick())

    def _handle(self, event: Event) -> None:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        for action in self._scale_down.step(event, now_ms):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case OrderDrain(victim, within_ms):
                self._spawn(self._drain(victim, within_ms))
            case SetReplicas(replicas):
                self._ports.scale(self._workload, replicas, self._reason)
                self._handle(ScaleAnswered())
            case Finished(before, target, problem):
                if problem:
                    message = f"{self._workload.short_name} stays at {before} replicas instead of {target}: {problem}"
                    self._ports.dashboard.record_event(self._group.group_id, EventKind.SCALE, message)
            case _:
                assert_never(action)

    async def _drain(self, victim: str, within_ms: int) -> None:
        order = pb.SidecarOrder(drain=pb.Drain(within_ms=within_ms))
        self._handle(DrainAnswered(victim, await self._ports.send_order(victim, order, within_ms / 1000)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))
