"""
A release of the chart, with rights in all namespaces, that is disturbed while orders are priced: the API server is away, and certificates
and their authority are replaced. In the end each order is priced once, and nothing was restarted.

What its accounts may do equals a list, and they use all of it; pods that are less restricted are refused; secrets in every place are found
nowhere else.
"""

import asyncio
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

from rota_operator.certificates.job import CertificatesRun, ServerSecret
from rota_operator.certificates.rotation import DAY_S
from rota_operator.cluster.api import Api
from rota_operator.cluster.credentials import load
from rota_operator.spec.conditions import Reason
from rota_service.event_log import open_event_log
from tests.chart.granted import rights
from tests.cluster.installed_release import (
    APPLICATIONS,
    COORDINATOR,
    COORDINATOR_ADDRESS,
    COORDINATOR_PORT,
    NAMESPACE,
    PARTITIONS,
    RELEASE,
    WITHIN_S,
    Installed,
    example,
)
from tests.cluster.planted import KINDS, find, outputs
from tests.cluster.planted_release import (
    BROKER,
    CONTROL,
    DATABASE,
    LEDGER,
    POSTGRESQL,
    REFUSED,
    Planted,
    issued,
)
from tests.cluster.recorded_rights import not_granted, unused
from tests.cluster.released import tag_flags
from tests.support import helm, rota_images
from tests.support.cluster import Cluster
from tests.support.cluster.addresses import API_PORT
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest, restricted_namespace
from tests.support.cluster.orders import AUDIT, ENRICHER, GROUP
from tests.support.cluster.orders import SHOP as PRODUCER
from tests.support.helm import CHART
from tests.support.processes import Process, wait_for

# It may have to start the cluster, and to load four images; the API server is away for a minute.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FLEET, FLEET_PORT = f"rota-operator.{NAMESPACE}", 7083
READER = "reader"
AWAY_S = 60
LOOK_EACH_S = 0.5
# By NAMESPACE/ACCOUNT and then by namespace, as `kubectl auth can-i --list` prints it.
CAN = yaml.safe_load(Path(__file__).with_name("can_i.yaml").read_text())
EVERY_ACCOUNT = "every account"
SERVERS = {"rota-operator-tls": "operator", "rota-coordinator-tls": "coordinator"}
# At which the successor of an authority that is issued now is announced, and has been for long enough.
LATER_S = 2900 * DAY_S
TRUSTED = "/var/run/secrets/rota/ca.crt"
REPLICAS = 3


@pytest.fixture(scope="module")
def hidden() -> Planted:
    """Secrets of the release and of its applications."""
    return Planted.new()


@pytest.fixture(scope="module")
def installed(without_operator: Cluster, hidden: Planted) -> Iterator[Installed]:
    """Install the chart, and the example; uninstall it in the end."""
    cluster, images = without_operator, rota_images.prepare()
    for image in images.values():
        cluster.load_image(image)
    for name in (NAMESPACE, APPLICATIONS):
        cluster.kubectl("create", "--filename", "-", input=json.dumps(restricted_namespace(name)))
    cluster.apply(hidden.of_release(), namespace=NAMESPACE)
    release = Installed(cluster, images["cli"])
    # Other tests may have created the CustomResourceDefinition.
    release.helm(
        "install",
        RELEASE,
        CHART,
        "--wait",
        f"--timeout={WITHIN_S}s",
        "--take-ownership",
        "--set=coordinator.store.sqlite.persistent=false",
        *hidden.values(),
        *tag_flags(images),
    )
    cluster.apply(hidden.postgresql(*tag_flags(images)), namespace=NAMESPACE)
    yield release
    release.kubectl("delete", "consumergroups", "--all", f"--timeout={WITHIN_S}s")
    release.helm("uninstall", RELEASE)
    cluster.kubectl("delete", "namespace", NAMESPACE, APPLICATIONS, "--wait=false")


@pytest.fixture(scope="module")
def ordering(installed: Installed, hidden: Planted) -> Installed:
    """The release with the orders example, whose group is Ready, and a group on Kafka, of which no broker answers."""
    image = installed.application.name
    manifests = [*example(image, PAYMENT_KEY=hidden.variable), *hidden.of_applications(image)]
    installed.cluster.apply(manifests, namespace=APPLICATIONS)
    installed.wait_group("condition=Ready")
    return installed


