"""Resources as a real API server returned them for the example of the orders, and shortened."""

from typing import Any

from tests.cli.kubectl.api_server import Answer, Sent, refusal

NAMESPACE, NAME = "shop", "orders-enricher"
PATH = f"/apis/rota.dev/v1alpha1/namespaces/{NAMESPACE}/consumergroups"
SINCE = "2026-11-26T05:00:00Z"


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": SINCE, "observedGeneration": 2,
    }  # fmt: skip


CONDITIONS = [
    condition("Ready", "True", "PartitionsProgress", "12 partitions, each with an owner that makes progress"),
    condition("Rebalancing", "False", "Stable"),
    condition("Lagging", "False", "LagBelowThreshold"),
    condition("Stuck", "False", "PartitionsProgress"),
    condition("ScalingActive", "False", "AutoscalingDisabled"),
    condition("OffsetReset", "False", "NotRequested"),
]
STATUS: dict[str, Any] = {
    "observedGeneration": 2,
    "phase": "Stable",
    "groupId": "shop.orders-enricher",
    "coordination": "Rota",
    "clusterId": "4f0c",
    "sidecarImage": "registry.example/rota-sidecar:0.1.0",
    "selector": "app=orders-enricher",
    "replicas": 2,
    "readyReplicas": 2,
    "desiredReplicas": 2,
    "members": 2,
    "partitions": 12,
    "unownedPartitions": 0,
    "generation": 4,
    "lag": {"total": 7, "max": 5, "maxSeconds": 3},
    "rebalance": {"reason": "orders-1 joined", "durationMs": 12, "movedPartitions": 6},
    "placements": [
        {"podName": "orders-0", "memberId": "orders-0-a1", "partitions": 6, "lag": 7},
        {"podName": "orders-1", "memberId": "orders-1-b2", "partitions": 6},
    ],
    "conditions": CONDITIONS,
}


def group(status: dict[str, Any] | None = None, *, version: str = "100", **spec: Any) -> dict[str, Any]:  # noqa: ANN401  any field
    """A ConsumerGroup; without a status it is that of a group that works."""
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE, "uid": "u-1", "generation": 2, "resourceVersion": version,
        },
        "spec": {"bootstrapServers": ["rota://rota-coordinator.rota:7070"], "topics": ["orders"], **spec},
        "status": STATUS if status is None else status,
    }  # fmt: skip


def not_found(sent: Sent) -> Answer:
    """The answer for an object that does not exist."""
    name = sent.path.rpartition("/")[2]
    return refusal(404, f'"{name}" not found', name=name)


def answering(found: dict[str, Any], **others: Any) -> Any:  # noqa: ANN401  bodies by the end of the path
    """Answer reads of the ConsumerGroup, and of objects by the last part of their paths."""

    def answer(sent: Sent) -> Answer:
        last = sent.path.rpartition("/")[2]
        if sent.path == f"{PATH}/{NAME}":
            return Answer(200, found)
        if last in others:
            return others[last] if isinstance(others[last], Answer) else Answer(200, others[last])
        return not_found(sent)

    return answer
