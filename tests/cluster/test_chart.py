"""
The chart, installed by Helm into a namespace that enforces the Pod Security level "restricted": with TLS, by certificates of its Job, and
with tokens that Kubernetes reviews. It has Roles only, and the right to review tokens that its notes let an administrator grant.

The orders example prices each order once, and that of payments writes each receipt once; `helm test` passes; `helm uninstall` leaves
the applications running. A second release, of values-quickstart.yaml, is installed beside it.
"""

import json
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.chart.granted import rights
from tests.chart.rendered import VALUES, of_kind
from tests.cluster.monitored import jobs_of
from tests.cluster.recorded_rights import not_granted, of_cluster
from tests.cluster.released import tag_flags
from tests.monitoring.stage import shortened_rules
from tests.support import helm, rota_images
from tests.support.cluster import Cluster
from tests.support.cluster.images import Image
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest, restricted_namespace
from tests.support.cluster.orders import AUDIT, COUNTS, ENRICHER, GROUP, orders
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS as EXAMPLE_COORDINATOR
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.documented_metrics import labels_by_name
from tests.support.helm import CHART
from tests.support.processes import wait_for
from tests.support.prometheus.fixtures import StartPrometheus
from tests.support.tree import REPO

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

RELEASE, NAMESPACE, SHOP = "rota", "installed", "installed-shop"
# The file is the one that users apply: its namespace is the test's, and its image is one that the nodes have.
BILLER, TILL = "biller", "till"
PAYMENTS = REPO / "examples" / "exactly-once" / "exactly-once.yaml"
# Run in a container of the example, after the till has closed: reads until every payment has a receipt.
RECEIPTS = """
import collections, json, sys, rota
def payments(topic):
    found = collections.Counter()
    positions = {(topic, number): 0 for number in range(6)}
    with rota.LogReader(sys.argv[1], read_committed=True) as reader:
        while True:
            before = dict(positions)
            for fetched in reader.fetch(positions, max_wait_ms=200):
                found.update(json.loads(record.value)["payment"] for record in fetched)
                positions[fetched.topic, fetched.partition] = fetched.next_offset
            if positions == before:
                return found
paid = payments("payments")
receipts = payments("receipts")
while paid.keys() - receipts.keys():
    receipts = payments("receipts")
print("payments", paid.total(), "receipts", receipts.total(), "different", len(receipts))
"""
# Prints whether there is a payment.
SOLD = """
import sys, rota
with rota.LogReader(sys.argv[1]) as reader:
    found = reader.fetch({("payments", number): 0 for number in range(6)}, max_wait_ms=200)
    print(any(fetched.high_watermark for fetched in found))
"""
# Binding of the release's accounts to the right to review tokens, as its notes name it.
REVIEWS = f"rota:{NAMESPACE}:{RELEASE}:token-reviews"
TOKEN_REVIEWS = "authentication.k8s.io/tokenreviews"
# Without any right beyond the namespaces; other tests may have created the CustomResourceDefinition.
NAMESPACED = (f"--values={CHART / 'values-namespaced.yaml'}", "--set=crds.install=true")
COORDINATOR_DOWN = "RotaCoordinatorDown"
QUICK, QUICK_SHOP = "quickstart", "quickstart-shop"
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
    # Of the example of payments.
    payments: Image
    # Duration of `helm install --wait`.
    install_s: float = 0.0

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm for the release's namespace."""
        return helm.prepare().run(*arguments, "--namespace", NAMESPACE, kubeconfig=self.cluster.kubeconfig)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace of the applications."""
        return self.cluster.kubectl("--namespace", SHOP, *arguments)


def values(images: dict[str, Image], shop: str = SHOP) -> list[str]:
    """Flags with the images of this state of the sources, for a namespace in place of the examples'. The cluster has no volumes."""
    grants = [{**each, "namespace": shop} for each in VALUES["coordinator"]["grants"]]
    return [
        f"--set-json=coordinator.grants={json.dumps(grants)}",
        "--set=coordinator.store.sqlite.persistent=false",
        f"--set=watchNamespaces={{{shop}}}",
        *tag_flags(images),
    ]