def test_groups_go_on_while_the_api_server_is_away_and_a_new_pod_joins_afterwards(
    ordering: Installed, report: list[str]
) -> None:
    """Away for every pod; the nodes reach it, so that a pod can be started meanwhile."""
    with ordering.coordinator() as coordinator:
        before, committed = coordinator.description(REPLICAS), coordinator.committed()
        with ordering.cluster.pods_cut_off(API_PORT):
            ends_s = time.monotonic() + AWAY_S  # noqa: TID251  the length of the outage
            ordering.kubectl(
                "patch", "consumergroup", GROUP, "--type=merge", f'--patch={{"spec":{{"replicas":{REPLICAS + 1}}}}}'
            )  # fmt: skip
            ordering.kubectl("scale", f"deployment/{ENRICHER}", f"--replicas={REPLICAS + 1}")
            wait_for(
                "the new pod's sidecar",
                lambda: started(ordering) == REPLICAS + 1,
                within_s=WITHIN_S,
                poll_s=LOOK_EACH_S,
            )
            while time.monotonic() < ends_s:  # noqa: TID251
                time.sleep(min(10, max(0, ends_s - time.monotonic())))  # noqa: TID251
                now = coordinator.committed()
                assert sum(now.values()) > sum(committed.values()), "commits go on"
                committed = now
            away = coordinator.description()
            assert (away.generation, away.members) == (before.generation, before.members)
        after = coordinator.description(REPLICAS + 1)
        assert {each.member_id for each in before.members} <= {each.member_id for each in after.members}
    ordering.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
    members = f"jsonpath={{.status.members}}={REPLICAS + 1}"
    ordering.wait_group(members)
    ordering.wait_group("condition=Ready")
    assert set(ordering.restarts().values()) == {0}


def started(installed: Installed) -> int:
    """Number of the group's pods whose sidecar runs."""
    return sum(
        bool(each.get("started"))
        for pod in installed.pods(APPLICATIONS, f"app={ENRICHER}")
        for each in pod["status"].get("initContainerStatuses", ())
    )


def issue(installed: Installed, folder: Path) -> None:
    """Run the Job's next step at a time when it is due."""
    servers = [ServerSecret(name, tuple(dns_names(installed, part))) for name, part in SERVERS.items()]

    async def run() -> None:
        api = Api(await load(installed.cluster.kubeconfig))
        now_s = time.time() + LATER_S  # noqa: TID251  the Job's clock
        job = CertificatesRun(api, folder, now_s, open_event_log("certificates", "text"))
        await job.run(NAMESPACE, "rota-authority", servers, 90)
        await api.close()

    asyncio.run(run())


def dns_names(installed: Installed, part: str) -> list[str]:
    """DNS names of a server's certificate, as the chart's Job has them in its arguments."""
    [job, *_] = installed.cluster.get("jobs", namespace=NAMESPACE)["items"]
    prefix = f"--certificate=rota-{part}-tls="
    [names] = [
        each.removeprefix(prefix)
        for each in job["spec"]["template"]["spec"]["containers"][0]["args"]
        if each.startswith(prefix)
    ]
    return str(names).split(",")


def trusted(installed: Installed) -> Mapping[str, str]:
    """Authority that each pod of the example finds in its files."""
    return {
        pod["metadata"]["name"]: installed.kubectl(
            "exec", pod["metadata"]["name"], "--container=app", "--",
            "python", "-c", f"print(open({TRUSTED!r}).read(), end='')",
        )
        for pod in installed.pods(APPLICATIONS, f"app in ({ENRICHER}, {PRODUCER})")
    }  # fmt: skip


