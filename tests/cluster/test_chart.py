"""
The chart, installed by Helm into a namespace that enforces the Pod Security level "restricted": with TLS, by certificates of its Job, and
with tokens that Kubernetes reviews. It has Roles only, and the right to review tokens that its notes let an administrator grant.

The orders example prices each order once, and that of payments writes each receipt once; `helm test` passes. A second release, of
values-quickstart.yaml, is installed beside it, and removed. While orders come in, the release is upgraded and downgraded, and
one group lives through that: it goes on after `helm uninstall`, and is found by the release that is installed again.
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
from tests.cluster.released import (
    NEXT,
    RELEASE,
    REPLICAS,
    Audit,
    Release,
    at_coordinator,
    now_ms,
    prepared,
    release_groups,
    tag_flags,
    volume,
    wait_gone,
)
from tests.monitoring.stage import shortened_rules
from tests.support import helm, rota_images
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.images import Image
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import ENRICHER, GROUP, ORDERS_A_SECOND, TOPIC, orders
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.documented_metrics import OF_QUERIES, labels_by_name
from tests.support.helm import CHART
from tests.support.prometheus.fixtures import StartPrometheus
from tests.support.tree import REPO
from tests.support.workdir import workdir

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2_100)]

NAMESPACE, SHOP = "installed", "installed-shop"
# The file is the one that users apply: its namespace is the test's, and its image is one that the nodes have.
BILLER, TILL = "biller", "till"
PAYMENTS = REPO / "examples" / "exactly-once" / "exactly-once.yaml"
# Run in a container of the example: waits until there are records in each of these topics, which may not exist yet.
SOLD = """
import sys, time, rota
address, *topics = sys.argv[1:]
for topic in topics:
    described = []
    while not described:
        try:
            with rota.Topics(address) as admin:
                described = admin.describe([topic])
        except rota.errors.UnknownTopicOrPartition:
            time.sleep(0.2)
    positions = {(topic, number): 0 for number in range(described[0].partitions)}
    with rota.LogReader(address) as reader:
        while not any(fetched.high_watermark for fetched in reader.fetch(positions, max_wait_ms=200)):
            pass
"""
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
# Binding of the release's accounts to the right to review tokens, as its notes name it.
REVIEWS = f"rota:{NAMESPACE}:{RELEASE}:token-reviews"
TOKEN_REVIEWS = "authentication.k8s.io/tokenreviews"
# Without any right beyond the namespaces; other tests may have created the CustomResourceDefinition.
NAMESPACED = (f"--values={CHART / 'values-namespaced.yaml'}", "--set=crds.install=true")
COORDINATOR_DOWN = "RotaCoordinatorDown"
# Parts whose pods an upgrade replaces; that of the sidecar's image changes no consumer.
UPGRADED = ("operator", "coordinator")
QUICK, QUICK_SHOP = "quickstart", "quickstart-shop"
COORDINATOR = f"rota-coordinator.{NAMESPACE}:7070"
MEBIBYTE = 1024 * 1024
WORKING_SET = re.compile(r'^container_memory_working_set_bytes\{container="([^"]+)",namespace="([^"]+)",pod="([^"]+)"\} (\S+)', re.MULTILINE)  # fmt: skip


class Installed(NamedTuple):
    """The release, and what its installation took."""

    release: Release
    # Duration of `helm install --wait`.
    install_s: float


def values(shop: str = SHOP) -> list[str]:
    """Flags for a namespace in place of the examples'."""
    grants = [{**each, "namespace": shop} for each in VALUES["coordinator"]["grants"]]
    return [f"--set-json=coordinator.grants={json.dumps(grants)}", f"--set=watchNamespaces={{{shop}}}"]


def rendered(*flags: str) -> list[helm.Object]:
    """Render the chart as it is installed, with further flags."""
    images = tag_flags(rota_images.prepare())
    return list(helm.render(*NAMESPACED, *values(), *images, *flags, namespace=NAMESPACE))


def grant_token_reviews(cluster: Cluster, notes: str) -> None:
    """Run the command that the release's notes have for an administrator."""
    [command] = re.findall(r"kubectl (create clusterrolebinding (?:.*\\\n)*.*)", notes)
    cluster.kubectl(*shlex.split(command.replace("\\\n", " ")))