def grant_token_reviews(cluster: Cluster, notes: str) -> None:
    """Run the command that the release's notes have for an administrator."""
    [command] = re.findall(r"kubectl (create clusterrolebinding (?:.*\\\n)*.*)", notes)
    cluster.kubectl(*shlex.split(command.replace("\\\n", " ")))


@pytest.fixture(scope="module")
def installed(without_operator: Cluster) -> Iterator[Installed]:
    """Install the chart with Roles only, and let it review tokens; uninstall it in the end."""
    cluster, images = without_operator, rota_images.prepare()
    for image in images.values():
        cluster.load_image(image)
    for name in (NAMESPACE, SHOP):
        cluster.kubectl("create", "--filename", "-", input=json.dumps(restricted_namespace(name)))
    release = Installed(cluster, images["cli"], images[rota_images.EXAMPLE])
    began = time.monotonic()  # noqa: TID251  a measurement
    notes = release.helm(
        "install", RELEASE, CHART, "--wait", f"--timeout={WITHIN_S}s", "--take-ownership",
        *NAMESPACED, *values(images),
    )  # fmt: skip
    took_s = time.monotonic() - began  # noqa: TID251
    grant_token_reviews(cluster, notes)
    yield release._replace(install_s=took_s)
    cluster.kubectl("delete", "clusterrolebinding", REVIEWS)
    cluster.kubectl("delete", "namespace", NAMESPACE, SHOP, "--wait=false")


@pytest.fixture(scope="module")
def quickstart(installed: Installed) -> Iterator[Installed]:
    """Install a second release by values-quickstart.yaml for a namespace of its own, and the orders example; waits for neither."""
    cluster = installed.cluster
    for name in (QUICK, QUICK_SHOP):
        cluster.kubectl("create", "namespace", name)
    flags = (f"--values={CHART / 'values-quickstart.yaml'}", "--set=crds.install=false", "--namespace", QUICK)
    images = values(rota_images.prepare(), QUICK_SHOP)
    helm.prepare().run("install", QUICK, CHART, *images, *flags, kubeconfig=cluster.kubeconfig)
    manifests = at_coordinator(
        orders(QUICK_SHOP, installed.application.name), f"quickstart-rota-coordinator.{QUICK}:7070"
    )
    cluster.apply(manifests, namespace=QUICK_SHOP)
    yield installed
    helm.prepare().run("uninstall", QUICK, "--namespace", QUICK, kubeconfig=cluster.kubeconfig)
    delete_group(cluster, QUICK_SHOP, GROUP)
    cluster.kubectl("delete", "namespace", QUICK, QUICK_SHOP, "--wait=false")


