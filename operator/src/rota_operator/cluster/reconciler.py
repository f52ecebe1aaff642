"""
Reconciles one ConsumerGroup: observe, decide, perform, and hand the outcome to status, Events and metrics.

Called by the queue's workers, once at a time for each ConsumerGroup. An action that fails becomes a refusal in the status and is
tried again with a backoff, whatever failed.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rota_operator.cluster.api import Api, loop_time
from rota_operator.cluster.errors import ApiError, Conflict, Forbidden, Refused
from rota_operator.cluster.event_recorder import NORMAL, WARNING, EventRecorder, Fact
from rota_operator.cluster.groups import GroupWatches
from rota_operator.cluster.kinds import CONSUMER_GROUP
from rota_operator.cluster.observe import Surroundings, observe
from rota_operator.cluster.owned_index import Owned
from rota_operator.cluster.perform import Performer
from rota_operator.cluster.queues import Key
from rota_operator.cluster.refused_pods import lacks_pods
from rota_operator.cluster.watched import watched_of
from rota_operator.engines.port import Unavailable
from rota_operator.reconcile.actions import (
    Action,
    AdoptWorkload,
    CommitInitialOffsets,
    Configure,
    CreateApplication,
    DeleteApplication,
    DeleteGroup,
    ReleaseWorkload,
    ScaleWorkload,
)
from rota_operator.reconcile.decision import Decision, Refusal, pinned_decision
from rota_operator.reconcile.observed import Object, Observed
from rota_operator.reconcile.plan import plan
from rota_operator.spec.conditions import Reason
from rota_operator.spec.validation import InvalidSpec, parse_spec

# A ConsumerGroup that is being deleted waits for pods and members, which no watch reports.
DELETION_S = 2.0
# What no watch reports is looked for: a missing workload or Secret, why a StatefulSet lacks pods, states of SparkApplications.
LOOK_FIRST_S = 1.0
LOOK_MAX_S = 30.0
# For other autoscalers of a group that Rota scales.
AUTOSCALED_S = 20.0
# SparkApplications are not watched: a kind that is not installed would end all watches.
SPARK_S = 15.0
NO_WATCH_REPORTS = (Reason.TARGET_NOT_FOUND, Reason.SPARK_NOT_INSTALLED)
# Of one reconcile, while others change the same objects.
ATTEMPTS_MAX = 8
# After that many: the others are not done yet, and no backoff is needed for their sake.
CONFLICT_S = 1.0
# A share of the interval, so that resyncs of many groups spread.
JITTER = 0.2


class Outcome(NamedTuple):
    """The last reconcile of a ConsumerGroup: the input of its status."""

    observed: Observed
    decision: Decision
    # Why an action of the decision was not performed.
    failure: Refusal | None


class Reports(NamedTuple):
    """Receivers of outcomes."""

    # A decision was made, and performed as far as the outcome says.
    decided: Callable[[Key, Outcome], None]
    # The ConsumerGroup does not exist.
    gone: Callable[[Key], None]


class Reconciler:
    """Reconciles ConsumerGroups; thread-confined to one event loop. A reconcile that has observed its resource makes one report."""

    def __init__(
        self,
        api: Api,
        around: Surroundings,
        performer: Performer,
        groups: GroupWatches,
        reports: Reports,
        resync_s: float,
    ) -> None:
        self._api = api
        self._around = around
        self._performer = performer
        self._groups = groups
        self._reports = reports
        self._resync_s = resync_s
        # Since when something is looked for, by the loop's clock in seconds.
        self._looking: dict[Key, float] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; returns in how many seconds to do it again. Raises ApiError, and Unavailable of a coordinator."""
        for attempt in range(ATTEMPTS_MAX):
            resource = await self._api.find(CONSUMER_GROUP, *key)
            if resource is None:
                self._forget(key)
                return None
            observed, decision = await self._decide(key, resource)
            self._watch(key, observed, decision)
            observed, error = await self._perform(key, observed, decision)
            if isinstance(error, Conflict) and error.retry and attempt + 1 < ATTEMPTS_MAX:
                # Another client was first, often a controller that counts pods: decide on what is there now.
                continue
            outcome = Outcome(observed, decision, None if error is None else failure_of(error))
            self._reports.decided(key, outcome)
            if isinstance(error, Conflict) and error.retry:
                return CONFLICT_S
            if error is not None:
                raise error
            self._around.owned.settle(key)
            return self._again_s(key, observed, decision)
        raise AssertionError("the last attempt has an outcome")

    async def _decide(self, key: Key, resource: Object) -> tuple[Observed, Decision]:
        """
        Observe and plan. Raises ApiError.

        A decision that changes something rests on objects that were read for it: the index may be outdated. So does one about a
        ConsumerGroup that is being deleted, whose finalizer protects what the index may not know.
        """
        metadata = resource["metadata"]
        known = self._around.owned.open(key, metadata["uid"], loop_time())
        if known is not None and "deletionTimestamp" not in metadata:
            observed = await self._observe(key, resource, known)
            decision = plan(observed)
            if not is_change(decision):
                return observed, decision
        observed = await self._observe(key, resource)
        return observed, plan(observed)

    async def _observe(self, key: Key, resource: Object, known: Owned | None = None) -> Observed:
        """Observe the objects of a ConsumerGroup. Raises ApiError; one that only a change ends is reported first."""
        try:
            return await observe(self._api, self._around, key, resource, known)
        except (Forbidden, Refused) as error:
            unread = Observed(resource, self._around.settings(), self._around.version)
            self._reports.decided(key, Outcome(unread, pinned_decision(resource), failure_of(error)))
            raise

    async def _perform(
        self, key: Key, observed: Observed, decision: Decision
    ) -> tuple[Observed, ApiError | Unavailable | None]:
        """Perform a decision; returns the observation with the resource as it is now, and what has failed."""
        try:
            resource = await self._performer.perform(key, observed.resource, decision.actions)
        except (ApiError, Unavailable) as error:
            return observed, error
        return replace(observed, resource=resource), None

    def _forget(self, key: Key) -> None:
        self._looking.pop(key, None)
        self._around.owned.forget(key)
        self._groups.remove(key)
        self._reports.gone(key)

    def _watch(self, key: Key, observed: Observed, decision: Decision) -> None:
        """Watch the group that the ConsumerGroup has, or had when it was accepted last."""
        status: Mapping[str, str] = observed.resource.get("status") or {}
        group_id = decision.group_id or status.get("groupId") or ""
        try:
            spec = parse_spec(observed.resource.get("spec") or {})
        except InvalidSpec:
            return
        if group_id:
            access = self._around.kafka.access(spec, key.namespace, group_id)
            self._groups.add(key, watched_of(spec, group_id, access))

    def _again_s(self, key: Key, observed: Observed, decision: Decision) -> float:
        if "deletionTimestamp" in observed.resource["metadata"]:
            return DELETION_S
        now_s = loop_time()
        if decision.refusal is None and observed.spark.applications and is_change(decision):
            # What follows a change of an application is looked for from now on.
            self._looking[key] = now_s
        if _lacks_something(observed, decision):
            return look_again_s(now_s - self._looking.setdefault(key, now_s))
        self._looking.pop(key, None)
        if decision.is_autoscaled:
            # Another autoscaler, which no watch reports, must not be fought over.
            return min(self._resync_s, AUTOSCALED_S)
        if observed.spark.applications:
            return SPARK_S
        return self._resync_s * random.uniform(1 - JITTER, 1 + JITTER)


