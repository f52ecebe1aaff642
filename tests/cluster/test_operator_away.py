"""Groups go on without an operator, which changes nothing when it returns; of two, one acts, and the other takes over."""

import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import grpc
import pytest

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import STABLE, Description, description_of
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2 import FetchOffsetsRequest
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.cluster.consumers import APP, Consumer, make_topics
from tests.support.cluster.rota_manifests import COORDINATOR, OPERATOR
from tests.support.cluster.rota_manifests import NAMESPACE as ROTA
from tests.support.processes import steady_ms, wait_for

# The first of them starts the cluster, loads four images and waits for Rota's parts.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.paired,
    pytest.mark.soak("operator-away"),
    pytest.mark.timeout(1_200),
]

NAMESPACE = "operator-away"
PARTITIONS, REPLICAS = 4, 2
CONSUMER = Consumer("orders", f"{NAMESPACE}.orders", REPLICAS)
GROUP_ID = f"{NAMESPACE}.{CONSUMER.name}"
SPEC = {
    "membership": {"sessionTimeoutSeconds": 6, "heartbeatIntervalSeconds": 1},
    "offsets": {"commit": {"intervalSeconds": 1}},
}
SIDECAR, OPERATORS = "rota-sidecar", 2
RECONCILES = re.compile(r'^rota_operator_reconciles_total\{outcome="success"\} (\S+)$', re.MULTILINE)
AWAY_MS_IN_SOAK = 60_000
# As docs/guide/operator.md promises it; of these 20 s the Lease takes 15.
TAKEOVER_S = 20
HTTP_PORT, FLEET_PORT = 7082, 7083
# Run in an application's container: prints the addresses, of those in its arguments, that accept a connection.
CONNECT = f"""
import socket, sys
for host in sys.argv[1:]:
    try:
        socket.create_connection((host, {FLEET_PORT}), timeout=20).close()
        print(host)
    except ConnectionRefusedError:
        pass
"""


class Rota:
    """Rota's own parts in the cluster, and what the coordinator knows of the group."""

    def __init__(self, cluster: Cluster, channel: grpc.Channel) -> None:
        self.cluster = cluster
        self._channel = channel

    def described(self, condition: Callable[[Description], bool]) -> Description:
        """Wait until the coordinator describes the group like this."""
        responses = AdminStub(self._channel).WatchGroup(
            WatchGroupRequest(group_id=GROUP_ID), timeout=WITHIN_S
        )
        return next(found for found in map(description_of, responses) if condition(found))

    def committed(self) -> Mapping[Partition, int]:
        """Committed offsets of the group."""
        request = FetchOffsetsRequest(group_id=GROUP_ID, all=True)
        found = CoordinatorStub(self._channel).FetchOffsets(request, timeout=WITHIN_S)
        return {
            Partition(topic.name, each.index): each.offset
            for topic in found.topics
            for each in topic.partitions
        }

    def pods(self, app: str, namespace: str) -> Mapping[str, Any]:
        """Pods by name that are not being deleted."""
        found = self.cluster.get("pods", namespace=namespace, selector=f"app={app}")["items"]
        alive = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return {each["metadata"]["name"]: each for each in alive}

    def members(self) -> Mapping[str, str]:
        """Uids of the group's pods by name."""
        found = self.pods(CONSUMER.name, NAMESPACE)
        return {name: each["metadata"]["uid"] for name, each in found.items()}

    def generation(self) -> int:
        """Generation of the group's workload: it rises with each change of its pods."""
        found = self.cluster.get(f"deployment/{CONSUMER.name}", namespace=NAMESPACE)
        return int(found["metadata"]["generation"])

    def status(self) -> Any:  # noqa: ANN401  as it is stored
        """Status of the ConsumerGroup."""
        return self.cluster.get(f"consumergroup/{CONSUMER.name}", namespace=NAMESPACE).get("status", {})

    def lease(self) -> Any:  # noqa: ANN401  as it is stored
        """Spec of the Lease that elects the leader."""
        return self.cluster.get(f"lease/{OPERATOR}", namespace=ROTA)["spec"]

    def leader(self) -> str:
        """Name of the pod that leads."""
        return str(self.lease()["holderIdentity"]).rpartition("_")[0]

    def metrics(self, pod: str) -> str:
        """Metrics of an operator."""
        return self.cluster.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{ROTA}/pods/{pod}:{HTTP_PORT}/proxy/metrics"
        )

    def reconciles(self, pod: str) -> float:
        """Number of reconciles of an operator that succeeded."""
        [number] = RECONCILES.findall(self.metrics(pod))
        return float(number)

    def scale_operator(self, replicas: int) -> None:
        """Scale the operator, and wait until its pods are ready, or gone."""
        self.cluster.kubectl(
            "scale", f"deployment/{OPERATOR}", f"--namespace={ROTA}", f"--replicas={replicas}"
        )
        if replicas:
            ready = f"jsonpath={{.status.readyReplicas}}={replicas}"
            self.cluster.wait(f"deployment/{OPERATOR}", ready, namespace=ROTA)
        else:
            self.cluster.kubectl(
                "wait", "pods", f"--selector=app={OPERATOR}", "--for=delete", f"--namespace={ROTA}",
                f"--timeout={WITHIN_S}s",
            )  # fmt: skip


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  the operator's clock is this machine's


