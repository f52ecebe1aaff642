"""
A release on a SQLite volume, upgraded, downgraded, removed and installed again while orders come in; its coordinator's pod and node are lost.

One group lives through all tests, in their order; before the last one, which restores a backup, each order was priced once.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.released import NEXT, RELEASE, WITHIN_S, Audit, Release, now_ms, prepared, small, wait_gone
from tests.coordinator.test_backup import commands
from tests.support.cluster import Cluster
from tests.support.cluster.addresses import NODES
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import ENRICHER, GROUP, orders
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS as EXAMPLE_COORDINATOR
from tests.support.tree import REPO
from tests.support.workdir import workdir

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE = "upgraded"
VOLUME = "upgraded-coordinator"
COORDINATOR = f"{RELEASE}-coordinator"
# Everything but the coordinator runs on the second node.
FIRST, OTHER = (each.name for each in NODES)
HOSTNAME = "kubernetes.io/hostname"
# Members' sessions outlast the loss of a node.
SESSION_S = 180
GUIDE = (REPO / "docs" / "install.md").read_text().split("\n## Backup\n", 1)[1].split("\n## ", 1)[0]
# Of a node that has lost its power for good: its pods may run elsewhere.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def on_nodes(*names: str) -> Manifest:
    """A term of a node affinity."""
    return {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(names)}]}


def volume(folder: Path) -> Manifest:
    """A volume for the chart's claim, which both nodes reach: the cluster provisions none."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": NAMESPACE, "name": COORDINATOR},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [on_nodes(FIRST, OTHER)]}},
        },
    }