def delete_group(cluster: Cluster, namespace: str, name: str) -> None:
    """Delete a ConsumerGroup as the guide says, without an operator."""
    group = ("consumergroup", name, "--namespace", namespace)
    cluster.kubectl("patch", *group, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
    cluster.kubectl("delete", *group, "--timeout=60s")


def payments(image: str) -> list[Manifest]:
    """The example of payments at the release's coordinator."""
    found = list(yaml.safe_load_all(PAYMENTS.read_text()))
    for manifest in found:
        manifest["metadata"]["namespace"] = SHOP
        if manifest["kind"] == "Deployment":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container |= {"image": image, "securityContext": SECURITY}
    return at_coordinator(found, COORDINATOR)


def at_coordinator(manifests: list[Manifest], address: str) -> list[Manifest]:
    """Manifests of an example, at a release's coordinator."""
    found: list[Manifest] = json.loads(json.dumps(manifests).replace(EXAMPLE_COORDINATOR, address))
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


def test_the_orders_example_prices_each_order_once(
    installed: Installed, quickstart: Installed, report: list[str]
) -> None:
    cluster = installed.cluster
    manifests = orders(SHOP, installed.application.name, a_second=None)
    cluster.apply(at_coordinator(manifests, COORDINATOR), namespace=SHOP)
    # Of the next test.
    cluster.apply(payments(installed.payments.name), namespace=SHOP)
    cluster.wait(f"consumergroup/{GROUP}", "condition=Ready", namespace=SHOP, within_s=WITHIN_S)
    report.append(f"helm install --wait: {installed.install_s:.0f} s")
    report.extend(sorted(memory(cluster)))
    # A member that is still ending could price an order again.
    installed.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
    application = ("exec", f"deployment/{ENRICHER}", "--container=app", "--", "python", "-c")

    def says(program: str) -> str:
        return installed.kubectl(*application, program, f"rota://{COORDINATOR}").strip()

    # Shop and till are rolled out once more when they are given their tokens.
    # Each look is a process in a pod.
    wait_for(
        "the first order", lambda: not says(COUNTS).startswith("produced 0,"), within_s=WITHIN_S, poll_s=1
    )
    cluster.wait(f"consumergroup/{BILLER}", "condition=Ready", namespace=SHOP, within_s=WITHIN_S)
    wait_for("the first payment", lambda: says(SOLD) == "True", within_s=WITHIN_S, poll_s=1)
    sellers = f"--selector=app in ({PRODUCER}, {TILL})"
    installed.kubectl("scale", f"deployment/{PRODUCER}", f"deployment/{TILL}", "--replicas=0")
    installed.kubectl("wait", "pods", sellers, "--for=delete", f"--timeout={WITHIN_S}s")
    audited = says(AUDIT)
    report.append(f"orders: {audited}")
    found = re.fullmatch(r"produced (\d+), processed (\d+), unprocessed 0, repeated 0", audited)
    assert found is not None, audited
    assert found[1] == found[2] != "0"


def test_each_payment_has_one_receipt(installed: Installed, report: list[str]) -> None:
    """Of the payments that came in during the test before."""
    application = ("exec", f"deployment/{BILLER}", "--container=app", "--", "python", "-c", RECEIPTS)
    audited = installed.kubectl(*application, f"rota://{COORDINATOR}").strip()
    report.append(audited)
    found = re.fullmatch(r"payments (\d+) receipts (\d+) different (\d+)", audited)
    assert found is not None, audited
    assert found[1] == found[2] == found[3] != "0"


def test_prometheus_sees_the_pods_and_a_coordinator_that_stands_still(
    installed: Installed, start_prometheus: StartPrometheus, tmp_path: Path, report: list[str]
) -> None:
    """Through the chart's monitors. Orders are priced, and no more come."""
    began = time.monotonic()  # noqa: TID251  a measurement
    cluster, group = installed.cluster, f"{SHOP}.{GROUP}"
    chart = helm.render(
        *NAMESPACED,
        *values(rota_images.prepare()),
        "--set=monitoring.podMonitor.enabled=true",
        namespace=NAMESPACE,
    )
    prometheus = start_prometheus(
        # A scrape on a busy machine may be late.
        rules=[shortened_rules(tmp_path / "alerts.json", {COORDINATOR_DOWN: "2s"}, "30s")],
        reachable_from_pods=True,
        jobs=jobs_of(cluster, of_kind(chart, "PodMonitor"), NAMESPACE),
        scrape_interval="1s",
    )
    of = f'namespace="{SHOP}",name="{GROUP}"'
    for query in (
        f'rota_group_info{{{of},group="{group}",coordination="Rota"}} == 1',
        f'rota_group_condition{{{of},type="Ready"}} == 1',
        f'sum(rota_assigned_partitions{{group="{group}"}}) == scalar(rota_group_partitions{{{of}}})',
        f'sum(rota_lag_records{{group="{group}"}}) == 0 and on () rota_group_lag_records{{{of}}} == 0',
        f'sum(rota_records_total{{group="{group}",verdict="ack"}}) > 0',
        "rota_coordinator_members == scalar(count(rota_assigned_partitions))",
    ):
        prometheus.wait_for(query, within_s=WITHIN_S)
    names = {each.labels["__name__"] for each in prometheus.query('{__name__=~"rota_.*"}')}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} == labels_by_name().keys()
    fires = f'ALERTS{{alertname="{COORDINATOR_DOWN}",alertstate="firing",namespace="{NAMESPACE}",name="coordinator"}}'
    pod = ("rota-coordinator-0", "coordinator")
    cluster.signal_container(signal.SIGSTOP, *pod, namespace=NAMESPACE)
    try:
        prometheus.wait_for(fires, within_s=WITHIN_S)
    finally:
        cluster.signal_container(signal.SIGCONT, *pod, namespace=NAMESPACE)
    prometheus.wait_for(f"absent({fires})", within_s=WITHIN_S)
    fired = prometheus.query('count_over_time(ALERTS{alertstate="firing"}[1h])')
    assert {each.labels["alertname"] for each in fired} == {COORDINATOR_DOWN}
    report.append(f"Prometheus and pods: {time.monotonic() - began:.1f} s")  # noqa: TID251