@pytest.fixture(scope="module")
def installed(without_operator: Cluster) -> Iterator[Installed]:
    """Install the chart with Roles only, and let it review tokens; uninstall it in the end."""
    cluster = without_operator
    with workdir("volume") as folder, prepared(cluster, NAMESPACE, *NAMESPACED, *values()) as release:
        cluster.apply(volume(folder, NAMESPACE))
        began = time.monotonic()  # noqa: TID251  a measurement
        notes = release.install()
        took_s = time.monotonic() - began  # noqa: TID251
        grant_token_reviews(cluster, notes)
        yield Installed(release, took_s)
        cluster.kubectl("delete", "clusterrolebinding", REVIEWS)


@pytest.fixture(scope="module")
def release(installed: Installed) -> Release:
    """The release."""
    return installed.release


@pytest.fixture(scope="module")
def generations() -> list[int | None]:
    """Generation of the group after its last rollout, which a removal and another installation do not change."""
    return []


@pytest.fixture(scope="module")
def reduced(release: Release) -> Release:
    """The release, whose examples begin to have fewer pods and orders than in their files."""
    for group, replicas in ((GROUP, REPLICAS), (BILLER, 0)):
        release.kubectl("scale", f"consumergroup/{group}", f"--replicas={replicas}")
    release.kubectl("set", "env", f"deployment/{PRODUCER}", f"ORDERS_A_SECOND={ORDERS_A_SECOND}")
    return release


@pytest.fixture
def quickstart(reduced: Release) -> Iterator[Cluster]:
    """Install a second release by values-quickstart.yaml for a namespace of its own, and the orders example; waits for neither."""
    cluster = reduced.cluster
    for name in (QUICK, QUICK_SHOP):
        cluster.kubectl("create", "namespace", name)
    flags = (
        f"--values={CHART / 'values-quickstart.yaml'}",
        "--set=crds.install=false,coordinator.store.sqlite.persistent=false",
        "--namespace",
        QUICK,
    )
    images = tag_flags(reduced.images)
    helm.prepare().run(
        "install", QUICK, CHART, *values(QUICK_SHOP), *images, *flags, kubeconfig=cluster.kubeconfig
    )
    example = orders(QUICK_SHOP, reduced.images["cli"].name)
    cluster.apply(at_coordinator(example, f"quickstart-rota-coordinator.{QUICK}:7070"), namespace=QUICK_SHOP)
    yield cluster
    helm.prepare().run("uninstall", QUICK, "--namespace", QUICK, kubeconfig=cluster.kubeconfig)
    release_groups(cluster, QUICK_SHOP)
    cluster.kubectl("delete", "namespace", QUICK, QUICK_SHOP, "--wait=false")


def payments(image: Image) -> list[Manifest]:
    """The example of payments at the release's coordinator."""
    found = list(yaml.safe_load_all(PAYMENTS.read_text()))
    for manifest in found:
        manifest["metadata"]["namespace"] = SHOP
        if manifest["kind"] == "Deployment":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            container |= {"image": image.name, "securityContext": SECURITY}
    return at_coordinator(found, COORDINATOR)


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
    release, cluster = installed.release, installed.release.cluster
    manifests = orders(SHOP, release.images["cli"].name, a_second=None)
    # With the payments, of the next test.
    examples = [*at_coordinator(manifests, COORDINATOR), *payments(release.images[rota_images.EXAMPLE])]
    cluster.apply(examples, namespace=SHOP)
    for seller in (PRODUCER, TILL):
        # It is rolled out once more when it is given its token.
        release.wait_adopted(seller)
        release.kubectl("rollout", "status", f"deployment/{seller}", f"--timeout={WITHIN_S}s")
    release.run_in(PRODUCER, SOLD, f"rota://{COORDINATOR}", f"{SHOP}.{TOPIC}", "payments")
    for group in (GROUP, BILLER):
        release.wait_group("condition=Ready", group)
    # At their own rate they take more processor time than everything else.
    sellers = f"--selector=app in ({PRODUCER}, {TILL})"
    release.kubectl("scale", f"deployment/{PRODUCER}", f"deployment/{TILL}", "--replicas=0")
    report.append(f"helm install --wait: {installed.install_s:.0f} s")
    report.extend(sorted(memory(cluster)))
    # A member that is still ending could price an order again.
    release.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
    release.kubectl("wait", "pods", sellers, "--for=delete", f"--timeout={WITHIN_S}s")
    audited = release.audit()
    report.append(f"orders: {audited}")
    assert audited == Audit(audited.produced, audited.produced, 0, 0)
    assert audited.produced


