"""
The chart, installed by Helm beside an example that runs: what the tests of a release share.

The second tag of an image stands for another version of it: Kubernetes compares names.
"""

import base64
import json
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import helm, rota_images
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.addresses import NODES
from tests.support.cluster.cluster import statuses_of
from tests.support.cluster.images import Image
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest, restricted_namespace
from tests.support.cluster.orders import AUDIT, ENRICHER, GROUP, PAUSE, SESSION_S, with_topics
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS as EXAMPLE_COORDINATOR
from tests.support.helm import CHART
from tests.support.processes import ProcessFailed, wait_for

RELEASE = "rota"
REPLICAS = 2
# Of the orders' topic.
PARTITIONS = 12
HOSTNAME = "kubernetes.io/hostname"
# Variable that an adopted client has: the path of its token.
GIVEN = '{.spec.template.spec.containers[0].env[?(@.name=="ROTA_TOKEN_FILE")].value}'
PARTS = ("operator", "coordinator", "sidecar")
NEXT = "-next"
AUDITED = re.compile(r"produced (\d+), processed (\d+), unprocessed (\d+), repeated (\d+)")


class Group(NamedTuple):
    """State of the group and its pods that an upgrade must not change."""

    # None: unknown.
    generation: int | None
    # UIDs of the consumers' pods, and the restarts of all their containers.
    pods: frozenset[str]
    restarts: int


class Audit(NamedTuple):
    """Numbers of orders."""

    produced: int
    processed: int
    unprocessed: int
    # Prices beyond the first one of an order.
    repeated: int