def owns_all(members: Collection[str]) -> Callable[[Description], bool]:
    """Return whether these members, and no others, share all partitions of a stable group."""

    def holds(found: Description) -> bool:
        owners = {each.client_id: each.partitions for each in found.members}
        shared = sum(map(len, owners.values()))
        return (
            found.state == STABLE
            and owners.keys() == set(members)
            and all(owners.values())
            and shared == PARTITIONS
        )

    return holds


@pytest.fixture(scope="module")
def rota(rota_cluster: Cluster) -> Iterator[Rota]:
    """The group is ready, and shared by two members."""
    rota_cluster.create_namespace(NAMESPACE)
    make_topics(rota_cluster, {CONSUMER.topic: PARTITIONS})
    manifests = [CONSUMER.group(**SPEC), CONSUMER.workload(images.part("cli").name)]
    rota_cluster.apply(manifests, namespace=NAMESPACE)
    rota_cluster.wait(
        f"deployment/{CONSUMER.name}",
        f"jsonpath={{.status.availableReplicas}}={REPLICAS}",
        namespace=NAMESPACE,
    )
    address = "--output=jsonpath={.items[0].status.podIP}"
    pod = rota_cluster.kubectl("get", "pods", f"--selector=app={COORDINATOR}", f"--namespace={ROTA}", address)
    with (
        rota_cluster.forward(pod, 7070) as port,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        found = Rota(rota_cluster, channel)
        found.described(owns_all(found.members()))
        rota_cluster.wait(f"consumergroup/{CONSUMER.name}", "condition=Ready", namespace=NAMESPACE)
        yield found
        found.scale_operator(1)
    rota_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


class Away(NamedTuple):
    """The group as it was left when the operator was stopped."""

    stopped_ms: int
    generation: int
    members: Mapping[str, str]


@pytest.fixture(scope="module")
def away(rota: Rota) -> Away:
    """No operator runs."""
    generation, members = rota.generation(), rota.members()
    rota.scale_operator(0)
    return Away(steady_ms(), generation, members)


@pytest.fixture(scope="module")
def after_death(rota: Rota, away: Away) -> str:
    """A pod of the group has died: its sidecar has no time to leave the group. Returns its name."""
    victim = min(away.members)
    rota.cluster.signal_container(signal.SIGSTOP, victim, SIDECAR, namespace=NAMESPACE)
    rota.cluster.kubectl(
        "delete", f"pod/{victim}", f"--namespace={NAMESPACE}", "--grace-period=0", "--force", "--wait=false"
    )
    return victim


@pytest.fixture(scope="module")
def operators(rota: Rota, away: Away, after_death: str) -> Mapping[str, Any]:
    """Two operators where none has been; their pods by name."""
    del away, after_death
    rota.scale_operator(OPERATORS)
    return rota.pods(OPERATOR, ROTA)


def test_without_an_operator_a_group_outlives_the_death_of_a_pod(
    rota: Rota, away: Away, after_death: str, in_soak: bool
) -> None:
    committed = rota.committed()
    wait_for(
        "another pod in its place",
        lambda: len(rota.members().keys() - {after_death}) == REPLICAS,
        within_s=WITHIN_S,
        poll_s=0.2,
    )
    members = rota.members()
    assert after_death not in members
    rota.described(owns_all(members))

    def goes_on() -> bool:
        found = rota.committed()
        return len(found) == PARTITIONS and all(found[each] > committed.get(each, 0) for each in found)

    wait_for("commits of all partitions", goes_on, within_s=WITHIN_S, poll_s=0.2)
    if in_soak:
        wait_for("60 s", lambda: steady_ms() - away.stopped_ms > AWAY_MS_IN_SOAK, within_s=WITHIN_S)
        rota.described(owns_all(members))
    assert rota.members() == members
    assert rota.generation() == away.generation


def test_an_operator_that_returns_changes_no_pod_and_its_status_is_true_again(
    rota: Rota, away: Away, after_death: str, operators: Mapping[str, Any]
) -> None:
    members = rota.members()

    def is_true() -> bool:
        status = rota.status()
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        shown = {each["podName"]: each["partitions"] for each in status.get("placements", ())}
        return (
            shown.keys() == members.keys()
            and sum(shown.values()) == PARTITIONS
            and (conditions["Ready"], conditions["Rebalancing"]) == ("True", "False")
        )

    wait_for("the status shows the members of now", is_true, within_s=WITHIN_S, poll_s=0.5)
    assert after_death not in members
    assert rota.members() == members
    assert rota.generation() == away.generation
    assert operators


def test_of_two_operators_one_acts_and_sidecars_reach_it_alone(
    rota: Rota, operators: Mapping[str, Any]
) -> None:
    leader = rota.leader()
    [other] = operators.keys() - {leader}
    assert rota.reconciles(leader) > 0
    assert rota.reconciles(other) == 0
    addresses = {name: pod["status"]["podIP"] for name, pod in operators.items()}
    application = ("exec", f"deployment/{CONSUMER.name}", f"--container={APP}", f"--namespace={NAMESPACE}")
    connected = rota.cluster.kubectl(*application, "--", "python", "-c", CONNECT, *addresses.values())
    assert connected.split() == [addresses[leader]]


def test_another_operator_leads_soon_after_the_leader_was_killed(
    rota: Rota, operators: Mapping[str, Any], report: list[str]
) -> None:
    lease, leader = rota.lease(), rota.leader()
    generation, members = rota.generation(), rota.members()
    assert leader in operators
    killed_at = now()
    rota.cluster.signal_container(signal.SIGKILL, leader, "operator", namespace=ROTA)
    another = f"jsonpath={{.spec.leaseTransitions}}={lease['leaseTransitions'] + 1}"
    rota.cluster.wait(f"lease/{OPERATOR}", another, namespace=ROTA)
    # By the clock of its process, which is this machine's.
    took_s = (datetime.fromisoformat(rota.lease()["acquireTime"]) - killed_at).total_seconds()
    ready = f'rota_group_condition{{name="{CONSUMER.name}",namespace="{NAMESPACE}",type="Ready"}} 1.0'
    wait_for(
        "the new leader sees the group progress",
        lambda: ready in rota.metrics(rota.leader()),
        within_s=WITHIN_S,
        poll_s=0.5,
    )
    seen_s = (now() - killed_at).total_seconds()
    report.append(
        f"a killed leader: another operator leads after {took_s:.1f} s (limit {TAKEOVER_S} s), "
        f"and sees its group progress after {seen_s:.1f} s"
    )
    assert took_s <= TAKEOVER_S
    assert (rota.generation(), rota.members()) == (generation, members)
