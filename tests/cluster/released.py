"""
The chart, installed by Helm beside an example that runs: what the tests of upgrades and removal share.

The second tag of an image stands for another version of it: Kubernetes compares names.
"""

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import helm, rota_images
from tests.support.cluster import Cluster
from tests.support.cluster.images import Image
from tests.support.cluster.manifests import Manifest, restricted_namespace
from tests.support.cluster.orders import AUDIT, ENRICHER, GROUP, PAUSE, with_topics
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.helm import CHART
from tests.support.processes import ProcessFailed, wait_for

RELEASE = "rota"
WITHIN_S = 180
# A busy machine may freeze a member for longer than the 6 s of the example.
SESSION_S = 60
REPLICAS = 2
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

    def install(self) -> None:
        """Install the chart with the images of this state of the sources."""
        # Other tests may have created the CustomResourceDefinition.
        self.helm(
            "install", RELEASE, CHART, "--wait", f"--timeout={WITHIN_S}s", "--take-ownership", *self.values
        )

    def upgrade(self) -> None:
        """Upgrade all parts to the second tags of their images."""
        tags = [f"--set={part}.image.tag={self.images[part].name.rpartition(':')[2]}{NEXT}" for part in PARTS]
        self.helm(
            "upgrade", RELEASE, CHART, "--wait", f"--timeout={WITHIN_S}s", "--reuse-values",
            "--take-ownership", *tags,
        )  # fmt: skip

    def parts(self) -> dict[str, str]:
        """Images of the pods of operator and coordinator that are not being deleted, by their UIDs."""
        return {
            each["metadata"]["uid"]: each["spec"]["containers"][0]["image"]
            for each in self.cluster.get("pods", namespace=self.namespace)["items"]
            if each["metadata"]["labels"].get("app.kubernetes.io/component") in PARTS
            and "deletionTimestamp" not in each["metadata"]
        }

    def consumers(self) -> list[Any]:
        """Pods of the example's group that are not being deleted; those from before the adoption are."""
        found = self.cluster.get("pods", namespace=self.shop)["items"]
        return [
            each
            for each in found
            if each["metadata"]["labels"].get("app") == ENRICHER
            and "deletionTimestamp" not in each["metadata"]
        ]

    def group(self) -> Group:
        """Return the group as it is."""
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
        """Wait until the group is as it was: its generation is unknown for a moment when a loss is noticed, and never goes back."""
        assert group.generation is not None
        wait_for(f"{group}, as before", lambda: self.group() == group, within_s=WITHIN_S, poll_s=0.5)

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
        status = self.cluster.get(f"consumergroup/{GROUP}", namespace=self.shop).get("status", {})
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        shares = {each["podName"]: each["partitions"] for each in status.get("placements", ())}
        pods = self.consumers()
        return (
            conditions.get("Ready") == "True"
            # A status from before a rollout has other pods.
            and shares == dict.fromkeys([each["metadata"]["name"] for each in pods], 12 // REPLICAS)
            and len(pods) == REPLICAS
            and all("initContainerStatuses" in each["status"] for each in pods)
        )

    def lives(self) -> set[tuple[str, int]]:
        """Lives of the coordinators that are ready: the pod's UID, and the restarts of its container."""
        return {
            (each["metadata"]["uid"], each["status"]["containerStatuses"][0]["restartCount"])
            for each in self.cluster.get("pods", namespace=self.namespace)["items"]
            if each["metadata"]["labels"].get("app.kubernetes.io/component") == "coordinator"
            and "deletionTimestamp" not in each["metadata"]
            and any(
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

    def run_in_application(self, program: str, *arguments: str) -> str:
        """Run a program beside the example's application, with its files and credentials."""
        text = with_topics(program, self.shop)
        pod = f"deployment/{ENRICHER}"
        return self.kubectl("exec", pod, "--container=app", "--", "python", "-c", text, *arguments).strip()

    def audit(self) -> Audit:
        """Count the orders in Rota's log, once each has its price."""
        audited = self.run_in_application(AUDIT, f"rota://{self.coordinator}")
        found = AUDITED.fullmatch(audited)
        assert found is not None, audited
        return Audit(*map(int, found.groups()))

    def wait_committed(self) -> None:
        """Wait until the group has committed all orders, which it does at intervals after it has priced them."""
        servers = f"--bootstrap-servers=rota://{self.coordinator}"
        lag = f"python -m rota_cli groups lag {self.shop}.{GROUP} {servers} --output=json"
        in_application = ("exec", f"deployment/{ENRICHER}", "--container=app", "--", *lag.split())
        wait_for(
            "all orders are committed",
            lambda: json.loads(self.kubectl(*in_application))["lag_records"] == 0,
            within_s=WITHIN_S,
            poll_s=0.5,
        )

    def pause_s(self, since_ms: int) -> float:
        """Return the longest time without an order that was priced, since a time and until after now."""
        times = (str(since_ms), str(now_ms()))
        return float(self.run_in_application(PAUSE, f"rota://{self.coordinator}", *times))

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


def small(manifests: list[Manifest], session_s: int = SESSION_S) -> list[Manifest]:
    """The orders example with fewer members, none of which is lost on a busy machine."""
    for manifest in manifests:
        if manifest["kind"] == "ConsumerGroup":
            manifest["spec"]["replicas"] = REPLICAS
            manifest["spec"]["membership"] = {"sessionTimeoutSeconds": session_s}
    return manifests


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
    flags = [f"--set=watchNamespaces={{{shop}}}", "--set=operator.replicas=1", *tag_flags(images), *values]
    yield Release(cluster, namespace, shop, images, flags)
    # Of a release that is installed no longer, too.
    helm.prepare().run(
        "uninstall", RELEASE, "--ignore-not-found", "--namespace", namespace, kubeconfig=cluster.kubeconfig
    )
    release_group(cluster, shop)
    wait_gone(cluster, namespace)
    cluster.kubectl("delete", "namespace", namespace, shop, "--wait=false")


def wait_gone(cluster: Cluster, namespace: str) -> None:
    """Wait until the pods of operator and coordinator of a release that was uninstalled are gone."""
    cluster.kubectl(
        "wait", "pods", "--selector=app.kubernetes.io/component in (operator,coordinator)",
        "--for=delete", f"--namespace={namespace}", f"--timeout={WITHIN_S}s",
    )  # fmt: skip


def release_group(cluster: Cluster, namespace: str) -> None:
    """Delete the group without an operator, as the guide says."""
    at = f"--namespace={namespace}"
    without = '--patch={"metadata":{"finalizers":null}}'
    if cluster.get("consumergroups", namespace=namespace)["items"]:
        cluster.kubectl("patch", "consumergroup", GROUP, "--type=merge", without, at)
        cluster.kubectl("delete", "consumergroup", GROUP, at, f"--timeout={WITHIN_S}s")