class Release(NamedTuple):
    """A release in a namespace, and its user's kubectl in another one."""

    cluster: Cluster
    namespace: str
    shop: str
    images: Mapping[str, Image]
    # Flags of the first installation.
    values: Sequence[str] = ()

    @property
    def coordinator(self) -> str:
        """Address of its coordinator."""
        return f"{RELEASE}-coordinator.{self.namespace}:7070"

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm for the release's namespace."""
        return helm.prepare().run(
            *arguments, "--namespace", self.namespace, kubeconfig=self.cluster.kubeconfig
        )

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace of the applications."""
        return self.cluster.kubectl("--namespace", self.shop, *arguments)

    def install(self) -> str:
        """Install the chart with the images of this state of the sources; return its notes."""
        # Other tests may have created the CustomResourceDefinition.
        return self.helm(
            "install", RELEASE, CHART, "--wait", f"--timeout={WITHIN_S}s", "--take-ownership", *self.values
        )

    def upgrade(self, *parts: str) -> None:
        """Upgrade these parts to the second tags of their images."""
        tags = [f"--set={part}.image.tag={self.images[part].name.rpartition(':')[2]}{NEXT}" for part in parts]
        self.helm(
            "upgrade", RELEASE, CHART, "--wait", f"--timeout={WITHIN_S}s", "--reuse-values",
            "--take-ownership", *tags,
        )  # fmt: skip

    def parts(self, *parts: str) -> dict[str, str]:
        """Images of the pods of these parts that are not being deleted, by their UIDs."""
        return {
            each["metadata"]["uid"]: each["spec"]["containers"][0]["image"]
            for each in self.pods(self.namespace, f"app.kubernetes.io/component in ({', '.join(parts)})")
        }

    def pods(self, namespace: str, selector: str = "") -> list[Any]:
        """Pods that are not being deleted."""
        found = self.cluster.get("pods", namespace=namespace, selector=selector)["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def consumers(self) -> list[Any]:
        """Pods of the example's group that are not being deleted; those from before the adoption are."""
        return self.pods(self.shop, f"app={ENRICHER}")

    def restarts(self) -> Mapping[str, int]:
        """Restarts of each container of the release and of the applications, by NAMESPACE/POD/CONTAINER."""
        return {
            f"{namespace}/{pod['metadata']['name']}/{each['name']}": each["restartCount"]
            for namespace, selector in ((self.namespace, "app.kubernetes.io/component"), (self.shop, ""))
            for pod in self.pods(namespace, selector)
            for each in statuses_of(pod)
        }

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret of the release."""
        found = self.cluster.get(f"secret/{name}", namespace=self.namespace)
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    def wait_group(self, condition: str, name: str = GROUP) -> None:
        """Wait until a ConsumerGroup is so, in the words of `kubectl wait`; what it is instead is raised."""
        group = f"consumergroup/{name}"
        try:
            self.cluster.wait(group, condition, namespace=self.shop)
        except KubectlFailed as error:
            raise AssertionError(f"{error}: {self.cluster.get(group, namespace=self.shop)}") from None

    def group(self) -> Group:
        """Return the group as it is, once its generation is known: while its coordinator changes, it is not for a moment."""
        found: list[Group] = []

        def is_known() -> bool:
            found[:] = [self._group()]
            return found[0].generation is not None

        wait_for("the group's generation is known", is_known, within_s=WITHIN_S, poll_s=0.5)
        return found[0]

    def _group(self) -> Group:
        pods = self.consumers()
        states = [
            state
            for each in pods
            for state in (*each["status"]["initContainerStatuses"], *each["status"]["containerStatuses"])
        ]
        status = self.cluster.get(f"consumergroup/{GROUP}", namespace=self.shop)["status"]
        uids = frozenset(each["metadata"]["uid"] for each in pods)
        return Group(status.get("generation"), uids, sum(each["restartCount"] for each in states))

    def wait_unchanged(self, group: Group) -> None:
        """Wait until the group is as it was; its generation never goes back."""
        wait_for(f"{group}, as before", lambda: self._group() == group, within_s=WITHIN_S, poll_s=0.5)

    def wait_shared(self) -> None:
        """Wait until the group is ready, and its members have equal numbers of partitions."""
        try:
            wait_for("every member has its share", self._is_shared, within_s=WITHIN_S, poll_s=0.5)
        except ProcessFailed as error:
            status = self.cluster.get(f"consumergroup/{GROUP}", namespace=self.shop).get("status", {})
            logs = self.cluster.kubectl(
                "logs", f"--namespace={self.namespace}", "--tail=40", "--prefix",
                "--selector=app.kubernetes.io/component in (operator,coordinator)",
            )  # fmt: skip
            raise ProcessFailed(f"{error}; its status is {json.dumps(status)}\n{logs}") from None

    def _is_shared(self) -> bool:
        group = self.cluster.get(f"consumergroup/{GROUP}", namespace=self.shop)
        status, replicas = group.get("status", {}), group["spec"]["replicas"]
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        shares = {each["podName"]: each["partitions"] for each in status.get("placements", ())}
        pods = self.consumers()
        return (
            conditions.get("Ready") == "True"
            # A status from before a rollout has other pods.
            and shares == dict.fromkeys([each["metadata"]["name"] for each in pods], PARTITIONS // replicas)
            and len(pods) == replicas
            and all("initContainerStatuses" in each["status"] for each in pods)
        )

    def lives(self) -> set[tuple[str, int]]:
        """Lives of the coordinators that are ready: the pod's UID, and the restarts of its container."""
        return {
            (each["metadata"]["uid"], each["status"]["containerStatuses"][0]["restartCount"])
            for each in self.pods(self.namespace, "app.kubernetes.io/component=coordinator")
            if any(
                (found["type"], found["status"]) == ("Ready", "True")
                for found in each["status"].get("conditions", ())
            )
        }

    def kill_coordinator(self, pod: str) -> None:
        """Kill a coordinator's process; its container restarts."""
        self.cluster.signal_container(signal.SIGKILL, pod, "coordinator", namespace=self.namespace)

    def wait_replaced(self, before: set[tuple[str, int]], *, all_of_them: bool = True) -> None:
        """Wait until as many coordinators are ready as before, and the former ones, or one of them, are gone."""

        def replaced() -> bool:
            now = self.lives()
            return len(now) == len(before) and (not now & before if all_of_them else now != before)

        wait_for("the coordinator is ready again", replaced, within_s=WITHIN_S, poll_s=0.2)

    def run_in(self, deployment: str, program: str, *arguments: str) -> str:
        """Run a program in a pod of one of the example's Deployments, beside its application, with its files and credentials."""
        text, pod = with_topics(program, self.shop), self.pods(self.shop, f"app={deployment}")[0]
        return self.kubectl(
            "exec", pod["metadata"]["name"], "--container=app", "--", "python", "-c", text, *arguments
        ).strip()

    def audit(self, servers: str = "") -> Audit:
        """Count the orders in Rota's log, or at these servers of Kafka, once each has its price."""
        audited = self.run_in(ENRICHER, AUDIT, servers or f"rota://{self.coordinator}")
        found = AUDITED.fullmatch(audited)
        assert found is not None, audited
        return Audit(*map(int, found.groups()))

    def pause_s(self, since_ms: int) -> float:
        """Return the longest time without an order that was priced, since a time and until after now."""
        times = (str(since_ms), str(now_ms()))
        return float(self.run_in(ENRICHER, PAUSE, f"rota://{self.coordinator}", *times))

    def wait_adopted(self, deployment: str) -> None:
        """Wait until the operator has given a client its token."""
        self.kubectl("wait", f"deployment/{deployment}", f"--for=jsonpath={GIVEN}", f"--timeout={WITHIN_S}s")

    def start_producer(self) -> None:
        """Scale the example's producer to a pod, once it is adopted: an earlier pod would be replaced at once."""
        self.wait_adopted(PRODUCER)
        self.kubectl("scale", f"deployment/{PRODUCER}", "--replicas=1")

    def stop_producer(self) -> None:
        """Scale the example's producer to no pods, and wait until they are gone."""
        self.kubectl("scale", f"deployment/{PRODUCER}", "--replicas=0")
        self.kubectl("wait", "pods", f"--selector=app={PRODUCER}", "--for=delete", f"--timeout={WITHIN_S}s")