def test_each_payment_has_one_receipt(release: Release, report: list[str]) -> None:
    """Of the payments that came in during the test before."""
    application = ("exec", f"deployment/{BILLER}", "--container=app", "--", "python", "-c", RECEIPTS)
    audited = release.kubectl(*application, f"rota://{COORDINATOR}").strip()
    report.append(audited)
    found = re.fullmatch(r"payments (\d+) receipts (\d+) different (\d+)", audited)
    assert found is not None, audited
    assert found[1] == found[2] == found[3] != "0"


def test_prometheus_sees_the_pods_and_a_coordinator_that_stands_still(
    release: Release, start_prometheus: StartPrometheus, tmp_path: Path, report: list[str]
) -> None:
    """Through the chart's monitors. Orders are priced, and no more come."""
    began = time.monotonic()  # noqa: TID251  a measurement
    cluster, group = release.cluster, f"{SHOP}.{GROUP}"
    # Decisions are counted.
    dry_run = {"spec": {"autoscaling": {"enabled": True, "dryRun": True, "pollingInterval": 1}}}
    patch = ("--type=merge", f"--patch={json.dumps(dry_run)}")
    cluster.kubectl("patch", f"cg/{GROUP}", f"--namespace={SHOP}", *patch)
    chart = rendered("--set=monitoring.podMonitor.enabled=true")
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
        f"sum(rota_scale_decisions_total{{{of}}}) > 0",
        "rota_coordinator_members == scalar(count(rota_assigned_partitions))",
    ):
        prometheus.wait_for(query, within_s=WITHIN_S)
    names = {each.labels["__name__"] for each in prometheus.query('{__name__=~"rota_.*"}')}
    assert {
        re.sub("_(bucket|sum|count)$", "", name) for name in names
    } == labels_by_name().keys() - OF_QUERIES
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


def test_the_quick_start_makes_the_example_ready(quickstart: Cluster) -> None:
    quickstart.wait(f"consumergroup/{GROUP}", "condition=Ready", namespace=QUICK_SHOP, within_s=WITHIN_S)
    # Two releases are in the cluster: each operator has adopted the workload of its own namespace alone.
    for namespace, operator in (
        (SHOP, f"{RELEASE}-operator.{NAMESPACE}"),
        (QUICK_SHOP, f"{QUICK}-rota-operator.{QUICK}"),
    ):
        workload = quickstart.get(f"deployment/{ENRICHER}", namespace=namespace)
        [sidecar] = workload["spec"]["template"]["spec"]["initContainers"]
        assert f"{operator}:7083" in json.dumps(sidecar)


def test_helm_test_passes(release: Release) -> None:
    said = release.helm("test", RELEASE, "--logs", f"--timeout={WITHIN_S}s")
    assert "Phase:          Succeeded" in said
    assert f"rota-operator.{NAMESPACE}:7083: ok" in said
    assert f"{COORDINATOR}: ok" in said


def test_the_release_asks_nothing_of_the_cluster_but_to_review_tokens(release: Release) -> None:
    """With Roles only. The API server has recorded each request; it refused none but reviews before they were granted."""
    requests = list(release.cluster.requests(NAMESPACE))
    assert {each.account.partition("/")[2] for each in requests} == {
        "rota-operator", "rota-coordinator", "rota-certificates",
    }  # fmt: skip
    assert {each.namespace for each in requests if each.namespace} == {NAMESPACE, SHOP}
    assert {(each.account, each.verb, each.resource) for each in of_cluster(requests)} == {
        (f"{NAMESPACE}/{account}", "create", TOKEN_REVIEWS)
        for account in ("rota-operator", "rota-coordinator")
    }
    granted = rights(rendered())
    assert not_granted(granted, [each for each in requests if each.resource != TOKEN_REVIEWS]) == []
    # It would be refused.
    groups = (
        "get",
        "consumergroups",
        "--output=name",
        f"--as=system:serviceaccount:{NAMESPACE}:rota-operator",
    )
    assert GROUP in release.kubectl(*groups)
    with pytest.raises(KubectlFailed, match="cannot list resource"):
        release.cluster.kubectl(*groups, "--all-namespaces")


