"""
The chart, installed by Helm into a namespace that enforces the Pod Security level "restricted": with TLS, by certificates of its Job, and
with tokens that Kubernetes reviews.

The orders example prices each order once; `helm test` passes; `helm uninstall` leaves the applications running.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import helm, rota_images
from tests.support.cluster import Cluster
from tests.support.cluster.images import Image
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import AUDIT, ENRICHER, GROUP, orders
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS as EXAMPLE_COORDINATOR
from tests.support.helm import CHART

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

RELEASE, NAMESPACE, SHOP = "rota", "installed", "installed-shop"
COORDINATOR = f"rota-coordinator.{NAMESPACE}:7070"
WITHIN_S = 120
# A busy machine may freeze a member for longer than the 6 s of the example.
SESSION_S = 60
MEBIBYTE = 1024 * 1024
WORKING_SET = re.compile(r'^container_memory_working_set_bytes\{container="([^"]+)",namespace="([^"]+)",pod="([^"]+)"\} (\S+)', re.MULTILINE)  # fmt: skip


class Installed(NamedTuple):
    """The release, and its user's kubectl."""

    cluster: Cluster
    # Of the command line: applications run in it.
    application: Image
    # Duration of `helm install --wait`.
    install_s: float = 0.0

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm for the release's namespace."""
        return helm.prepare().run(*arguments, "--namespace", NAMESPACE, kubeconfig=self.cluster.kubeconfig)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace of the applications."""
        return self.cluster.kubectl("--namespace", SHOP, *arguments)


def values(images: dict[str, Image]) -> list[str]:
    """Flags with the images of this state of the sources. The cluster has no volumes."""
    found = ["--set=coordinator.store.sqlite.persistent=false", f"--set=watchNamespaces={{{SHOP}}}"]
    for part in ("operator", "coordinator", "sidecar"):
        repository, _, tag = images[part].name.rpartition(":")
        found.append(f"--set={part}.image.repository={repository},{part}.image.tag={tag}")
    return found


@pytest.fixture(scope="module")
def installed(without_operator: Cluster) -> Iterator[Installed]:
    """Install the chart; uninstall it in the end."""
    cluster, images = without_operator, rota_images.prepare()
    for image in images.values():
        cluster.load_image(image)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in (NAMESPACE, SHOP):
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": restricted},
        }
        cluster.kubectl("create", "--filename", "-", input=json.dumps(namespace))
    release = Installed(cluster, images["cli"])
    began = time.monotonic()  # noqa: TID251  a measurement
    # Other tests may have created the CustomResourceDefinition.
    release.helm(
        "install", RELEASE, CHART, "--wait", f"--timeout={WITHIN_S}s", "--take-ownership", *values(images)
    )
    yield release._replace(install_s=time.monotonic() - began)  # noqa: TID251
    cluster.kubectl("delete", "namespace", NAMESPACE, SHOP, "--wait=false")


def example(image: str) -> list[Manifest]:
    """The orders example at the release's coordinator."""
    found: list[Manifest] = json.loads(
        json.dumps(orders(SHOP, image)).replace(EXAMPLE_COORDINATOR, COORDINATOR)
    )
    for manifest in found:
        if manifest["kind"] == "ConsumerGroup":
            manifest["spec"]["membership"] = {"sessionTimeoutSeconds": SESSION_S}
    return found


def memory(cluster: Cluster) -> Iterator[str]:
    """Yield the working set of each container of the release."""
    for node in cluster.get("nodes")["items"]:
        page = cluster.kubectl(
            "get", "--raw", f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics/resource"
        )
        for name, namespace, of, size in WORKING_SET.findall(page):
            if namespace in (NAMESPACE, SHOP):
                yield f"{of} {name}: {float(size) / MEBIBYTE:.0f} MiB"


def test_the_orders_example_prices_each_order_once(installed: Installed, report: list[str]) -> None:
    cluster = installed.cluster
    cluster.apply(example(installed.application.name), namespace=SHOP)
    cluster.wait(f"consumergroup/{GROUP}", "condition=Ready", namespace=SHOP, within_s=WITHIN_S)
    report.append(f"helm install --wait: {installed.install_s:.0f} s")
    report.extend(sorted(memory(cluster)))
    installed.kubectl("scale", f"deployment/{PRODUCER}", "--replicas=0")
    installed.kubectl("wait", "pods", f"--selector=app={PRODUCER}", "--for=delete", f"--timeout={WITHIN_S}s")
    # A member that is still ending could price an order again.
    installed.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
    application = ("exec", f"deployment/{ENRICHER}", "--container=app", "--", "python", "-c", AUDIT)
    audited = installed.kubectl(*application, f"rota://{COORDINATOR}").strip()
    report.append(f"orders: {audited}")
    found = re.fullmatch(r"produced (\d+), processed (\d+), unprocessed 0, repeated 0", audited)
    assert found is not None, audited
    assert found[1] == found[2] != "0"


def test_helm_test_passes(installed: Installed) -> None:
    said = installed.helm("test", RELEASE, "--logs", f"--timeout={WITHIN_S}s")
    assert "Phase:          Succeeded" in said
    assert f"rota-operator.{NAMESPACE}:7083: ok" in said
    assert f"{COORDINATOR}: ok" in said


def test_no_log_has_a_key(installed: Installed) -> None:
    for resource in ("job", "deployment/rota-operator", "statefulset/rota-coordinator"):
        name = resource
        if resource == "job":
            [job] = installed.cluster.get("jobs", namespace=NAMESPACE)["items"]
            name = f"job/{job['metadata']['name']}"
        said = installed.cluster.kubectl("logs", "--namespace", NAMESPACE, name)
        assert said
        assert "PRIVATE KEY" not in said


def test_uninstalling_leaves_the_group_and_its_pods(installed: Installed) -> None:
    """The last one."""
    names = [each["metadata"]["uid"] for each in installed.cluster.get("pods", namespace=SHOP)["items"]]
    said = installed.helm("uninstall", RELEASE, "--wait", f"--timeout={WITHIN_S}s")
    assert "CustomResourceDefinition] consumergroups.rota.dev" in said
    assert [
        each["metadata"]["uid"] for each in installed.cluster.get("pods", namespace=SHOP)["items"]
    ] == names
    assert installed.kubectl("get", "consumergroups", "--output=name") == f"consumergroup.rota.dev/{GROUP}\n"
    # As the guide says, without an operator.
    installed.kubectl(
        "patch", "consumergroup", GROUP, "--type=merge", '--patch={"metadata":{"finalizers":null}}'
    )
    installed.kubectl("delete", "consumergroup", GROUP, "--timeout=60s")
