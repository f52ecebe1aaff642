"""
A release on a SQLite volume, upgraded, downgraded, removed and installed again while orders come in.

One group lives through all tests, in their order; the last one counts that each order was priced once.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.released import AUDITED, NEXT, RELEASE, WITHIN_S, Release, prepared, small, wait_gone
from tests.support.cluster import Cluster
from tests.support.cluster.addresses import NODES
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import AUDIT, ENRICHER, GROUP, orders
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS as EXAMPLE_COORDINATOR
from tests.support.workdir import workdir

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE = "upgraded"
VOLUME = "upgraded-coordinator"


def volume(folder: Path) -> Manifest:
    """A volume in a folder of the first node, for the chart's claim: the cluster provisions none."""
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODES[0].name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": VOLUME},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": NAMESPACE, "name": f"{RELEASE}-coordinator"},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
        },
    }


@pytest.fixture(scope="module")
def release(without_operator: Cluster) -> Iterator[Release]:
    """The release, and the example at its coordinator."""
    cluster = without_operator
    with workdir("volume") as folder, prepared(cluster, NAMESPACE) as found:
        cluster.apply(volume(folder))
        found.install()
        example = json.dumps(orders(found.shop, found.images["cli"].name))
        cluster.apply(
            small(json.loads(example.replace(EXAMPLE_COORDINATOR, found.coordinator))), namespace=found.shop
        )
        # Pods from before the adoption may still be there.
        found.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
        found.wait_shared()
        yield found
        cluster.kubectl("delete", "persistentvolume", VOLUME, "--wait=false")


def test_an_upgrade_and_a_downgrade_restart_no_consumer_and_start_no_rebalance(release: Release) -> None:
    group, parts = release.group(), release.parts()
    release.upgrade()
    upgraded = release.parts()
    assert len(upgraded) == len(parts)
    assert not upgraded.keys() & parts.keys()
    assert all(image.endswith(NEXT) for image in upgraded.values())
    release.wait_shared()
    assert release.group() == group
    release.helm("rollback", RELEASE, "1", "--wait", f"--timeout={WITHIN_S}s")
    downgraded = release.parts()
    assert not downgraded.keys() & upgraded.keys()
    assert sorted(downgraded.values()) == sorted(parts.values())
    release.wait_shared()
    assert release.group() == group


def test_another_image_of_the_sidecar_is_one_rollout(release: Release) -> None:
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


def test_the_store_is_backed_up_in_its_pod(release: Release) -> None:
    pod = ("--namespace", NAMESPACE, f"{RELEASE}-coordinator-0", "--")
    command = ("python", "-m", "rota_coordinator", "--store=sqlite:/var/lib/rota/coordinator.db")
    said = release.cluster.kubectl("exec", *pod, *command, "--backup=/var/lib/rota/backup.db")
    assert said.startswith("copied /var/lib/rota/coordinator.db to /var/lib/rota/backup.db (")


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
    assert release.group() == group


def test_each_order_was_priced_once(release: Release, report: list[str]) -> None:
    """The last one."""
    release.stop_producer()
    application = ("exec", f"deployment/{ENRICHER}", "--container=app", "--", "python", "-c", AUDIT)
    audited = release.kubectl(*application, f"rota://{release.coordinator}").strip()
    report.append(f"orders over an upgrade, a downgrade, a rollout and a reinstallation: {audited}")
    found = AUDITED.fullmatch(audited)
    assert found is not None, audited
    assert found[1] == found[2] != "0"
    assert (found[3], found[4]) == ("0", "0")
    # The sidecars have waited for the authority of the new release.
    assert release.group().restarts == 0
