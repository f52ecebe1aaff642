"""`kubectl rota groups explain` gives the reasons that status and Events hold, and says of all others that they are not known here."""

from typing import Any

from tests.cli.kubectl.api_server import refusal
from tests.cli.kubectl.conftest import Kubectl, Serve
from tests.cli.kubectl.resources import CONDITIONS, NAME, STATUS, answering, condition, group


def about(remarks: list[dict[str, Any]], subject: str, *, known: bool = True) -> list[str]:
    return [each["says"] for each in remarks if (each["about"], each["known"]) == (subject, known)]


def event(at: str, reason: str, message: str, **fields: object) -> dict[str, Any]:
    return {"lastTimestamp": at, "type": "Normal", "reason": reason, "message": message, **fields}


def test_state_rebalance_assignment_and_scale_are_those_of_the_status(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group(), events={"items": []}))
    said = kubectl("groups", "explain", NAME, "-o", "json").data
    assert about(said, "state") == [
        "Stable, generation 4: Ready is True (PartitionsProgress): 12 partitions, each with an owner that makes progress"
    ]
    assert about(said, "rebalance") == [
        "the last rebalance was triggered by: orders-1 joined; it took 12 ms and moved 6 partitions"
    ]
    assert about(said, "assignment") == [
        "orders-0 owns 6 partitions with a lag of 7 records",
        "orders-1 owns 6 partitions with unknown lag",
    ]
    [unknown] = about(said, "assignment", known=False)
    assert unknown == (
        "which partitions each member owns is not in the status; see `rota groups explain shop.orders-enricher "
        "--bootstrap-servers rota://rota-coordinator.rota:7070`"
    )
    assert about(said, "scaling") == ["2 replicas desired; ScalingActive is False (AutoscalingDisabled)"]
    assert about(said, "reading") + about(said, "event") + about(said, "reset") == []


def test_what_the_status_lacks_is_not_guessed(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group({}), events={"items": []}))
    said = kubectl("groups", "explain", NAME, "-o", "json").data
    assert {each["known"] for each in said} == {False}
    assert {each["about"] for each in said} == {"state", "rebalance", "assignment", "scaling"}


def test_problems_resets_and_recommendations_are_explained(serve: Serve, kubectl: Kubectl) -> None:
    placements = [
        {"podName": "orders-0", "memberId": "a", "partitions": 12},
        {"podName": "orders-1", "memberId": "b"},
    ]
    status = {
        **STATUS,
        "placements": placements,
        "conditions": [
            *CONDITIONS[:1],
            condition("Rebalancing", "True", "RebalanceInProgress", "the group is in state PreparingRebalance"),
            condition("Lagging", "Unknown", "LagUnknown"),
            condition("Stuck", "True", "PartitionsStuck", "orders-3: no progress"),
            *CONDITIONS[4:],
        ],
        "scaling": {
            "recommendation": 4,
            "explanation": "the backlog needs 40 records/s more",
            "decisions": [
                {
                    "time": "2026-09-21T09:00:20Z", "replicas": 2, "recommendation": 4, "reason": "LoadAboveTarget",
                    "message": "the backlog needs 40 records/s more", "dryRun": True, "inputs": {"knowledge": "Good"},
                },
                {
                    "time": "2026-09-21T09:00:00Z", "replicas": 2, "recommendation": 2, "reason": "FewSamples",
                    "message": "1 samples", "inputs": {"knowledge": "FewSamples"},
                },
            ],
        },
        "offsetReset": {"requestId": "replay-1", "dryRun": True, "phase": "Planned", "planConfigMap": "plan-1"},
    }  # fmt: skip
    serve(answering(group(status), events={"items": []}))
    said = kubectl("groups", "explain", NAME, "-o", "json").data
    assert about(said, "rebalance")[0] == (
        "Rebalancing is True (RebalanceInProgress): the group is in state PreparingRebalance"
    )
    assert about(said, "assignment")[-1] == (
        "1 of 2 members is idle, with 12 partitions: add partitions or run fewer replicas"
    )
    assert about(said, "scaling")[:3] == [
        "4 replicas recommended: the backlog needs 40 records/s more",
        "2026-09-21T09:00:20Z (dry run): 2 to 4 replicas, LoadAboveTarget: the backlog needs 40 records/s more",
        "2026-09-21T09:00:00Z: 2 replicas, FewSamples: 1 samples",
    ]
    assert about(said, "reset") == [
        "dry run of reset replay-1 is Planned, its plan is in the ConfigMap plan-1"
    ]
    assert about(said, "reading") == ["Stuck is True (PartitionsStuck): orders-3: no progress"]
    assert about(said, "reading", known=False) == ["Lagging is Unknown (LagUnknown)"]


def test_the_last_events_are_shown_in_order(serve: Serve, kubectl: Kubectl) -> None:
    items = [
        event("2026-11-26T05:00:02Z", "Scaled", "scaled to 2 replicas", count=3),
        event("2026-11-26T05:00:01Z", "Adopted", "adopted Deployment orders", involvedObject={"uid": "u-1"}),
        event("2026-11-26T05:00:03Z", "Adopted", "of a former group", involvedObject={"uid": "u-0"}),
    ]
    server = serve(answering(group(), events={"items": items}))
    lines = kubectl("groups", "explain", NAME).lines
    assert [line for line in lines if line.startswith("event:")] == [
        "event:       2026-11-26T05:00:01Z Adopted: adopted Deployment orders",
        "event:       2026-11-26T05:00:02Z Scaled (3 times): scaled to 2 replicas",
    ]
    assert server.sent[-1].query["fieldSelector"] == (
        f"involvedObject.kind=ConsumerGroup,involvedObject.name={NAME}"
    )


def test_without_the_right_to_read_events_the_rest_is_explained(serve: Serve, kubectl: Kubectl) -> None:
    denied = refusal(403, 'forbidden: User "alice" cannot list resource "events"')
    server = serve(answering(group(), events=denied))
    done = kubectl("groups", "explain", NAME)
    assert done.code == 0
    assert done.lines[-1] == "event:       Events could not be read; see `kubectl rota doctor`"
    assert done.stderr == (
        f"Events are unknown: alice may not list events in namespace shop at {server.address}: "
        "ask its administrator for this right\n"
    )
