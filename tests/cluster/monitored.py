"""The targets that the chart's PodMonitors select among the pods of a cluster, as the Prometheus operator finds them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.cluster import Cluster
from tests.support.helm import Object
from tests.support.prometheus.server import Job


def jobs_of(cluster: Cluster, monitors: Sequence[Object], namespace: str) -> Mapping[str, Job]:
    """Return a job for each pod that a monitor of this namespace selects."""
    return dict(each for monitor in monitors for each in _jobs(cluster, monitor["spec"], namespace))


def _jobs(cluster: Cluster, monitor: Any, namespace: str) -> Iterator[tuple[str, Job]]:  # noqa: ANN401  JSON
    [endpoint] = monitor["podMetricsEndpoints"]
    for where in monitor.get("namespaceSelector", {}).get("matchNames", [namespace]):
        found = cluster.get("pods", namespace=where, selector=_selector(monitor["selector"]))
        for pod in found["items"]:
            name, spec = pod["metadata"]["name"], pod["spec"]
            ports = [
                port["containerPort"]
                for container in (*spec.get("initContainers", ()), *spec["containers"])
                for port in container.get("ports", ())
                if port.get("name") == endpoint["port"]
            ]
            assert len(ports) == 1, f"{name} has no port {endpoint['port']}"
            yield (
                f"{where}/{name}",
                Job([f"{pod['status']['podIP']}:{ports[0]}"], {"namespace": where, "pod": name}),
            )


def _selector(selector: Any) -> str:  # noqa: ANN401  JSON
    """Return a label selector as a query has it."""
    equal = [f"{label}={value}" for label, value in selector.get("matchLabels", {}).items()]
    expressions = selector.get("matchExpressions", ())
    assert all(each["operator"] == "Exists" for each in expressions)
    return ",".join([*equal, *(each["key"] for each in expressions)])
