"""
Pods at the coordinator, by their real tokens: the API server issues and reviews them.

The coordinator is a process of this machine with the rights of a service account, and the pods of the tokens need not run.
"""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio
import pytest
import yaml

from rota_operator.cluster.api import Api
from rota_operator.cluster.client_workloads import ClientWorkloads
from rota_operator.cluster.credentials import load
from rota_operator.reconcile.client_workloads import AUTHORITY_NAME, CLIENT_LABEL
from rota_operator.reconcile.observed import OperatorSettings
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.members import subscription, topic_offsets
from tests.coordinator.callers import METHODS, call, channel, error_of, refusal, session
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.manifests import Manifest, deployment
from tests.support.coordinator import QUICK, Coordinator, bearer, serving

# It may have to start the cluster.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
SHOP, BANK, ROTA = "identity-shop", "identity-bank", "identity-rota"
GROUP = f"{SHOP}.orders"
GRANTS = f"system:serviceaccount:{ROTA}:operator service-account admin:*\n"
JOIN = pb.JoinGroupRequest(
    group_id=GROUP,
    group_instance_id="orders-0",
    session_timeout_ms=60_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=[pb.Protocol(name="range", metadata=subscription())],
)


class Pods(NamedTuple):
    """Pods that are never scheduled, and their tokens."""

    cluster: Cluster

    def add(self, namespace: str, name: str, account: str = "default") -> None:
        """Add a pod."""
        spec = {
            "serviceAccountName": account,
            "nodeSelector": {"node": "none"},
            "containers": [{"name": "app", "image": "none"}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.cluster.apply([pod], namespace=namespace)

    def token(self, namespace: str, name: str, account: str = "default", audience: str = "rota") -> str:
        """A token as the kubelet asks for one; without a name it is bound to no pod."""
        bound = []
        if name:
            path = "jsonpath={.metadata.uid}"
            uid = self.cluster.kubectl("get", "pod", name, "--namespace", namespace, "--output", path)
            bound = [
                "--bound-object-kind=Pod",
                f"--bound-object-name={name}",
                f"--bound-object-uid={uid}",
            ]
        return self.cluster.kubectl(
            "create", "token", account, "--namespace", namespace, f"--audience={audience}", *bound
        ).strip()


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[Pods]:
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (SHOP, BANK, ROTA)
    ]
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": ROTA}}
        for name in ("coordinator", "operator")
    ]
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ROTA},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "coordinator", "namespace": ROTA}],
    }
    objects = {"apiVersion": "v1", "kind": "List", "items": [*namespaces, *accounts, binding]}
    cluster.kubectl("create", "--filename", "-", input=json.dumps(objects))
    for name in (SHOP, BANK, ROTA):
        cluster.wait("serviceaccount/default", "create", namespace=name)
    found = Pods(cluster)
    for name in ("orders-0", "orders-1"):
        found.add(SHOP, name)
    found.add(BANK, "teller-0")
    found.add(ROTA, "operator-0", "operator")
    yield found
    cluster.kubectl("delete", "clusterrolebinding", ROTA)
    cluster.kubectl("delete", "namespace", SHOP, BANK, ROTA, "--wait=false")


