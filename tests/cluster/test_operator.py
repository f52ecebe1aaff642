"""The operator in a pod: a ConsumerGroup is applied, adopted, shown as it is, has its offsets reset, and leaves nothing behind."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.api_server.adopting import NO_NODE
from tests.cluster.kubectl_rota import KubectlRota
from tests.cluster.offset_resets import OffsetResets, restarts
from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.cluster.kubectl import only_row
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import AUDIT, ENRICHER, GROUP, SESSION_S, SHOP, orders
from tests.support.cluster.rota_manifests import COORDINATOR, COORDINATOR_ADDRESS
from tests.support.cluster.rota_manifests import NAMESPACE as ROTA
from tests.support.processes import Process, wait_for

# The first of them starts the cluster, loads four images and waits for Rota's parts. Only two modules take longer.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_950)]

PARTITIONS, REPLICAS = 12, 3
OWN_GRACE_S = 5
SERVERS = f"rota://{COORDINATOR_ADDRESS}"


class Applied(NamedTuple):
    """The example, applied to a namespace."""

    cluster: Cluster
    namespace: str
    manifests: list[Manifest]

    def get(self, resource: str) -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(resource, namespace=self.namespace)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, input=input)

    def wait_adopted(self) -> None:
        """Wait until the Deployment's template has a sidecar; until then its rollout is one of pods without."""
        sidecar = "jsonpath={.spec.template.spec.initContainers[0].name}=rota-sidecar"
        self.cluster.wait(f"deployment/{ENRICHER}", sidecar, namespace=self.namespace)

    def wait_rolled_out(self) -> None:
        """Wait until the pods are those of the Deployment's present template."""
        self.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")

    def pods(self, app: str) -> list[Any]:
        """Pods of a Deployment, those that are being deleted included."""
        return [each for each in self.get("pods")["items"] if each["metadata"]["labels"]["app"] == app]

    def members(self) -> list[Any]:
        """Pods with a sidecar, those that are being deleted included; a pod from before the adoption has none."""
        return [each for each in self.pods(ENRICHER) if each["spec"].get("initContainers")]

    def status(self) -> Any:  # noqa: ANN401  as it is stored
        return self.get(f"consumergroup/{GROUP}").get("status", {})

    def is_shared(self, replicas: int = REPLICAS) -> bool:
        """Return True once the status is that of the present pods, and of a group between whose rebalances nothing moves."""
        status = self.status()
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        shares = {each["podName"]: each["partitions"] for each in status.get("placements", ())}
        pods = [
            each["metadata"]["name"] for each in self.members() if "deletionTimestamp" not in each["metadata"]
        ]
        return (
            conditions.get("Ready") == "True"
            and len(pods) == replicas
            and shares == dict.fromkeys(pods, PARTITIONS // replicas)
        )

    def wait_shared(self, replicas: int = REPLICAS) -> None:
        wait_for(
            "every member has its share",
            lambda: self.is_shared(replicas),
            within_s=WITHIN_S,
            poll_s=0.5,
        )

    def instances(self) -> dict[str, str]:
        """Pods by the instance that they hold."""
        data = self.get(f"configmap/rota-{GROUP}-instances")["data"]
        return {name: holder.partition(" ")[0] for name, holder in data.items()}


@pytest.fixture(scope="module")
def applied(rota_cluster: Cluster) -> Iterator[Applied]:
    """The example runs."""
    namespace = "orders-of-operator"
    rota_cluster.create_namespace(namespace)
    manifests = orders(namespace, images.part("cli").name)
    manifests[1]["spec"]["membership"] = {"static": True, "sessionTimeoutSeconds": SESSION_S}
    rota_cluster.apply(manifests, namespace=namespace)
    example = Applied(rota_cluster, namespace, manifests)
    example.wait_adopted()
    # Pods from before the adoption may still be there.
    example.wait_rolled_out()
    example.wait_shared()
    yield example
    rota_cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def kubectl_rota(
    applied: Applied, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> KubectlRota:
    """`kubectl rota` in this process, for the example's namespace."""
    return KubectlRota(applied.cluster, applied.namespace, monkeypatch, capsys)


def test_a_group_is_ready_when_every_partition_has_an_owner_and_one_line_shows_it(applied: Applied) -> None:
    status = applied.get(f"consumergroup/{GROUP}")["status"]
    assert (status["members"], status["partitions"], status["unownedPartitions"]) == (REPLICAS, PARTITIONS, 0)
    shown = only_row(applied.kubectl("get", "cg"))
    assert (shown["MEMBERS"], shown["PARTITIONS"], shown["READY"]) == (str(REPLICAS), str(PARTITIONS), "True")


def test_each_pod_of_the_workload_has_a_sidecar_that_is_ready(applied: Applied) -> None:
    def running() -> list[Any]:
        return [each for each in applied.pods(ENRICHER) if "deletionTimestamp" not in each["metadata"]]

    def are_ready() -> bool:
        return all(each["ready"] for pod in running() for each in pod["status"]["initContainerStatuses"])

    # A busy machine answers a probe late.
    wait_for("every sidecar is ready", are_ready, within_s=WITHIN_S, poll_s=0.5)
    assert len(running()) == REPLICAS
    for pod in running():
        [sidecar] = pod["spec"]["initContainers"]
        assert sidecar["restartPolicy"] == "Always"
        [state] = pod["status"]["initContainerStatuses"]
        assert (state["name"], state["restartCount"]) == (sidecar["name"], 0)


def test_the_settings_lie_in_a_config_map_that_goes_with_the_group(applied: Applied) -> None:
    group = applied.get(f"consumergroup/{GROUP}")
    config_map = applied.get(f"configmap/rota-{GROUP}")
    [owner] = config_map["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ConsumerGroup", group["metadata"]["uid"])
    assert json.loads(config_map["data"]["settings.json"])["topics"] == group["spec"]["topics"]


def test_kubectl_rota_shows_the_group_and_finds_nothing_wrong(
    applied: Applied, kubectl_rota: KubectlRota
) -> None:
    described = kubectl_rota("groups", "describe", GROUP, "-o", "json").data
    pods = {each["metadata"]["name"] for each in applied.members()}
    assert {each["pod"] for each in described["members"]} == pods
    assert (described["group"], described["partitions"]) == (applied.status()["groupId"], PARTITIONS)

    def is_lag_known() -> bool:
        return kubectl_rota("groups", "lag", GROUP, "-o", "json").data["lag_records"] is not None

    # A sidecar that has just become an owner has not reported its offsets yet.
    wait_for("the lag is known", is_lag_known, within_s=WITHIN_S, poll_s=0.5)
    explained = kubectl_rota("groups", "explain", GROUP, "-o", "json").data
    assert any("Adopted" in each["says"] for each in explained if each["about"] == "event"), explained

    checks = kubectl_rota("doctor", GROUP, "-o", "json").data
    found = {each["what"]: each for each in checks if each["what"] != "group"}
    assert {each["verdict"] for each in found.values()} == {"ok"}, checks
    assert list(found) == ["api server", "resource", "rights", "operator", "sidecars"]


def test_kubectl_rota_says_what_a_real_api_server_refuses(
    applied: Applied, kubectl_rota: KubectlRota, tmp_path: Path
) -> None:
    missing = kubectl_rota("groups", "describe", "other")
    assert missing.code == 4
    assert missing.error.startswith(f"consumergroup {applied.namespace}/other not found at https://")

    config = json.loads(applied.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": applied.kubectl("create", "token", "default").strip()}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    account = f"system:serviceaccount:{applied.namespace}:default"
    for command, right in ((("describe",), "get"), (("watch",), "get"), (("upgrade", "--image=x"), "get")):
        denied = kubectl_rota("groups", *command, GROUP, "--kubeconfig", str(file))
        assert denied.error.startswith(
            f"{account} may not {right} consumergroups.rota.dev in namespace {applied.namespace} at https://"
        )
    checks = kubectl_rota("doctor", "--kubeconfig", str(file))
    assert "you may not list pods" in checks.stdout
    assert f"unknown: {account} may not get leases.coordination.k8s.io in namespace rota" in checks.stdout


def test_kubectl_rota_leaves_an_image_to_the_manager_that_has_set_it(
    applied: Applied, kubectl_rota: KubectlRota
) -> None:
    pinned = applied.status()["sidecarImage"]
    other = kubectl_rota("groups", "upgrade", GROUP, "--image", "other:1", "--dry-run", "-o", "json").data
    assert (other["former_image"], other["dry_run"]) == (pinned, True)

    change = json.dumps({"spec": {"sidecar": {"image": pinned}}})
    group = f"consumergroup/{GROUP}"
    applied.kubectl("patch", group, "--type=merge", f"--patch={change}", "--field-manager=gitops")
    refused = kubectl_rota("groups", "upgrade", GROUP, "--image", "other:1", "--dry-run")
    assert refused.error.startswith(
        f"spec.sidecar.image of consumergroup {applied.namespace}/{GROUP} is managed by gitops: change it there"
    )
    # The image in use: no pod is replaced.
    assert kubectl_rota("groups", "upgrade", GROUP, "--image", pinned).code == 0
    managers = applied.kubectl(
        "get", group, "--show-managed-fields", "--output=jsonpath={.metadata.managedFields[*].manager}"
    )
    assert "kubectl-rota" in managers.split()
    applied.kubectl("patch", group, "--type=merge", '--patch={"spec":{"sidecar":{"image":null}}}')


def test_kubectl_rota_watches_the_group(applied: Applied, tmp_path: Path) -> None:
    command = ("groups", "watch", GROUP, "--namespace", applied.namespace, "--output=json")
    watch = Process.start(
        "watch", [sys.executable, "-m", "rota_cli.kubectl", *command], log=tmp_path / "log",
        env={"KUBECONFIG": str(applied.cluster.kubeconfig)},
    )  # fmt: skip

    def changes() -> list[str]:
        whole, _, _ = watch.log.read_text().rpartition("\n")
        return [change for line in whole.splitlines() for change in json.loads(line)["changes"]]

    try:
        watch.wait_until(lambda: bool(changes()), within_s=WITHIN_S)
        for value, said in (("true", "Ready is False (Suspended)"), ("null", "Ready is True")):
            shown = len(changes())
            suspend = f'{{"spec":{{"suspend":{value}}}}}'
            applied.kubectl("patch", f"consumergroup/{GROUP}", "--type=merge", f"--patch={suspend}")
            watch.wait_until(
                lambda shown=shown, said=said: any(each.startswith(said) for each in changes()[shown:]),  # type: ignore[misc]
                within_s=WITHIN_S,
            )
    finally:
        watch.stop(first=signal.SIGINT)
    assert watch.exit_code == 0


def test_applying_the_same_again_changes_nothing_and_rolls_no_pod(applied: Applied) -> None:
    before = {name: applied.get(f"deployment/{name}")["metadata"]["generation"] for name in (ENRICHER, SHOP)}
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": applied.manifests})
    assert applied.kubectl("diff", "--filename", "-", input=document) == ""
    applied.cluster.apply(applied.manifests, namespace=applied.namespace)
    after = {name: applied.get(f"deployment/{name}")["metadata"]["generation"] for name in (ENRICHER, SHOP)}
    assert after == before


def test_a_workload_that_its_owner_replaced_is_adopted_again_as_before(applied: Applied) -> None:
    target = f"deployment/{ENRICHER}"
    adopted = applied.get(target)["spec"]["template"]
    [own] = [
        each
        for each in applied.manifests
        if each["metadata"]["name"] == ENRICHER and "template" in each["spec"]
    ]
    own = {**own, "spec": {**own["spec"], "replicas": REPLICAS}}
    # Without a path, kubectl replaces the version that it has read, and a controller may have counted pods since.
    path = f"/apis/{own['apiVersion']}/namespaces/{applied.namespace}/deployments/{ENRICHER}"
    applied.cluster.kubectl("replace", "--raw", path, "--filename", "-", input=json.dumps(own))
    applied.wait_adopted()
    assert applied.get(target)["spec"]["template"] == adopted


def test_a_deployment_of_static_members_that_is_scaled_has_an_instance_for_each_pod(applied: Applied) -> None:
    """A rollout, which moves instances to new pods without a rebalance, is in `test_pod_disruptions`."""
    # A pod from when the workload was replaced may still be there.
    applied.wait_rolled_out()
    applied.wait_shared()
    assert sorted(applied.instances()) == [f"{GROUP}-{number}" for number in range(REPLICAS)]

    for replicas in (REPLICAS - 1, REPLICAS):
        applied.kubectl("scale", f"consumergroup/{GROUP}", f"--replicas={replicas}")
        applied.wait_shared(replicas)
        assert applied.status()["members"] == replicas
        wait_for(
            "an instance for each pod",
            lambda replicas=replicas: len(applied.instances()) == replicas,  # type: ignore[misc]
            within_s=WITHIN_S,
            poll_s=0.2,
        )


def test_each_order_is_priced_once_over_a_replaced_workload_and_a_deleted_pod(
    applied: Applied, report: list[str]
) -> None:
    """Audit what has been sold during all tests before; the one after it processes orders again."""
    applied.wait_rolled_out()
    [deleted, *_] = sorted(each["metadata"]["name"] for each in applied.members())
    applied.kubectl("delete", f"pod/{deleted}", f"--timeout={WITHIN_S}s")
    applied.kubectl("scale", f"deployment/{SHOP}", "--replicas=0")
    wait_for("the shop is closed", lambda: not applied.pods(SHOP), within_s=WITHIN_S, poll_s=0.2)
    # A member that is still ending could price an order again.
    wait_for("no member ends", lambda: len(applied.members()) == REPLICAS, within_s=WITHIN_S, poll_s=0.2)
    applied.wait_rolled_out()
    application = ("exec", f"deployment/{ENRICHER}", "--container=app", "--", "python", "-c", AUDIT)
    audited = applied.kubectl(*application, SERVERS).strip()
    report.append(f"orders: {audited}")
    found = re.fullmatch(r"produced (\d+), processed (\d+), unprocessed 0, repeated 0", audited)
    # It logs each rebalance with its reason: a member that was expelled repeats what it has not committed.
    assert found is not None, audited + applied.cluster.kubectl(
        "logs", f"deployment/{COORDINATOR}", "--namespace", ROTA
    )
    assert found[1] == found[2] != "0"


def test_a_dry_run_of_a_reset_its_execution_and_the_undo_while_the_pods_run(
    applied: Applied, kubectl_rota: KubectlRota
) -> None:
    """The dry run's plan is executed, undone, and acts once; no pod restarts. It leaves prices behind that are there twice."""
    resets = OffsetResets(applied.cluster, applied.namespace, GROUP)
    # Records come meanwhile.
    applied.kubectl("scale", f"deployment/{SHOP}", "--replicas=1")
    applied.kubectl("rollout", "status", f"deployment/{SHOP}", f"--timeout={WITHIN_S}s")
    pods = restarts(applied.members())
    assert len(pods) == REPLICAS
    resets.request("replay-1", dry_run=True, earliest=True)
    planned = resets.wait_phase("replay-1", "Planned")
    plan = resets.plan(planned["planConfigMap"])
    assert planned["planConfigMap"] == f"{GROUP}-reset-replay-1"
    assert [new for _, new in plan.values()] == [0] * PARTITIONS
    assert planned["repeatedRecords"] == sum(old for old, _ in plan.values()) > 0

    resets.request("replay-1", dry_run=False, earliest=True)
    done = resets.wait_phase("replay-1", "Completed")
    undo = resets.plan(done["undoConfigMap"])
    # Read on between the dry run and the suspension.
    assert all(undo[number][1] >= old for number, (old, _) in plan.items())
    assert done["planHash"] == planned["planHash"]

    command = ("groups", "reset", GROUP, "--from-config-map", done["undoConfigMap"], "-o", "json")
    reviewed = kubectl_rota(*command, "--dry-run").data
    assert [each["new"] for each in reviewed["partitions"]] == [undo[number][1] for number in sorted(undo)]
    reset = ("groups", "reset", GROUP, "--request-id", reviewed["request_id"], "--execute")
    back = kubectl_rota(*reset, "-o", "json")
    assert back.data["partitions"] == reviewed["partitions"]
    assert "Committing: " in back.stderr
    record = resets.record()
    assert (record["requestId"], record["phase"]) == (reviewed["request_id"], "Completed")
    assert kubectl_rota(*reset).error.endswith("was executed before: make a new dry run")
    resets.request("replay-1", dry_run=False, earliest=True)
    resets.wait_condition("OffsetReset", "reason=AlreadyExecuted")
    assert resets.record()["requestId"] == reviewed["request_id"]
    assert restarts(applied.members()) == pods
    resets.wait_condition("Ready", "status=True")


def test_deleting_a_group_gives_its_workload_back_as_its_owner_applied_it(
    rota_cluster: Cluster, namespace: str
) -> None:
    manifests = orders(namespace, images.part("cli").name)
    config_map, group, enricher, _ = manifests
    # What is given back is the workload: its pods need not start.
    enricher["spec"]["template"]["spec"]["nodeSelector"] = NO_NODE
    # Shorter than a drain: the operator raises it meanwhile.
    enricher["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = OWN_GRACE_S
    rota_cluster.apply([config_map, enricher], namespace=namespace)
    target = f"deployment/{ENRICHER}"
    owners = rota_cluster.get(target, namespace=namespace)
    rota_cluster.apply([group], namespace=namespace)
    rota_cluster.wait(target, f"jsonpath={{.spec.replicas}}={REPLICAS}", namespace=namespace)
    adopted = rota_cluster.get(target, namespace=namespace)["spec"]["template"]["spec"]
    assert [each["name"] for each in adopted["initContainers"]] == ["rota-sidecar"]
    assert adopted["terminationGracePeriodSeconds"] > OWN_GRACE_S

    rota_cluster.kubectl("delete", "--namespace", namespace, f"consumergroup/{GROUP}", "--timeout=300s")
    released = rota_cluster.get(target, namespace=namespace)
    assert released["spec"]["template"] == owners["spec"]["template"]
    assert released["metadata"].get("labels") == owners["metadata"].get("labels")
    # Deleted by the garbage collector, as what the group owns.
    rota_cluster.wait(f"configmap/rota-{GROUP}", "delete", namespace=namespace)