def _lacks_something(observed: Observed, decision: Decision) -> bool:
    """Return whether the next step waits for what no watch reports."""
    missing = decision.refusal is not None and decision.refusal.reason in NO_WATCH_REPORTS
    unsettled = any(
        each.reason in (Reason.APPLICATION_STATE, Reason.APPLICATIONS_CHANGING) for each in decision.remarks
    )
    return missing or unsettled or observed.pods_are_pending or lacks_pods(observed.target)


def is_change(decision: Decision) -> bool:
    """Return whether a decision changes anything; settings are sent to sidecars without a change."""
    return any(not isinstance(each, Configure) for each in decision.actions)


def look_again_s(looked_s: float) -> float:
    """Return the time to the next look: as long as it has been looked, however many reconciles others have caused meanwhile."""
    return min(LOOK_MAX_S, max(LOOK_FIRST_S, looked_s))


def failure_of(error: ApiError | Unavailable) -> Refusal:
    """Return an error as the reason why a group is not as it was decided."""
    match error:
        case Conflict() if error.fields:
            reason = Reason.FIELD_CONFLICT
        case Forbidden():
            reason = Reason.FORBIDDEN
        case Refused():
            reason = Reason.REQUEST_REFUSED
        case _:
            reason = Reason.UNAVAILABLE
    return Refusal(reason, str(error))


def record_action(events: EventRecorder, resource: Object, action: Action) -> None:
    """Write an Event about an action that users see the effect of."""
    match action:
        case AdoptWorkload():
            fact = Fact(
                NORMAL, "Adopted", f"added the sidecar to {action.workload.kind} {action.workload.name}"
            )
        case ReleaseWorkload():
            fact = Fact(
                NORMAL, "Released", f"removed the sidecar from {action.workload.kind} {action.workload.name}"
            )
        case ScaleWorkload():
            workload = f"{action.workload.kind} {action.workload.name}"
            fact = Fact(NORMAL, "Scaled", f"scaled {workload} to {action.replicas} replicas")
        case CommitInitialOffsets():
            fact = Fact(
                NORMAL, "OffsetsInitialized", f"committed the initial offsets of group {action.group_id}"
            )
        case CreateApplication():
            fact = Fact(NORMAL, "ApplicationCreated", f"created SparkApplication {action.name}")
        case DeleteApplication():
            problem = f"; records may be delivered again: {action.problem}" if action.problem else ""
            fact = Fact(
                WARNING if problem else NORMAL,
                "ApplicationDeleted",
                f"deleted SparkApplication {action.name}{problem}",
            )
        case DeleteGroup():
            fact = Fact(NORMAL, "GroupDeleted", f"deleted group {action.group_id} with its offsets")
        case _:
            return
    events.record(resource, fact)


def record_outcome(events: EventRecorder, before: Refusal | None, outcome: Outcome) -> None:
    """
    Write an Event about a ConsumerGroup that is refused, or whose reconcile failed, twice in succession for one reason.

    Once is normal while a group and its workload are applied together.
    """
    problem = problem_of(outcome)
    if problem is not None and before is not None and problem.reason == before.reason:
        events.record(outcome.observed.resource, Fact(WARNING, str(problem.reason), problem.message))


def problem_of(outcome: Outcome) -> Refusal | None:
    """Return why a ConsumerGroup is not as it is specified."""
    return outcome.decision.refusal or outcome.failure
