"""
The autoscalers of all ConsumerGroups that Rota scales: makes and polls a `GroupAutoscaler` for each, beside the reconciles.

A reconcile says which ConsumerGroups these are, and what their workloads are like; the group watches say what their load is. What an
autoscaler has decided is part of the status, which the status writer writes. Nothing is asked of the API server while nothing changes.
"""

import asyncio
from typing import Protocol

from rota_operator.autoscaling.measure import Reports
from rota_operator.cluster.api import loop_time
from rota_operator.cluster.group_autoscaler import AutoscalerPorts, GroupAutoscaler, Reading, Subject
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reconciler import Outcome
from rota_operator.overview.description import UNKNOWN
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.scaling import scale_target_of
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import spec_of
from rota_operator.status.inputs import AutoscalerState
from rota_operator.status.status import read_status
from rota_operator.status.views import reported, subscribed

ROUND_S = 0.5


class Groups(Protocol):
    """Groups as they are watched."""

    def view(self, key: Key) -> GroupView | None:
        """Return the group's state now; None if it is not watched."""
        ...

    def reports(self, key: Key) -> Reports:
        """Return the live reports of a group's sidecars, by the names of their pods."""
        ...

    def is_on_kafka(self, key: Key) -> bool:
        """Return whether Kafka's brokers coordinate a group."""
        ...


class Autoscalers:
    """Autoscalers by ConsumerGroup; thread-confined to one event loop."""

    def __init__(self, ports: AutoscalerPorts) -> None:
        self._ports = ports
        self._autoscalers: dict[Key, GroupAutoscaler] = {}
        # Next poll of each, by the loop's clock in seconds.
        self._due_s: dict[Key, float] = {}

    def decided(self, key: Key, outcome: Outcome) -> None:
        """Take over a reconcile; one that has failed says nothing about the workload."""
        if outcome.failure is not None and outcome.decision.refusal is None:
            return
        resource, target = outcome.observed.resource, outcome.observed.target
        spec = spec_of(resource)
        if not outcome.decision.is_autoscaled or spec is None or target is None:
            self.forget(key)
            return
        subject = Subject(resource["metadata"]["uid"], spec, scale_target_of(target))
        if (known := self._autoscalers.get(key)) is not None:
            known.update(subject)
            return
        self._autoscalers[key] = GroupAutoscaler(key, self._ports, subject, read_status(resource).scaling)
        self._due_s[key] = loop_time() + spec.autoscaling.polling_interval

    def forget(self, key: Key) -> None:
        """Stop scaling a ConsumerGroup; no-op for one that Rota does not scale."""
        if (known := self._autoscalers.pop(key, None)) is not None:
            known.close()
            del self._due_s[key]

    def state(self, key: Key) -> AutoscalerState | None:
        """Return the state of an autoscaler for the status; None: there is none, or it has not decided yet."""
        known = self._autoscalers.get(key)
        return None if known is None else known.state

    async def run(self) -> None:
        """Poll all autoscalers until cancelled; others run between two of them."""
        try:
            while True:
                for key, autoscaler in tuple(self._autoscalers.items()):
                    self._run_safely(key, autoscaler)
                    await asyncio.sleep(0)
                await asyncio.sleep(ROUND_S)
        finally:
            for each in self._autoscalers.values():
                each.close()

    def _run_safely(self, key: Key, autoscaler: GroupAutoscaler) -> None:
        now_s = loop_time()
        try:
            autoscaler.tick()
            if self._due_s.get(key, now_s + 1) <= now_s:
                self._due_s[key] = now_s + autoscaler.polling_interval_s
                autoscaler.poll()
        # One ConsumerGroup must not stop the others, whatever is wrong with it.
        except Exception as error:  # noqa: BLE001
            self._ports.on_exception(error)


def read_group(groups: Groups, key: Key, spec: ConsumerGroupSpec) -> Reading | None:
    """Return a group as its status shows it; None if it is not watched."""
    view = groups.view(key)
    if view is None:
        return None
    view = subscribed(view, spec)
    if view.state == UNKNOWN and groups.is_on_kafka(key):
        view = reported(view)
    return Reading(view, groups.reports(key))
