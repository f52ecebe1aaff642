"""
A release of the chart on a SQLite volume, with rights in all namespaces, that is disturbed while orders are priced: the API server is away,
certificates and their authority are replaced, and the coordinator's pod and node are lost.

One group lives through all tests, in their order; before the last one, which restores a backup, each order was priced once, and no
consumer was restarted. What the release's accounts may do equals a list, and they use all of it; pods that are less restricted are
refused; secrets in every place are found nowhere else.
"""

import json
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rota_operator.spec.conditions import Reason
from tests.chart.granted import rights
from tests.cluster.coordinator_client import PORT as COORDINATOR_PORT
from tests.cluster.coordinator_client import connected
from tests.cluster.planted import KINDS, find, outputs
from tests.cluster.planted_release import (
    BROKER,
    CONTROL,
    DATABASE,
    LEDGER,
    POSTGRESQL,
    REFUSED,
    Planted,
    failure_said,
    issued,
)
from tests.cluster.recorded_rights import not_granted, unused
from tests.cluster.released import (
    HOSTNAME,
    PARTITIONS,
    RELEASE,
    REPLICAS,
    Audit,
    Release,
    at_coordinator,
    now_ms,
    on_nodes,
    prepared,
    small,
    tag_flags,
    volume,
)
from tests.cluster.replaced_certificates import FLEET_PORT, LOOK_EACH_S, issue, wait_served, wait_trusted
from tests.cluster.restored_backup import guide, restore_pod
from tests.support import helm
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.addresses import API_PORT, NODES
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import ENRICHER, GROUP, orders
from tests.support.processes import Process, wait_for
from tests.support.workdir import workdir

# It may have to start the cluster, and to load four images; the API server is away for a minute.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2_100)]