def placement() -> Iterator[str]:
    """Yield Helm's flags for the nodes of operator and coordinator; the latter may run elsewhere when its node is lost."""
    yield f"--set-json=operator.nodeSelector={json.dumps({HOSTNAME: OTHER})}"
    preferred = [{"weight": 100, "preference": on_nodes(FIRST)}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    yield f"--set-json=coordinator.affinity={json.dumps(affinity)}"


@pytest.fixture(scope="module")
def release(without_operator: Cluster) -> Iterator[Release]:
    """The release, and the example at its coordinator."""
    cluster = without_operator
    with workdir("volume") as folder, prepared(cluster, NAMESPACE, *placement()) as found:
        cluster.apply(volume(folder))
        found.install()
        text = json.dumps(orders(found.shop, found.images["cli"].name))
        example = small(json.loads(text.replace(EXAMPLE_COORDINATOR, found.coordinator)), SESSION_S)
        for manifest in example:
            if manifest["kind"] == "Deployment":
                manifest["spec"]["template"]["spec"]["nodeSelector"] = {HOSTNAME: OTHER}
        cluster.apply(example, namespace=found.shop)
        # Pods from before the adoption may still be there.
        found.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
        found.wait_shared()
        yield found
        cluster.repair()
        cluster.kubectl("delete", "persistentvolume", VOLUME, "--wait=false")


@pytest.fixture(scope="module")
def generations() -> list[int | None]:
    """Generation of the group after its last rollout, which the losses of its coordinator do not change."""
    return []


def test_an_upgrade_and_a_downgrade_restart_no_consumer_and_start_no_rebalance(
    release: Release, report: list[str]
) -> None:
    group, parts, since_ms = release.group(), release.parts(), now_ms()
    release.upgrade()
    upgraded = release.parts()
    assert len(upgraded) == len(parts)
    assert not upgraded.keys() & parts.keys()
    assert all(image.endswith(NEXT) for image in upgraded.values())
    release.wait_shared()
    release.wait_unchanged(group)
    report.append(
        f"no order was priced over an upgrade of a coordinator on SQLite for {release.pause_s(since_ms):.1f} s"
    )
    release.helm("rollback", RELEASE, "1", "--wait", f"--timeout={WITHIN_S}s")
    downgraded = release.parts()
    assert not downgraded.keys() & upgraded.keys()
    assert sorted(downgraded.values()) == sorted(parts.values())
    release.wait_shared()
    release.wait_unchanged(group)


def test_another_image_of_the_sidecar_is_one_rollout(release: Release, generations: list[int | None]) -> None:
    def replica_sets() -> int:
        found = release.cluster.get("replicasets", namespace=release.shop)["items"]
        return sum(each["metadata"]["labels"].get("app") == ENRICHER for each in found)

    pods, count = release.group().pods, replica_sets()
    image = release.images["sidecar"].name + NEXT
    change = json.dumps({"spec": {"sidecar": {"image": image}}})
    release.kubectl("patch", "consumergroup", GROUP, "--type=merge", f"--patch={change}")
    release.kubectl(
        "wait", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s",
        f"--for=jsonpath={{.spec.template.spec.initContainers[0].image}}={image}",
    )  # fmt: skip
    release.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
    release.kubectl(
        "wait", "pods", f"--selector=app={ENRICHER}", "--for=condition=Ready", f"--timeout={WITHIN_S}s"
    )
    release.wait_shared()
    assert not release.group().pods & pods
    assert replica_sets() == count + 1
    generations.append(release.group().generation)


def test_a_release_that_is_installed_again_finds_its_groups(release: Release) -> None:
    said = release.helm("test", RELEASE, "--logs", f"--timeout={WITHIN_S}s")
    assert f"{release.coordinator}: ok" in said
    group = release.group()
    release.helm("uninstall", RELEASE, "--wait", f"--timeout={WITHIN_S}s")
    wait_gone(release.cluster, NAMESPACE)
    left = release.cluster.get("pods", namespace=NAMESPACE)["items"]
    # Of finished Jobs, until their own time is over.
    assert [each["metadata"]["name"] for each in left if "job-name" not in each["metadata"]["labels"]] == []
    release.install()
    release.wait_shared()
    release.wait_unchanged(group)


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_a_group_goes_on_after_its_coordinator_is_lost(release: Release, how: str, report: list[str]) -> None:
    group, lives, since_ms = release.group(), release.lives(), now_ms()
    if how == "deleted":
        release.cluster.kubectl("delete", "pod", f"{COORDINATOR}-0", f"--namespace={NAMESPACE}")
    else:
        release.kill_coordinator(f"{COORDINATOR}-0")
    release.wait_replaced(lives)
    pause_s = release.pause_s(since_ms)
    report.append(f"no order was priced after the coordinator on SQLite was {how} for {pause_s:.1f} s")
    release.wait_shared()
    release.wait_unchanged(group)


def test_a_group_goes_on_after_its_coordinators_node_is_lost(release: Release, report: list[str]) -> None:
    """As Kubernetes' documentation advises for a node that does not come back, it is tainted."""
    cluster, group, lives, since_ms = release.cluster, release.group(), release.lives(), now_ms()
    taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    assert node_of(release) == FIRST
    cluster.stop_node(FIRST)
    cluster.wait(f"node/{FIRST}", "condition=Ready=Unknown", within_s=WITHIN_S)
    noticed_ms = now_ms()
    cluster.kubectl("taint", "node", FIRST, taint)
    release.wait_replaced(lives)
    assert node_of(release) == OTHER
    pause_s, until_noticed_s = release.pause_s(since_ms), (noticed_ms - since_ms) / 1000
    report.append(
        f"no order was priced after the node of the coordinator on SQLite was lost for {pause_s:.1f} s, "
        f"{until_noticed_s:.1f} s of them until Kubernetes called the node lost"
    )
    release.wait_shared()
    release.wait_unchanged(group)
    cluster.kubectl("taint", "node", FIRST, f"{OUT_OF_SERVICE}-")
    cluster.repair()


def node_of(release: Release) -> str:
    """Node of the coordinator."""
    return str(release.cluster.get(f"pod/{COORDINATOR}-0", namespace=NAMESPACE)["spec"]["nodeName"])


def test_each_order_was_priced_once(
    release: Release, generations: list[int | None], report: list[str]
) -> None:
    release.stop_producer()
    audited = release.audit()
    report.append(
        f"orders over upgrades, a reinstallation and losses of the coordinator on SQLite: {audited}"
    )
    assert audited == Audit(audited.produced, audited.produced, 0, 0)
    assert audited.produced
    # The sidecars have waited for the authority of the new release.
    group = release.group()
    assert ([group.generation], group.restarts) == (generations, 0)


def restore_pod(image: str) -> Manifest:
    """The guide's pod that restores the volume, with this image."""
    pod: Manifest = yaml.safe_load(GUIDE.split("```yaml\n", 1)[1].split("```", 1)[0])
    [container] = pod["spec"]["containers"]
    container["image"] = image
    [script] = container["args"]
    assert script.endswith(commands("SQLite")[1])
    return pod


def test_a_backup_that_is_made_under_traffic_is_restored_by_the_commands_of_the_guide(
    release: Release, report: list[str]
) -> None:
    """The last one. Orders from after the backup are lost with their prices; those not yet committed in it may be priced again."""
    cluster = release.cluster
    backup, *until_restored, start = [
        line.removeprefix("kubectl ").replace("-n rota ", f"-n {NAMESPACE} ").split()
        for line in GUIDE.splitlines()
        if line.startswith("kubectl ")
    ]
    assert backup[-len(commands("SQLite")[0].split()) :] == commands("SQLite")[0].split()
    release.stop_producer()
    release.wait_committed()
    before, since_ms = release.audit(), now_ms()
    release.kubectl("scale", f"deployment/{PRODUCER}", "--replicas=1")
    release.pause_s(since_ms)
    said = cluster.kubectl(*backup)
    assert said.startswith("copied /var/lib/rota/coordinator.db to /var/lib/rota/backup.db (")
    release.pause_s(now_ms())
    release.stop_producer()
    lost = release.audit()

    pod, output = restore_pod(release.images["coordinator"].name), ""
    for command in until_restored:
        if command[0] == "apply":
            cluster.apply(pod, namespace=NAMESPACE)
        else:
            output += cluster.kubectl(*command)
    assert "1 groups begin a new incarnation; " in output
    cluster.kubectl(*start)
    release.wait_shared()

    restored = release.audit()
    assert before.produced < restored.produced < lost.produced
    since_ms = now_ms()
    release.kubectl("scale", f"deployment/{PRODUCER}", "--replicas=1")
    release.pause_s(since_ms)
    release.stop_producer()
    after = release.audit()
    report.append(
        f"orders until a backup: {before.produced}, lost after it: {lost.produced}, restored: {restored}, and then: {after}"
    )
    assert after == Audit(after.produced, after.produced, 0, after.repeated)
    # Not committed when the copy was made: of what was sold since all had been committed.
    assert restored.repeated <= after.repeated <= restored.produced - before.produced
    assert after.produced > restored.produced
    assert release.group().restarts == 0
