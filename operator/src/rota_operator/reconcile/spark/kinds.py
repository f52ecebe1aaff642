"""
The two kinds of SparkApplications: where a driver's pod template lies in the spec, and what their states mean for a member.

Both kinds are called SparkApplication; `spec.spark.apiVersion` tells them apart. A state that is not in the tables is UNKNOWN: a
newer Spark operator may have added it.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from rota_operator.reconcile.observed import Object

KUBEFLOW, APACHE = "sparkoperator.k8s.io/v1beta2", "spark.apache.org/v1"
SPARK_KIND = "SparkApplication"


class Stage(Enum):
    """Stage of an application, by what it means for the group."""

    # No driver has run yet, or its executors are still missing.
    STARTING = "starting"
    # The driver runs: its sidecar is a member.
    RUNNING = "running"
    # The driver has ended, or is ended, and the Spark operator starts another.
    RESTARTING = "restarting"
    # The driver has ended without an error, and no other is started.
    COMPLETED = "completed"
    # The application has failed, and the Spark operator tries no more, or has not decided yet.
    FAILED = "failed"
    # By `suspend` in the template.
    SUSPENDED = "suspended"
    UNKNOWN = "unknown"


# An empty state: the Spark operator has not seen the application yet.
KUBEFLOW_STAGES: Mapping[str, Stage] = {
    "": Stage.STARTING,
    "SUBMITTED": Stage.STARTING,
    "RUNNING": Stage.RUNNING,
    "SUCCEEDING": Stage.COMPLETED,
    "COMPLETED": Stage.COMPLETED,
    "FAILING": Stage.RESTARTING,
    "SUBMISSION_FAILED": Stage.RESTARTING,
    "PENDING_RERUN": Stage.RESTARTING,
    "INVALIDATING": Stage.RESTARTING,
    "FAILED": Stage.FAILED,
    "SUSPENDING": Stage.SUSPENDED,
    "SUSPENDED": Stage.SUSPENDED,
    "RESUMING": Stage.STARTING,
    "UNKNOWN": Stage.UNKNOWN,
}
APACHE_STAGES: Mapping[str, Stage] = {
    "": Stage.STARTING,
    "Submitted": Stage.STARTING,
    "ScheduledToRestart": Stage.RESTARTING,
    "DriverRequested": Stage.STARTING,
    "DriverStarted": Stage.STARTING,
    "DriverReady": Stage.STARTING,
    "InitializedBelowThresholdExecutors": Stage.STARTING,
    "RunningHealthy": Stage.RUNNING,
    "RunningWithPartialCapacity": Stage.RUNNING,
    "RunningWithBelowThresholdExecutors": Stage.RUNNING,
    "DriverStartTimedOut": Stage.FAILED,
    "ExecutorsStartTimedOut": Stage.FAILED,
    "DriverReadyTimedOut": Stage.FAILED,
    "Succeeded": Stage.COMPLETED,
    "Failed": Stage.FAILED,
    "SchedulingFailure": Stage.FAILED,
    "DriverEvicted": Stage.FAILED,
}
# Of spark.apache.org: the application is over, well or not, as the last state before says.
APACHE_OVER = ("ResourceReleased", "TerminatedWithoutReleaseResources")
MESSAGE_LENGTH_MAX = 256


class SparkKind(NamedTuple):
    """A kind of SparkApplications."""

    api_version: str
    # Path of the driver's pod template in an application's spec.
    driver_template: tuple[str, ...]
    executor_template: tuple[str, ...]
    # Field of the spec that keeps a driver running, and its value.
    restart: str


KINDS: Mapping[str, SparkKind] = {
    KUBEFLOW: SparkKind(
        KUBEFLOW, ("driver", "template"), ("executor", "template"), "restartPolicy.type to Always"
    ),
    APACHE: SparkKind(
        APACHE,
        ("driverSpec", "podTemplateSpec"),
        ("executorSpec", "podTemplateSpec"),
        "applicationTolerations.restartConfig.restartPolicy to Always",
    ),
}


class State(NamedTuple):
    """State of an application, as its Spark operator reports it."""

    # Empty: it has reported none yet.
    name: str
    stage: Stage
    # The Spark operator's own words; empty: it has none.
    message: str = ""


def state_of(application: Object) -> State:
    """Read the state of a SparkApplication of either kind; values of a wrong type count as missing."""
    status = _mapping(application.get("status"))
    if application.get("apiVersion") == APACHE:
        current = _mapping(status.get("currentState"))
        name = _text(current.get("currentStateSummary"))
        return State(name, _apache_stage(name, status), _text(current.get("message")))
    current = _mapping(status.get("applicationState"))
    name = _text(current.get("state"))
    return State(name, KUBEFLOW_STAGES.get(name, Stage.UNKNOWN), _text(current.get("errorMessage")))


def _apache_stage(name: str, status: Mapping[str, Any]) -> Stage:
    if name not in APACHE_OVER:
        return APACHE_STAGES.get(name, Stage.UNKNOWN)
    before = [each for each in _history(status) if each not in APACHE_OVER]
    last = APACHE_STAGES.get(before[-1], Stage.UNKNOWN) if before else Stage.UNKNOWN
    return last if last in (Stage.COMPLETED, Stage.FAILED) else Stage.UNKNOWN


def _history(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the former states, oldest first: their keys are numbers as texts."""
    history = _mapping(status.get("stateTransitionHistory"))
    for key in sorted((each for each in history if each.isdecimal()), key=int):
        yield _text(_mapping(history[key]).get("currentStateSummary"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value[:MESSAGE_LENGTH_MAX] if isinstance(value, str) else ""