NAMESPACE, APPLICATIONS = "disturbed", "disturbed-shop"
COORDINATOR = f"{RELEASE}-coordinator"
READER = "reader"
AWAY_S = 60
# By NAMESPACE/ACCOUNT and then by namespace, as `kubectl auth can-i --list` prints it.
CAN = yaml.safe_load(Path(__file__).with_name("can_i.yaml").read_text())
EVERY_ACCOUNT = "every account"
# Everything but the coordinator runs on the second node.
FIRST, OTHER = (each.name for each in NODES)
# Of a node that has lost its power for good: its pods may run elsewhere.
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def placement() -> Iterator[str]:
    """Yield Helm's flags for the nodes of operator and coordinator; the latter may run elsewhere when its node is lost."""
    yield f"--set-json=operator.nodeSelector={json.dumps({HOSTNAME: OTHER})}"
    preferred = [{"weight": 100, "preference": on_nodes(FIRST)}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    yield f"--set-json=coordinator.affinity={json.dumps(affinity)}"


@pytest.fixture(scope="module")
def hidden() -> Planted:
    """Secrets of the release and of its applications."""
    return Planted.new()


@pytest.fixture(scope="module")
def release(without_operator: Cluster, hidden: Planted) -> Iterator[Release]:
    """The release, and the example at its coordinator, whose group is Ready."""
    cluster, values = without_operator, [*placement(), *hidden.values()]
    with workdir("volume") as folder, prepared(cluster, NAMESPACE, *values) as found:
        cluster.apply([*hidden.of_release(), volume(folder, NAMESPACE)], namespace=NAMESPACE)
        found.install()
        example = at_coordinator(orders(APPLICATIONS, found.images["cli"].name), found.coordinator)
        for manifest in small(example, OTHER):
            if manifest["metadata"]["name"] == ENRICHER and manifest["kind"] == "Deployment":
                [container] = manifest["spec"]["template"]["spec"]["containers"]
                container["env"] = [{"name": "PAYMENT_KEY", "value": hidden.variable}]
        cluster.apply(example, namespace=APPLICATIONS)
        found.start_producer()
        found.wait_shared()
        yield found
        cluster.repair()


@pytest.fixture(scope="module")
def planted(release: Release, hidden: Planted) -> Release:
    """The release with a group on Kafka, of which no broker answers, one whose pods are refused, and a coordinator without its database."""
    cluster, images = release.cluster, release.images
    cluster.apply(hidden.postgresql(NAMESPACE, *tag_flags(images)), namespace=NAMESPACE)
    cluster.apply(hidden.of_applications(images["cli"].name), namespace=APPLICATIONS)
    refused = f"jsonpath={{.status.conditions[?(@.type=='Ready')].reason}}={Reason.PODS_REFUSED}"
    release.wait_group(refused, REFUSED)
    release.wait_group("jsonpath={.status.groupId}", LEDGER)
    return release


@pytest.fixture(scope="module")
def cleared(release: Release, hidden: Planted) -> Release:
    """The release without what was planted, which would take time from the tests that follow."""
    away = ("--ignore-not-found", "--wait=false")
    release.kubectl("delete", "statefulsets", LEDGER, REFUSED, *away)
    release.kubectl("delete", "consumergroups", LEDGER, REFUSED, hidden.control, *away)
    release.cluster.kubectl("delete", "pod", POSTGRESQL, f"--namespace={NAMESPACE}", *away)
    return release


@pytest.fixture(scope="module")
def generations() -> list[int | None]:
    """Generation of the group with its last member, which nothing that happens afterwards changes."""
    return []


def test_a_pod_that_the_load_does_not_need_drains_and_goes(release: Release) -> None:
    """First, because members that come and go are counted from then on: without the autoscaler the pod comes back."""
    for autoscaling, members in (
        ({"enabled": True, "pollingInterval": 1, "minChangeIntervalSeconds": 0}, REPLICAS - 1),
        (None, REPLICAS),
    ):
        patch = json.dumps({"spec": {"autoscaling": autoscaling}})
        release.kubectl("patch", "consumergroup", GROUP, "--type=merge", f"--patch={patch}")
        release.wait_group(f"jsonpath={{.status.desiredReplicas}}={members}")
        release.wait_group(f"jsonpath={{.status.members}}={members}")
    release.wait_shared()


def test_groups_go_on_while_the_api_server_is_away_and_a_new_pod_joins_afterwards(
    release: Release, generations: list[int | None]
) -> None:
    """Away for every pod; the nodes reach it, so that a pod can be started meanwhile."""
    more = REPLICAS + 1
    with connected(release) as coordinator:
        before = coordinator.description(REPLICAS)
        with release.cluster.pods_cut_off(API_PORT):
            ends_s = time.monotonic() + AWAY_S  # noqa: TID251  the length of the outage
            release.kubectl(
                "patch", "consumergroup", GROUP, "--type=merge", f'--patch={{"spec":{{"replicas":{more}}}}}'
            )
            release.kubectl("scale", f"deployment/{ENRICHER}", f"--replicas={more}")
            wait_for(
                "the new pod's sidecar",
                lambda: started(release) == more,
                within_s=WITHIN_S,
                poll_s=LOOK_EACH_S,
            )
            is_away = True
            while is_away:
                committed = sum(coordinator.committed().values())
                wait_for(
                    "commits go on",
                    lambda committed=committed: sum(coordinator.committed().values()) > committed,  # type: ignore[misc]
                    within_s=WITHIN_S,
                    poll_s=LOOK_EACH_S,
                )
                is_away = time.monotonic() < ends_s  # noqa: TID251
            away = coordinator.description()
            assert (away.generation, away.members) == (before.generation, before.members)
        after = coordinator.description(more)
        assert {each.member_id for each in before.members} <= {each.member_id for each in after.members}
    release.wait_group(f"jsonpath={{.status.members}}={more}")
    release.wait_shared()
    assert set(release.restarts().values()) == {0}
    generations.append(release.group().generation)


def started(release: Release) -> int:
    """Number of the group's pods whose sidecar runs."""
    return sum(
        bool(each.get("started"))
        for pod in release.consumers()
        for each in pod["status"].get("initContainerStatuses", ())
    )


def test_certificates_and_their_authority_are_replaced_under_load(release: Release, tmp_path: Path) -> None:
    """First the successor is announced, and certificates of the former authority are renewed; then the successor issues."""
    restarts = release.restarts()
    former = release.secret("rota-coordinator-tls")
    with connected(release) as coordinator:
        before = coordinator.description(REPLICAS + 1)
    issue(release, tmp_path)
    announced = release.secret("rota-coordinator-tls")
    assert announced["tls.crt"] != former["tls.crt"]
    assert announced["ca.crt"].startswith(former["ca.crt"].rstrip())
    assert announced["ca.crt"].count(b"BEGIN CERTIFICATE") == 2
    wait_trusted(release, announced["ca.crt"].decode())

    issue(release, tmp_path)
    successor = release.secret("rota-authority")["tls.crt"]
    assert successor not in former["ca.crt"]
    wait_served(release, successor)
    # Connections outlive the certificate that they began with: end those of each member.
    members = {each["status"]["podIP"] for each in release.consumers()}
    with connected(release) as coordinator:
        for port in (COORDINATOR_PORT, FLEET_PORT):
            with release.cluster.pods_cut_off(port, how="reject with tcp reset") as cut_off:
                wait_for(
                    f"a reset to each member from port {port}",
                    lambda cut_off=cut_off: members <= cut_off(),  # type: ignore[misc]
                    within_s=WITHIN_S,
                    poll_s=LOOK_EACH_S,
                )
        committed = coordinator.committed()
        wait_for(
            "commits over new connections",
            lambda: sum(coordinator.committed().values()) > sum(committed.values()) + 20,
            within_s=WITHIN_S,
            poll_s=LOOK_EACH_S,
        )
        after = coordinator.description(REPLICAS + 1)
        assert (after.generation, after.members) == (before.generation, before.members)
    assert release.restarts() == restarts


def test_pods_that_are_not_restricted_are_refused(release: Release) -> None:
    """The same pods, each with one field that the Pod Security level does not allow."""
    pods = [
        *release.pods(NAMESPACE, "app.kubernetes.io/component in (operator, coordinator)"),
        *release.consumers(),
    ]
    assert len(pods) >= 4
    for pod in pods:
        metadata, spec = pod["metadata"], dict(pod["spec"])
        spec.pop("nodeName")
        spec.pop("ephemeralContainers", None)
        namespace = metadata["namespace"]
        assert "created (server dry run)" in create(release, namespace, spec)
        for number, container in enumerate(spec["containers"]):
            context = {**container.get("securityContext", {}), "allowPrivilegeEscalation": True}
            spoilt = [*spec["containers"]]
            spoilt[number] = {**container, "securityContext": context}
            with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted:latest": allowPriv'):
                create(release, namespace, {**spec, "containers": spoilt})
        sidecars = spec.get("initContainers", [])
        for sidecar in sidecars:
            spoilt = [{**sidecar, "securityContext": {**sidecar["securityContext"], "runAsUser": 0}}]
            with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted:latest": runAsUser=0'):
                create(release, namespace, {**spec, "initContainers": spoilt})


def create(release: Release, namespace: str, spec: Mapping[str, Any]) -> str:
    """Ask the API server to create a pod, without effect."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "control"}, "spec": spec}
    return release.cluster.kubectl(
        "create", "--dry-run=server", "--filename=-", f"--namespace={namespace}", input=json.dumps(pod)
    )


@pytest.mark.parametrize("account", CAN.keys() - {EVERY_ACCOUNT})
def test_an_account_can_do_what_the_list_says(release: Release, account: str) -> None:
    namespace, name = account.split("/")
    who = [
        f"--as=system:serviceaccount:{namespace}:{name}",
        "--as-group=system:serviceaccounts",
        f"--as-group=system:serviceaccounts:{namespace}",
        "--as-group=system:authenticated",
    ]
    found = {
        where: sorted(
            " ".join(line.split())
            for line in release.cluster.kubectl("auth", "can-i", "--list", f"--namespace={where}", *who)
            .strip()
            .splitlines()[1:]
        )
        for where in (NAMESPACE, APPLICATIONS)
    }
    expected = {where: sorted([*lines, *CAN[EVERY_ACCOUNT]]) for where, lines in CAN[account].items()}
    assert found == expected


def test_a_reader_of_the_page_sees_the_groups_that_it_may_get(planted: Release, tmp_path: Path) -> None:
    """`kubectl rota ui` forwards its port to the leader, and shows it tokens of service accounts for the page alone."""
    planted.cluster.apply(reader_of_groups(READER), namespace=APPLICATIONS)
    serving = ui(planted, tmp_path, READER)
    serving.wait_until(lambda: "http://127.0.0.1:" in serving.log.read_text(), within_s=WITHIN_S)
    [url] = re.findall(r"^http://\S+/", serving.log.read_text(), re.MULTILINE)
    with urllib.request.urlopen(f"{url}api/state?namespace={APPLICATIONS}", timeout=WITHIN_S) as answer:
        groups = {each["group_id"]: each for each in json.load(answer)["groups"]}
    assert groups.keys() == {f"{APPLICATIONS}/{each}" for each in (GROUP, LEDGER, REFUSED)}
    orders = groups[f"{APPLICATIONS}/{GROUP}"]
    assert {each["name"] for each in orders["members"]} <= {
        each["metadata"]["name"] for each in planted.consumers()
    }
    assert [each["owner"] is not None for each in orders["partitions"]] == [True] * PARTITIONS
    serving.stop(first=signal.SIGINT)
    denied = ui(planted, tmp_path, "default")
    wait_for("the end of a reader without the right", lambda: denied.exit_code is not None, within_s=WITHIN_S)
    assert "may not get consumergroups.rota.dev in namespace" in denied.log.read_text()


def ui(release: Release, folder: Path, account: str) -> Process:
    """Start `kubectl rota ui` for the applications, as a service account of theirs."""
    command = [
        sys.executable, "-m", "rota_cli.kubectl", "ui", f"--kubeconfig={release.cluster.kubeconfig}",
        f"--namespace={APPLICATIONS}", f"--operator-namespace={NAMESPACE}", f"--service-account={account}",
    ]  # fmt: skip
    return Process.start("kubectl rota ui", command, log=folder / f"{account}.log")


def reader_of_groups(name: str) -> list[Manifest]:
    """A service account that may get ConsumerGroups of its namespace."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": name}
    rule = {"apiGroups": ["rota.dev"], "resources": ["consumergroups"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": APPLICATIONS}
    role = {"apiGroup": rbac, "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]},
    ]  # fmt: skip


def test_no_secret_is_in_a_log_an_event_an_object_an_argument_or_a_metric(
    planted: Release, hidden: Planted
) -> None:
    """The search finds the control in each kind of place, and the failures in which a secret could be quoted have occurred."""
    failures = [
        failure_said(planted, APPLICATIONS, f"{LEDGER}-0", BROKER),
        failure_said(planted, NAMESPACE, POSTGRESQL, DATABASE.rpartition(":")[2]),
    ]
    secrets = {**hidden.hidden(), **issued(planted)}
    control = hidden.start_control(planted)
    found = outputs(planted.cluster, (NAMESPACE, APPLICATIONS))
    control.kill()
    assert (
        {each.kind for each in find({CONTROL: hidden.control}, found)}
        == {each.kind for each in found}
        == KINDS
    )
    assert find(secrets, [*found, *failures]) == []
    # Of both parts and each sidecar.
    assert len([each for each in found if each.kind == "metrics"]) >= 3 + REPLICAS + 1


def test_the_accounts_use_each_of_their_rights_and_no_more(planted: Release) -> None:
    """The API server has recorded what they have done until now; only this is rare."""
    without = '--patch={"spec":{"podDisruptionBudget":null}}'
    planted.kubectl("patch", "consumergroup", LEDGER, "--type=merge", without)
    budget = f"poddisruptionbudget/rota-{LEDGER}"
    planted.cluster.wait(budget, "delete", namespace=APPLICATIONS)
    granted = rights(helm.render(namespace=NAMESPACE))
    requests = list(planted.cluster.requests(NAMESPACE))
    assert not_granted(granted, requests) == []
    assert unused(granted, requests) == []
    # Pods of a group have no rights, and request nothing.
    assert list(planted.cluster.requests(APPLICATIONS)) == []


def test_nothing_was_restarted(release: Release) -> None:
    assert set(release.restarts().values()) == {0}


@pytest.mark.parametrize("how", ["deleted", "killed"])
def test_a_group_goes_on_after_its_coordinator_is_lost(cleared: Release, how: str, report: list[str]) -> None:
    group, lives, since_ms = cleared.group(), cleared.lives(), now_ms()
    if how == "deleted":
        cleared.cluster.kubectl("delete", "pod", f"{COORDINATOR}-0", f"--namespace={NAMESPACE}")
    else:
        cleared.kill_coordinator(f"{COORDINATOR}-0")
    cleared.wait_replaced(lives)
    pause_s = cleared.pause_s(since_ms)
    report.append(f"no order was priced after the coordinator on SQLite was {how} for {pause_s:.1f} s")
    cleared.wait_shared()
    cleared.wait_unchanged(group)


def test_a_group_goes_on_after_its_coordinators_node_is_lost(cleared: Release, report: list[str]) -> None:
    """As Kubernetes' documentation advises for a node that does not come back, it is tainted."""
    cluster, group, lives, since_ms = cleared.cluster, cleared.group(), cleared.lives(), now_ms()
    taint = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    assert node_of(cleared) == FIRST
    cluster.stop_node(FIRST)
    cluster.wait(f"node/{FIRST}", "condition=Ready=Unknown")
    noticed_ms = now_ms()
    cluster.kubectl("taint", "node", FIRST, taint)
    cleared.wait_replaced(lives)
    assert node_of(cleared) == OTHER
    pause_s, until_noticed_s = cleared.pause_s(since_ms), (noticed_ms - since_ms) / 1000
    report.append(
        f"no order was priced after the node of the coordinator on SQLite was lost for {pause_s:.1f} s, "
        f"{until_noticed_s:.1f} s of them until Kubernetes called the node lost"
    )
    cleared.wait_shared()
    cleared.wait_unchanged(group)
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
    report.append(f"orders over disturbances and losses of the coordinator on SQLite: {audited}")
    assert audited == Audit(audited.produced, audited.produced, 0, 0)
    assert audited.produced
    group = release.group()
    assert ([group.generation], group.restarts) == (generations, 0)


def test_a_backup_that_is_made_under_traffic_is_restored_by_the_commands_of_the_guide(
    release: Release, report: list[str]
) -> None:
    """The last one. Orders from after the backup are lost with their prices; those not yet committed in it may be priced again."""
    cluster, commands = release.cluster, guide(NAMESPACE)
    release.stop_producer()
    before, since_ms = release.audit(), now_ms()
    with connected(release) as coordinator:
        wait_for(
            "all orders are committed",
            lambda: sum(coordinator.committed().values()) == before.produced,
            within_s=WITHIN_S,
            poll_s=LOOK_EACH_S,
        )
    release.start_producer()
    release.pause_s(since_ms)
    copied = cluster.kubectl(*commands.backup)
    assert copied.startswith("copied /var/lib/rota/coordinator.db to /var/lib/rota/backup.db (")
    release.pause_s(now_ms())
    release.stop_producer()
    lost = release.audit()

    pod, output = restore_pod(release.images["coordinator"].name), ""
    for command in commands.restore:
        if command[0] == "apply":
            cluster.apply(pod, namespace=NAMESPACE)
        else:
            output += cluster.kubectl(*command)
    assert "1 groups begin a new incarnation; " in output
    cluster.kubectl(*commands.start)
    cluster.kubectl(
        "rollout",
        "status",
        f"statefulset/{COORDINATOR}",
        f"--namespace={NAMESPACE}",
        f"--timeout={WITHIN_S}s",
    )
    with connected(release) as coordinator:
        # The restored group had no members; what they do before they have joined it is done again.
        coordinator.description(REPLICAS + 1)
    release.wait_shared()

    restored = release.audit()
    assert before.produced < restored.produced < lost.produced
    since_ms = now_ms()
    release.start_producer()
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
