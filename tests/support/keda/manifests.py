"""Manifests of KEDA in a test cluster, and of ScaledObjects. Applied by `running` and by tests."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cluster.manifests import Manifest

NAMESPACE = "keda"
# Names of KEDA's own manifests.
ACCOUNT, ADAPTER = "keda-operator", "keda-metrics-apiserver"
METRICS_GROUP, METRICS_VERSION = "external.metrics.k8s.io", "v1beta1"
API_SERVICE = f"{METRICS_VERSION}.{METRICS_GROUP}"


def adapter_service(address: str, port: int, authority: Path) -> list[Manifest]:
    """Return the APIService and its Service, whose only endpoint is the adapter's address outside of all pods."""
    serves = {"name": "https", "protocol": "TCP"}
    metadata = {"name": ADAPTER, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{**serves, "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": ADAPTER}},
            "addressType": "IPv4",
            "ports": [{**serves, "port": port}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": METRICS_GROUP,
                "version": METRICS_VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "service": {**metadata, "port": 443},
                "caBundle": base64.b64encode(authority.read_bytes()).decode(),
            },
        },
    ]


def kafka_trigger(servers: str, group_id: str, topic: str, **metadata: str) -> Manifest:
    """Return a trigger by the lag of a group, which consumes from the earliest offset; `metadata` adds to its metadata."""
    return {
        "type": "kafka",
        "metadata": {
            "bootstrapServers": servers,
            "consumerGroup": group_id,
            "topic": topic,
            "offsetResetPolicy": "earliest",
            **metadata,
        },
    }


def scaled_object(
    name: str,
    target: Mapping[str, str],
    trigger: Manifest,
    bounds: tuple[int, int],
    behavior: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return a ScaledObject with a minimum and a maximum number of replicas; `behavior` is that of its HorizontalPodAutoscaler."""
    low, high = bounds
    spec: Manifest = {
        "scaleTargetRef": dict(target),
        "minReplicaCount": low,
        "maxReplicaCount": high,
        "triggers": [trigger],
    }
    if behavior is not None:
        spec["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": dict(behavior)}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": spec,
    }