def test_the_quick_start_makes_the_example_ready(quickstart: Installed) -> None:
    quickstart.cluster.wait(
        f"consumergroup/{GROUP}", "condition=Ready", namespace=QUICK_SHOP, within_s=WITHIN_S
    )
    # Two releases are in the cluster: each operator has adopted the workload of its own namespace alone.
    for namespace, operator in (
        (SHOP, f"{RELEASE}-operator.{NAMESPACE}"),
        (QUICK_SHOP, f"{QUICK}-rota-operator.{QUICK}"),
    ):
        workload = quickstart.cluster.get(f"deployment/{ENRICHER}", namespace=namespace)
        [sidecar] = workload["spec"]["template"]["spec"]["initContainers"]
        assert f"{operator}:7083" in json.dumps(sidecar)


def test_helm_test_passes(installed: Installed) -> None:
    said = installed.helm("test", RELEASE, "--logs", f"--timeout={WITHIN_S}s")
    assert "Phase:          Succeeded" in said
    assert f"rota-operator.{NAMESPACE}:7083: ok" in said
    assert f"{COORDINATOR}: ok" in said


def test_the_release_asks_nothing_of_the_cluster_but_to_review_tokens(installed: Installed) -> None:
    """With Roles only. The API server has recorded each request; it refused none but reviews before they were granted."""
    requests = list(installed.cluster.requests(NAMESPACE))
    assert {each.account.partition("/")[2] for each in requests} == {
        "rota-operator", "rota-coordinator", "rota-certificates",
    }  # fmt: skip
    assert {each.namespace for each in requests if each.namespace} == {NAMESPACE, SHOP}
    assert {(each.account, each.verb, each.resource) for each in of_cluster(requests)} == {
        (f"{NAMESPACE}/{account}", "create", TOKEN_REVIEWS)
        for account in ("rota-operator", "rota-coordinator")
    }
    granted = rights(helm.render(*NAMESPACED, *values(rota_images.prepare()), namespace=NAMESPACE))
    assert not_granted(granted, [each for each in requests if each.resource != TOKEN_REVIEWS]) == []
    # It would be refused.
    groups = (
        "get",
        "consumergroups",
        "--output=name",
        f"--as=system:serviceaccount:{NAMESPACE}:rota-operator",
    )
    assert GROUP in installed.kubectl(*groups)
    with pytest.raises(KubectlFailed, match="cannot list resource"):
        installed.cluster.kubectl(*groups, "--all-namespaces")


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
    assert installed.kubectl("get", "consumergroups", "--output=name").split() == [
        f"consumergroup.rota.dev/{each}" for each in (BILLER, GROUP)
    ]
    for each in (BILLER, GROUP):
        delete_group(installed.cluster, SHOP, each)