def test_certificates_and_their_authority_are_replaced_under_load(
    ordering: Installed, tmp_path: Path
) -> None:
    """First the successor is announced, and certificates of the former authority are renewed; then the successor issues."""
    restarts = ordering.restarts()
    former = ordering.secret("rota-coordinator-tls")
    with ordering.coordinator() as coordinator:
        before = coordinator.description(REPLICAS + 1)
    issue(ordering, tmp_path)
    announced = ordering.secret("rota-coordinator-tls")
    assert announced["tls.crt"] != former["tls.crt"]
    assert announced["ca.crt"].startswith(former["ca.crt"].rstrip())
    assert announced["ca.crt"].count(b"BEGIN CERTIFICATE") == 2
    bundle = announced["ca.crt"].decode()
    # Each look is a process in each pod.
    wait_for(
        "both authorities in every pod",
        lambda: set(trusted(ordering).values()) == {bundle},
        within_s=WITHIN_S,
        poll_s=2,
    )

    issue(ordering, tmp_path)
    successor = ordering.secret("rota-authority")["tls.crt"]
    assert successor not in former["ca.crt"]
    for name, port, part in ((COORDINATOR, COORDINATOR_PORT, "coordinator"), (FLEET, FLEET_PORT, "operator")):
        host = address_of(ordering, part)
        wait_for(
            f"{name} by the successor",
            lambda name=name, port=port, host=host: ordering.serves_by(host, port, name, successor),  # type: ignore[misc]
            within_s=WITHIN_S,
            poll_s=LOOK_EACH_S,
        )
    # Connections outlive the certificate that they began with: end those of each member.
    members = {each["status"]["podIP"] for each in ordering.pods(APPLICATIONS, f"app={ENRICHER}")}
    with ordering.coordinator() as coordinator:
        for port in (COORDINATOR_PORT, FLEET_PORT):
            with ordering.cluster.pods_cut_off(port, how="reject with tcp reset") as cut_off:
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
    assert ordering.restarts() == restarts


def address_of(installed: Installed, part: str) -> str:
    """Address of the pod that serves: of two operators, the leader."""
    pods = installed.pods(NAMESPACE, f"app.kubernetes.io/component={part}")
    if part == "operator":
        lease = installed.cluster.get("lease/rota-operator", namespace=NAMESPACE)
        leader = lease["spec"]["holderIdentity"].rpartition("_")[0]
        pods = [each for each in pods if each["metadata"]["name"] == leader]
    [pod] = pods
    return str(pod["status"]["podIP"])


def test_pods_that_are_not_restricted_are_refused(ordering: Installed) -> None:
    """The same pods, each with one field that the Pod Security level does not allow."""
    pods = [
        *ordering.pods(NAMESPACE, "app.kubernetes.io/component in (operator, coordinator)"),
        *ordering.pods(APPLICATIONS, f"app={ENRICHER}"),
    ]
    assert len(pods) >= 4
    for pod in pods:
        metadata, spec = pod["metadata"], dict(pod["spec"])
        spec.pop("nodeName")
        spec.pop("ephemeralContainers", None)
        namespace = metadata["namespace"]
        assert "created (server dry run)" in create(ordering, namespace, spec)
        for number, container in enumerate(spec["containers"]):
            context = {**container.get("securityContext", {}), "allowPrivilegeEscalation": True}
            spoilt = [*spec["containers"]]
            spoilt[number] = {**container, "securityContext": context}
            with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted:latest": allowPriv'):
                create(ordering, namespace, {**spec, "containers": spoilt})
        sidecars = spec.get("initContainers", [])
        for sidecar in sidecars:
            spoilt = [{**sidecar, "securityContext": {**sidecar["securityContext"], "runAsUser": 0}}]
            with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted:latest": runAsUser=0'):
                create(ordering, namespace, {**spec, "initContainers": spoilt})