@pytest.fixture(scope="module")
def coordinator(pods: Pods, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    folder = tmp_path_factory.mktemp("identity")
    grants = folder / "grants"
    grants.touch(mode=0o600)
    grants.write_text(GRANTS)
    host, port = service_account(pods, folder)
    flags = [
        *QUICK,
        "--no-log",
        "--token-review",
        f"--service-account-folder={folder}",
        f"--tokens-file={grants}",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBERNETES_SERVICE_HOST", host)
        patch.setenv("KUBERNETES_SERVICE_PORT", port)
        with serving(folder, flags, program="tests.support.quick_reviews") as running:
            yield running


def service_account(pods: Pods, folder: Path) -> tuple[str, str]:
    """Write what a pod of the coordinator would find in its folder; return the API server's host and port."""
    known = yaml.safe_load(pods.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = known.get("certificate-authority-data")
    pem = base64.b64decode(authority) if authority else Path(known["certificate-authority"]).read_bytes()
    (folder / "ca.crt").write_bytes(pem)
    own = pods.cluster.kubectl("create", "token", "coordinator", "--namespace", ROTA)
    (folder / "token").write_text(own)
    host, _, port = known["server"].removeprefix("https://").rpartition(":")
    return host, port


def test_a_workload_with_the_label_of_clients_gets_credentials_and_gives_them_back(pods: Pods) -> None:
    """The requests of the operator, without an operator; the workload has no pods."""
    settings = OperatorSettings("rota-sidecar:1", "rota-operator:7083", authority="PEM")
    container = {"name": "app", "image": "none"}
    producer = deployment("producer", container, replicas=0)
    producer["metadata"]["labels"] = {CLIENT_LABEL: "true"}
    pods.cluster.apply([producer], namespace=SHOP)
    get = ("--namespace", SHOP, "get", "deployment", "producer", "--output=json")

    async def reconcile() -> None:
        client = await load(pods.cluster.kubeconfig)
        api = Api(client)
        try:
            assert await ClientWorkloads(api, lambda: settings, [SHOP], print).reconcile() == []
        finally:
            await api.close()

    def at_rest() -> Manifest:
        """Wait for the Deployment's controller, which writes its status, and the number of the revision."""
        progressed = '{.status.conditions[?(@.type=="Progressing")].reason}'
        generation = json.loads(pods.cluster.kubectl(*get))["metadata"]["generation"]
        observed = f"{{.status.observedGeneration}}={generation}"
        for condition in (observed, f"{progressed}=NewReplicaSetAvailable"):
            pods.cluster.wait("deployment/producer", f"jsonpath={condition}", namespace=SHOP)
        found: Manifest = json.loads(pods.cluster.kubectl(*get))
        return found

    before = at_rest()["spec"]
    asyncio.run(reconcile())
    applied = at_rest()
    asyncio.run(reconcile())
    assert json.loads(pods.cluster.kubectl(*get)) == applied, "at rest nothing is written"
    (app,) = applied["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in app["env"]] == ["ROTA_TLS_CA", "ROTA_TOKEN_FILE"]
    known = json.loads(
        pods.cluster.kubectl("--namespace", SHOP, "get", "configmap", AUTHORITY_NAME, "--output=json")
    )
    assert known["data"] == {"ca.crt": "PEM"}
    assert [each["name"] for each in known["metadata"]["ownerReferences"]] == ["producer"]
    pods.cluster.kubectl("--namespace", SHOP, "label", "deployment", "producer", f"{CLIENT_LABEL}-")
    at_rest()
    asyncio.run(reconcile())
    assert json.loads(pods.cluster.kubectl(*get))["spec"] == before


def test_a_namespace_has_its_own_groups_and_an_administrator_all(
    coordinator: Coordinator, pods: Pods
) -> None:
    own, foreign = pods.token(SHOP, "orders-0"), pods.token(BANK, "teller-0")
    same_namespace = pods.token(SHOP, "orders-1")
    operator = pods.token(ROTA, "operator-0", "operator")
    fetch = pb.FetchOffsetsRequest(group_id=GROUP, all=True)

    async def body() -> None:
        async with channel(coordinator.address) as over, session(over, own) as stream:
            member = await stream.ask(JOIN)
            assert isinstance(member, pb.JoinGroupResponse)
            assert member.error_code == pb.NONE
            commit = pb.CommitOffsetsRequest(
                group_id=GROUP,
                generation_id=member.generation_id,
                member_id=member.member_id,
                group_instance_id="orders-0",
                topics=[topic_offsets({0: 41})],
            )
            heartbeat = pb.HeartbeatRequest(
                group_id=GROUP,
                generation_id=member.generation_id,
                member_id=member.member_id,
                group_instance_id="orders-0",
            )
            describe = admin.DescribeGroupsRequest(group_ids=[GROUP])
            for request in (JOIN, commit, heartbeat, fetch, describe):
                assert error_of(await call(over, request, foreign)) == pb.GROUP_AUTHORIZATION_FAILED
            for request in (JOIN, commit, heartbeat):
                assert error_of(await call(over, request, same_namespace)) == pb.FENCED_INSTANCE_ID
            assert error_of(await call(over, fetch, same_namespace)) == pb.NONE
            described = await call(over, describe, operator)
            assert isinstance(described, admin.DescribeGroupsResponse)
            assert [each.member_id for each in described.groups[0].members] == [member.member_id]
            assert error_of(await stream.ask(heartbeat)) == pb.NONE

    asyncio.run(asyncio.wait_for(body(), WITHIN_S))


def test_tokens_for_others_and_of_no_pod_are_refused(coordinator: Coordinator, pods: Pods) -> None:
    shown = {
        pods.token(
            SHOP, "orders-0", audience="https://kubernetes.default.svc"
        ): "the API server rejects the token",
        pods.token(SHOP, ""): "the token is not bound to a pod",
        pods.token(SHOP, "orders-0")[:-8]: "the API server rejects the token",
    }

    async def body() -> None:
        async with channel(coordinator.address) as over:
            for token, message in shown.items():
                code, details = await refusal(over, METHODS[0], bearer(token))
                assert code is grpc.StatusCode.UNAUTHENTICATED
                assert details.startswith(message)

    asyncio.run(asyncio.wait_for(body(), WITHIN_S))


def test_the_stream_of_a_deleted_pod_ends_and_its_successor_is_another_one(
    coordinator: Coordinator, pods: Pods
) -> None:
    pods.add(SHOP, "deleted-0")
    token, other = pods.token(SHOP, "deleted-0"), pods.token(SHOP, "orders-1")

    async def body() -> None:
        async with channel(coordinator.address) as over, session(over, other) as lasting:
            stream = CoordinatorStub(over).Session(metadata=bearer(token))
            await stream.initial_metadata()
            await asyncio.to_thread(
                pods.cluster.kubectl, "delete", "pod", "deleted-0", "--namespace", SHOP, "--force"
            )
            await asyncio.to_thread(pods.add, SHOP, "deleted-0")
            assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "the API server rejects the token" in (await stream.details() or "")
            heartbeat = pb.HeartbeatRequest(group_id=f"{SHOP}.none", member_id="x")
            assert error_of(await lasting.ask(heartbeat)) == pb.UNKNOWN_MEMBER_ID
            successor = await asyncio.to_thread(pods.token, SHOP, "deleted-0")
            await call(over, admin.DescribeSlotsRequest(), successor)

    asyncio.run(asyncio.wait_for(body(), WITHIN_S))
