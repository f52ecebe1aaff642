"""Workloads that cost nothing, ConsumerGroups for them, and what is compared of a workload. Called by the tests of adoption."""

import copy
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest
from tests.support.processes import wait_for

TOPIC = "orders"
SIDECAR = "rota-sidecar"
KINDS = ("Deployment", "StatefulSet")
WITHIN_S = CLEANUP_S = 120
# Pods with it are scheduled to no node.
NO_NODE = {"rota.dev/no-such-node": "true"}
# Of every ConsumerGroup here.
LABELS = {"rota.dev/test": "without-pods"}
# Set by controllers of Kubernetes, or by kubectl with the time or the whole manifest in it.
REVISION = "deployment.kubernetes.io/revision"
OF_CONTROLLERS = (
    REVISION,
    "kubectl.kubernetes.io/last-applied-configuration",
)
RESTARTED = "kubectl.kubernetes.io/restartedAt"


def workload(kind: str, name: str, *, version: str = "1", replicas: int = 0, **pod: object) -> Manifest:
    """A Deployment or StatefulSet as its owner writes it, whose pods are scheduled to no node."""
    labels = {"app": name}
    container = {
        "name": "app",
        "image": "app:1",
        "env": [{"name": "VERSION", "value": version}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    template = {
        "metadata": {"labels": labels, "annotations": {"example.com/version": version}},
        "spec": {
            "containers": [container, {"name": "proxy", "image": "proxy:1"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "nodeSelector": NO_NODE,
            **pod,
        },
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels, "annotations": {"example.com/owner": "shop"}},
        "spec": spec,
    }


def paused(deployment: Manifest) -> Manifest:
    """A Deployment whose controller makes no ReplicaSets: they would cost the API server as much as its adoption does."""
    return {**deployment, "spec": {**deployment["spec"], "paused": True}}


def consumer_group(name: str, coordinator: str, kind: str, target: str, **spec: object) -> Manifest:
    """A ConsumerGroup for a workload; `spec` adds to its spec."""
    fixed = {
        "bootstrapServers": [f"rota://{coordinator}"],
        "topics": [TOPIC],
        "scaleTargetRef": {"kind": kind, "name": target},
    }
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": name, "labels": LABELS},
        "spec": fixed | spec,
    }


def delete_all_groups(cluster: Cluster) -> None:
    """Delete the ConsumerGroups of all tests here, and wait until their operator, which still runs, has released the workloads."""
    [(name, value)] = LABELS.items()
    selector = f"--selector={name}={value}"
    cluster.kubectl("delete", "consumergroups", selector, "--all-namespaces", f"--timeout={CLEANUP_S}s")


def resource_of(manifest: Manifest) -> str:
    """Name a workload as kubectl does."""
    return f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"


def as_list(manifests: Sequence[Manifest]) -> str:
    """Manifests as one document for kubectl's standard input."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})


def owners_part(found: Any) -> Any:  # noqa: ANN401  an object as it is stored
    """
    Return what the owner of a workload has applied: labels, annotations and spec, with `NAME` for its own name.

    Times, and what controllers add, are left out.
    """
    found = copy.deepcopy(found)
    metadata, template = found["metadata"], found["spec"]["template"]["metadata"]
    for each in (metadata, template):
        annotations = each.get("annotations") or {}
        each["annotations"] = {
            name: "TIME" if name == RESTARTED else value
            for name, value in annotations.items()
            if name not in OF_CONTROLLERS
        }
    kept = {name: metadata.get(name) for name in ("labels", "annotations")}
    text = json.dumps({"metadata": kept, "spec": found["spec"]}, sort_keys=True)
    return json.loads(text.replace(json.dumps(metadata["name"]), '"NAME"'))


class Shop:
    """A namespace with workloads and ConsumerGroups, and the owner's kubectl for it."""

    def __init__(self, cluster: Cluster, namespace: str, coordinator: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.coordinator = coordinator

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace, input=input)

    def apply(self, *manifests: Manifest, flags: Sequence[str] = ()) -> None:
        """`kubectl apply`."""
        self.kubectl("apply", *flags, "--filename", "-", input=as_list(manifests))

    def group(self, name: str, kind: str, target: str, **spec: object) -> None:
        """Create or change a ConsumerGroup."""
        self.apply(consumer_group(name, self.coordinator, kind, target, **spec))

    def groups_of(self, manifests: Sequence[Manifest], **spec: object) -> None:
        """Create a ConsumerGroup for each workload, with its name."""
        named = [(each["metadata"]["name"], each["kind"]) for each in manifests]
        self.apply(*(consumer_group(name, self.coordinator, kind, name, **spec) for name, kind in named))

    def get(self, resource: str) -> Any:  # noqa: ANN401  an object as it is stored
        """`deployment/NAME` as it is stored."""
        return self.cluster.get(resource, namespace=self.namespace)

    def get_all(self, manifests: Sequence[Manifest]) -> list[Any]:
        """Workloads as they are stored."""
        return [self.get(resource_of(each)) for each in manifests]

    def wait(self, resource: str, condition: str) -> None:
        """`kubectl wait --for`."""
        self.cluster.wait(resource, condition, namespace=self.namespace, within_s=WITHIN_S)

    def wait_adopted(self, *resources: str) -> None:
        """Wait until workloads have the sidecar."""
        condition = f"jsonpath={{.spec.template.spec.initContainers[0].name}}={SIDECAR}"
        self.kubectl("wait", *resources, f"--for={condition}", f"--timeout={WITHIN_S}s")

    def wait_ready_reason(self, group: str, reason: str) -> str:
        """Wait until the condition Ready has this reason; return its message."""
        path = '{.status.conditions[?(@.type=="Ready")].reason}'
        self.wait(f"consumergroup/{group}", f"jsonpath={path}={reason}")
        return str(self.condition(group, "Ready")["message"])

    def wait_younger_than(self, group: str) -> None:
        """Wait until a group that is created now is younger: creation timestamps have seconds, and within one the uids decide."""
        created = datetime.fromisoformat(self.get(f"consumergroup/{group}")["metadata"]["creationTimestamp"])
        second = timedelta(seconds=1)
        wait_for("the next second", lambda: datetime.now(UTC) >= created + second, within_s=5)  # noqa: TID251  the server's clock is this machine's

    def delete_groups(self, *names: str) -> None:
        """Delete ConsumerGroups, and wait until the operator has released their workloads."""
        self.kubectl("delete", "consumergroup", *names, f"--timeout={WITHIN_S}s")

    def condition(self, group: str, kind: str) -> dict[str, Any]:
        """Return a condition of a ConsumerGroup."""
        conditions: list[dict[str, Any]] = self.get(f"consumergroup/{group}")["status"]["conditions"]
        return next(each for each in conditions if each["type"] == kind)


def ready_of(group: Any) -> Any:  # noqa: ANN401  an object as it is stored
    """The condition Ready of a ConsumerGroup; empty while it has none."""
    conditions = (group.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "Ready"), {})


def open_shop(
    cluster: Cluster, coordinator: str, namespaces: list[str], labels: Mapping[str, str] | None = None
) -> Shop:
    """Create a namespace, and add it to `namespaces`, which are deleted in the end."""
    name = f"shop-{len(namespaces)}-{uuid.uuid4().hex[:6]}"
    metadata = {"name": name, "labels": dict(labels or {})}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    cluster.kubectl("create", "--filename", "-", input=json.dumps(namespace))
    namespaces.append(name)
    return Shop(cluster, name, coordinator)