def create(installed: Installed, namespace: str, spec: Mapping[str, Any]) -> str:
    """Ask the API server to create a pod, without effect."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "control"}, "spec": spec}
    return installed.cluster.kubectl(
        "create", "--dry-run=server", "--filename=-", f"--namespace={namespace}", input=json.dumps(pod)
    )


@pytest.mark.parametrize("account", CAN.keys() - {EVERY_ACCOUNT})
def test_an_account_can_do_what_the_list_says(ordering: Installed, account: str) -> None:
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
            for line in ordering.cluster.kubectl("auth", "can-i", "--list", f"--namespace={where}", *who)
            .strip()
            .splitlines()[1:]
        )
        for where in (NAMESPACE, APPLICATIONS)
    }
    expected = {where: sorted([*lines, *CAN[EVERY_ACCOUNT]]) for where, lines in CAN[account].items()}
    assert found == expected


def test_a_reader_of_the_page_sees_the_groups_that_it_may_get(ordering: Installed, tmp_path: Path) -> None:
    """`kubectl rota ui` forwards its port to the leader, and shows it tokens of service accounts for the page alone."""
    ordering.cluster.apply(reader_of_groups(READER), namespace=APPLICATIONS)
    serving = ui(ordering, tmp_path, READER)
    serving.wait_until(lambda: "http://127.0.0.1:" in serving.log.read_text(), within_s=WITHIN_S)
    [url] = re.findall(r"^http://\S+/", serving.log.read_text(), re.MULTILINE)
    with urllib.request.urlopen(f"{url}api/state?namespace={APPLICATIONS}", timeout=WITHIN_S) as answer:
        groups = {each["group_id"]: each for each in json.load(answer)["groups"]}
    assert groups.keys() == {f"{APPLICATIONS}/{each}" for each in (GROUP, LEDGER, REFUSED)}
    orders = groups[f"{APPLICATIONS}/{GROUP}"]
    assert {each["name"] for each in orders["members"]} <= {
        each["metadata"]["name"] for each in ordering.pods(APPLICATIONS, f"app={ENRICHER}")
    }
    assert [each["owner"] is not None for each in orders["partitions"]] == [True] * PARTITIONS
    serving.stop(first=signal.SIGINT)
    denied = ui(ordering, tmp_path, "default")
    wait_for("the end of a reader without the right", lambda: denied.exit_code is not None, within_s=WITHIN_S)
    assert "may not get consumergroups.rota.dev in namespace" in denied.log.read_text()


def ui(installed: Installed, folder: Path, account: str) -> Process:
    """Start `kubectl rota ui` for the applications, as a service account of theirs."""
    command = [
        sys.executable, "-m", "rota_cli.kubectl", "ui", f"--kubeconfig={installed.cluster.kubeconfig}",
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
    ordering: Installed, hidden: Planted
) -> None:
    """The search finds the control in each kind of place, and the failures in which a secret could be quoted have occurred."""
    refused = f"jsonpath={{.status.conditions[?(@.type=='Ready')].reason}}={Reason.PODS_REFUSED}"
    ordering.wait_group(refused, REFUSED)
    secrets = {**hidden.hidden(), **issued(ordering)}
    control = hidden.start_control(ordering)
    found = outputs(ordering.cluster, (NAMESPACE, APPLICATIONS))
    control.kill()
    assert (
        {each.kind for each in find({CONTROL: hidden.control}, found)}
        == {each.kind for each in found}
        == KINDS
    )
    assert find(secrets, found) == []
    logs = {each.where: each.text for each in found if each.kind == "log"}
    assert BROKER in logs[f"{APPLICATIONS}/{LEDGER}-0/rota-sidecar"]
    assert DATABASE.rpartition(":")[2] in logs[f"{NAMESPACE}/{POSTGRESQL}/coordinator"]
    # Of both parts and each sidecar.
    assert len([each for each in found if each.kind == "metrics"]) >= 3 + REPLICAS


def test_the_accounts_use_each_of_their_rights_and_no_more(ordering: Installed) -> None:
    """The API server has recorded what they have done until now; only this is rare."""
    without = '--patch={"spec":{"podDisruptionBudget":null}}'
    ordering.kubectl("patch", "consumergroup", LEDGER, "--type=merge", without)
    budget = f"poddisruptionbudget/rota-{LEDGER}"
    ordering.cluster.wait(budget, "delete", namespace=APPLICATIONS, within_s=WITHIN_S)
    granted = rights(helm.render(namespace=NAMESPACE))
    requests = list(ordering.cluster.requests(NAMESPACE))
    assert not_granted(granted, requests) == []
    assert unused(granted, requests) == []
    # Pods of a group have no rights, and request nothing.
    assert list(ordering.cluster.requests(APPLICATIONS)) == []


def test_each_order_was_priced_once_and_nothing_was_restarted(ordering: Installed, report: list[str]) -> None:
    ordering.kubectl("scale", f"deployment/{PRODUCER}", "--replicas=0")
    ordering.kubectl("wait", "pods", f"--selector=app={PRODUCER}", "--for=delete", f"--timeout={WITHIN_S}s")
    application = ("exec", f"deployment/{ENRICHER}", "--container=app", "--", "python", "-c", AUDIT)
    audited = ordering.kubectl(*application, f"rota://{COORDINATOR_ADDRESS}").strip()
    report.append(f"orders: {audited}")
    found = re.fullmatch(r"produced (\d+), processed (\d+), unprocessed 0, repeated 0", audited)
    assert found is not None, audited
    assert found[1] == found[2] != "0"
    assert set(ordering.restarts().values()) == {0}
