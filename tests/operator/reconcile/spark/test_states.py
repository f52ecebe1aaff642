"""Every state that a Spark operator reports has its meaning here, and one that is not known is unknown."""

import itertools
from typing import Any

import pytest

from rota_operator.reconcile.spark.kinds import APACHE, APACHE_OVER, KUBEFLOW, Stage, State, state_of

S = Stage
KUBEFLOW_TABLE = {
    "": S.STARTING, "SUBMITTED": S.STARTING, "RUNNING": S.RUNNING, "COMPLETED": S.COMPLETED, "FAILED": S.FAILED,
    "SUBMISSION_FAILED": S.RESTARTING, "PENDING_RERUN": S.RESTARTING, "INVALIDATING": S.RESTARTING,
    "SUCCEEDING": S.COMPLETED, "FAILING": S.RESTARTING, "SUSPENDING": S.SUSPENDED, "SUSPENDED": S.SUSPENDED,
    "RESUMING": S.STARTING, "UNKNOWN": S.UNKNOWN, "OF_A_NEWER_VERSION": S.UNKNOWN, "running": S.UNKNOWN,
}  # fmt: skip
APACHE_TABLE = {
    "": S.STARTING, "Submitted": S.STARTING, "ScheduledToRestart": S.RESTARTING, "DriverRequested": S.STARTING,
    "DriverStarted": S.STARTING, "DriverReady": S.STARTING, "InitializedBelowThresholdExecutors": S.STARTING,
    "RunningHealthy": S.RUNNING, "RunningWithPartialCapacity": S.RUNNING, "RunningWithBelowThresholdExecutors": S.RUNNING,
    "DriverStartTimedOut": S.FAILED, "ExecutorsStartTimedOut": S.FAILED, "DriverReadyTimedOut": S.FAILED,
    "Succeeded": S.COMPLETED, "Failed": S.FAILED, "SchedulingFailure": S.FAILED, "DriverEvicted": S.FAILED,
    # Without a history nobody can say how they ended.
    "ResourceReleased": S.UNKNOWN, "TerminatedWithoutReleaseResources": S.UNKNOWN, "OfANewerVersion": S.UNKNOWN,
}  # fmt: skip


def kubeflow(state: object, **more: object) -> dict[str, Any]:
    return {"apiVersion": KUBEFLOW, "status": {"applicationState": {"state": state, **more}}}


def apache(state: object, *before: str, **more: object) -> dict[str, Any]:
    history = {str(number): {"currentStateSummary": each} for number, each in enumerate([*before, state])}
    return {
        "apiVersion": APACHE,
        "status": {
            "currentState": {"currentStateSummary": state, **more},
            "stateTransitionHistory": history,
        },
    }


@pytest.mark.parametrize(("name", "stage"), KUBEFLOW_TABLE.items())
def test_each_state_of_kubeflows_operator_has_its_stage(name: str, stage: Stage) -> None:
    assert state_of(kubeflow(name, errorMessage="said")) == State(name, stage, "said")


@pytest.mark.parametrize(("name", "stage"), APACHE_TABLE.items())
def test_each_state_of_apaches_operator_has_its_stage(name: str, stage: Stage) -> None:
    assert state_of(apache(name, message="said")) == State(name, stage, "said")


@pytest.mark.parametrize("over", APACHE_OVER)
@pytest.mark.parametrize(("last", "stage"), APACHE_TABLE.items())
def test_an_application_that_is_over_is_what_its_last_state_before_says(
    over: str, last: str, stage: Stage
) -> None:
    # More than ten, so that the order of the texts is another than that of the numbers.
    before = ["Submitted"] * 9 + ["RunningHealthy", last, "ResourceReleased"]
    expected = stage if stage in (Stage.COMPLETED, Stage.FAILED) else Stage.UNKNOWN
    if last in APACHE_OVER:
        expected = Stage.UNKNOWN
    assert state_of(apache(over, *before)).stage is expected


@pytest.mark.parametrize(
    "status", [None, {}, [], "RUNNING", {"applicationState": None}, {"currentState": []}, {"currentState": 7}]
)
@pytest.mark.parametrize("api_version", [KUBEFLOW, APACHE])
def test_an_application_that_no_operator_has_seen_is_starting(api_version: str, status: object) -> None:
    assert state_of({"apiVersion": api_version, "status": status}) == State("", Stage.STARTING)


def test_values_of_a_wrong_type_count_as_missing() -> None:
    wrong: tuple[object, ...] = (7, None, ["RUNNING"], {})
    for state, message in itertools.product(wrong, repeat=2):
        assert state_of(kubeflow(state, errorMessage=message)) == State("", Stage.STARTING)
    assert len(state_of(kubeflow("FAILED", errorMessage="x" * 100_000)).message) == 256