def now_ms() -> int:
    """Time of this machine, which is that of all pods."""
    return time.time_ns() // 1_000_000


def tag_flags(images: Mapping[str, Image]) -> Iterator[str]:
    """Yield Helm's flags with the images of this state of the sources."""
    for part in PARTS:
        repository, _, tag = images[part].name.rpartition(":")
        yield f"--set={part}.image.repository={repository},{part}.image.tag={tag}"


def at_coordinator(manifests: list[Manifest], address: str) -> list[Manifest]:
    """Manifests of an example at a release's coordinator; no member is lost on a busy machine."""
    found: list[Manifest] = json.loads(json.dumps(manifests).replace(EXAMPLE_COORDINATOR, address))
    for manifest in found:
        if manifest["kind"] == "ConsumerGroup":
            manifest["spec"]["membership"] = {"sessionTimeoutSeconds": SESSION_S}
    return found


def small(manifests: list[Manifest], node: str) -> list[Manifest]:
    """The orders example with fewer members, on one node. It has no pods before it is adopted, which would be replaced at once."""
    for manifest in manifests:
        if manifest["kind"] == "ConsumerGroup":
            manifest["spec"]["replicas"] = REPLICAS
        elif manifest["kind"] == "Deployment":
            manifest["spec"]["replicas"] = 0
            manifest["spec"]["template"]["spec"]["nodeSelector"] = {HOSTNAME: node}
    return manifests


def on_nodes(*names: str) -> Manifest:
    """A term of a node affinity."""
    return {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(names)}]}


def volume(folder: Path, namespace: str) -> Manifest:
    """A volume for the chart's claim, which both nodes reach: the cluster provisions none."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-coordinator"},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": namespace, "name": f"{RELEASE}-coordinator"},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [on_nodes(*(each.name for each in NODES))]}},
        },
    }


@contextmanager
def prepared(cluster: Cluster, namespace: str, *values: str) -> Iterator[Release]:
    """The namespaces, and nodes with two tags of every image; the release is not installed yet."""
    images, shop = rota_images.prepare(), f"{namespace}-shop"
    for part, image in images.items():
        cluster.load_image(image)
        if part in PARTS:
            cluster.tag_image(image, image.name + NEXT)
    for name in (namespace, shop):
        cluster.kubectl("create", "--filename", "-", input=json.dumps(restricted_namespace(name)))
        cluster.wait("serviceaccount/default", "create", namespace=name)
    yield Release(cluster, namespace, shop, images, [*tag_flags(images), *values])
    # Of a release that is installed no longer, too.
    helm.prepare().run(
        "uninstall", RELEASE, "--ignore-not-found", "--namespace", namespace, kubeconfig=cluster.kubeconfig
    )
    release_groups(cluster, shop)
    wait_gone(cluster, namespace)
    cluster.kubectl("delete", "namespace", namespace, shop, "--wait=false")
    cluster.kubectl(
        "delete", "persistentvolume", f"{namespace}-coordinator", "--ignore-not-found", "--wait=false"
    )


def wait_gone(cluster: Cluster, namespace: str) -> None:
    """Wait until the pods of operator and coordinator of a release that was uninstalled are gone."""
    cluster.kubectl(
        "wait", "pods", "--selector=app.kubernetes.io/component in (operator,coordinator)",
        "--for=delete", f"--namespace={namespace}", f"--timeout={WITHIN_S}s",
    )  # fmt: skip


def release_groups(cluster: Cluster, namespace: str) -> None:
    """Delete the groups without an operator, as the guide says."""
    at = f"--namespace={namespace}"
    without = '--patch={"metadata":{"finalizers":null}}'
    for each in cluster.kubectl("get", "consumergroups", "--output=name", at).split():
        cluster.kubectl("patch", each, "--type=merge", without, at)
        cluster.kubectl("delete", each, at, f"--timeout={WITHIN_S}s")