def test_no_log_has_a_key(release: Release) -> None:
    for resource in ("job", "deployment/rota-operator", "statefulset/rota-coordinator"):
        name = resource
        if resource == "job":
            [job] = release.cluster.get("jobs", namespace=NAMESPACE)["items"]
            name = f"job/{job['metadata']['name']}"
        said = release.cluster.kubectl("logs", "--namespace", NAMESPACE, name)
        assert said
        assert "PRIVATE KEY" not in said


def test_an_upgrade_and_a_downgrade_restart_no_consumer_and_start_no_rebalance(
    reduced: Release, report: list[str]
) -> None:
    reduced.wait_shared()
    reduced.start_producer()
    reduced.pause_s(now_ms())
    before, parts, since_ms = reduced.group(), reduced.parts(*UPGRADED), now_ms()
    reduced.upgrade(*UPGRADED, "sidecar")
    upgraded = reduced.parts(*UPGRADED)
    assert len(upgraded) == len(parts)
    assert not upgraded.keys() & parts.keys()
    assert all(image.endswith(NEXT) for image in upgraded.values())
    reduced.wait_shared()
    reduced.wait_unchanged(before)
    report.append(
        f"no order was priced over an upgrade of a coordinator on SQLite for {reduced.pause_s(since_ms):.1f} s"
    )
    reduced.helm("rollback", RELEASE, "1", "--wait", f"--timeout={WITHIN_S}s")
    downgraded = reduced.parts(*UPGRADED)
    assert not downgraded.keys() & upgraded.keys()
    assert sorted(downgraded.values()) == sorted(parts.values())
    reduced.wait_shared()
    reduced.wait_unchanged(before)


def test_another_image_of_the_sidecar_is_one_rollout(release: Release, generations: list[int | None]) -> None:
    def replica_sets() -> int:
        found = release.cluster.get("replicasets", namespace=SHOP, selector=f"app={ENRICHER}")
        return len(found["items"])

    pods, count = release.group().pods, replica_sets()
    image = release.images["sidecar"].name + NEXT
    change = json.dumps({"spec": {"sidecar": {"image": image}}})
    release.kubectl("patch", "consumergroup", GROUP, "--type=merge", f"--patch={change}")
    release.kubectl(
        "wait", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s",
        f"--for=jsonpath={{.spec.template.spec.initContainers[0].image}}={image}",
    )  # fmt: skip
    release.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
    release.wait_shared()
    assert not release.group().pods & pods
    assert replica_sets() == count + 1
    generations.append(release.group().generation)


def test_uninstalling_leaves_the_groups_and_their_pods(release: Release) -> None:
    """Of the release nothing is left but finished Jobs, until their own time is over."""
    uids = [each["metadata"]["uid"] for each in release.pods(SHOP)]
    said = release.helm("uninstall", RELEASE, "--wait", f"--timeout={WITHIN_S}s")
    assert "CustomResourceDefinition] consumergroups.rota.dev" in said
    wait_gone(release.cluster, NAMESPACE)
    left = release.cluster.get("pods", namespace=NAMESPACE)["items"]
    assert [each["metadata"]["name"] for each in left if "job-name" not in each["metadata"]["labels"]] == []
    assert [each["metadata"]["uid"] for each in release.pods(SHOP)] == uids
    assert release.kubectl("get", "consumergroups", "--output=name").split() == [
        f"consumergroup.rota.dev/{each}" for each in (BILLER, GROUP)
    ]


def test_a_release_that_is_installed_again_finds_its_groups(
    release: Release, generations: list[int | None], report: list[str]
) -> None:
    """The last one. The sidecars have waited for the authority of the new release."""
    group = release.group()
    release.install()
    release.wait_shared()
    release.wait_unchanged(group)
    # So has the producer.
    release.pause_s(now_ms())
    release.stop_producer()
    audited = release.audit()
    report.append(f"orders over an upgrade, a downgrade and a reinstallation: {audited}")
    assert audited == Audit(audited.produced, audited.produced, 0, 0)
    assert ([group.generation], group.restarts) == (generations, 0)
