"""Ready is True only while every partition has an owner that makes progress: four groups are disturbed side by side, and left alone."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from tests.support.cluster import Cluster, images
from tests.support.cluster.consumers import APP, Consumer, make_topics
from tests.support.cluster.rota_manifests import COORDINATOR, coordinator
from tests.support.cluster.rota_manifests import NAMESPACE as SHARED

# The first of them starts the cluster, loads four images and waits for Rota's parts.
pytestmark = [pytest.mark.cluster, pytest.mark.paired, pytest.mark.timeout(1_200)]

NAMESPACE = "ready"
SIDECAR = "rota-sidecar"
PARTITIONS = 2
SESSION_S, STUCK_S, COMMIT_S = 6, 5, 1


class Case(NamedTuple):
    """A group that is disturbed."""

    # Name of the group, and what its pod's container, or the coordinator, gets.
    group: str
    container: str
    disturb: signal.Signals
    mend: signal.Signals
    # Ready meanwhile.
    status: str
    reason: str
    # Maximum time until then, as docs/guide/operator.md has it for the settings of the group.
    documented_s: int
    spec: dict[str, Any]


STOP, CONT = signal.SIGSTOP, signal.SIGCONT
CASES = [
    # A handler that does not return.
    Case(
        "hung", APP, signal.SIGUSR1, signal.SIGUSR2, "False", "PartitionsStuck", STUCK_S + COMMIT_S + 3,
        {
            "monitoring": {"alerts": {"stuckSeconds": STUCK_S}},
            "offsets": {"commit": {"intervalSeconds": COMMIT_S}},
        },
    ),
    # A sidecar that stands still, and keeps its partitions: its session is long.
    Case(
        "silent", SIDECAR, STOP, CONT, "Unknown", "SidecarSilent", 12,
        {"membership": {"sessionTimeoutSeconds": 120}},
    ),
    # The only member stands still beyond its session: its partitions have no owner.
    Case(
        "expelled", SIDECAR, STOP, CONT, "False", "NoMembers", SESSION_S + 3,
        {"membership": {"sessionTimeoutSeconds": SESSION_S, "heartbeatIntervalSeconds": 1}},
    ),
    # A coordinator that closes no connection and answers nothing.
    Case("unreachable", COORDINATOR, STOP, CONT, "Unknown", "CoordinatorUnreachable", 16, {}),
]  # fmt: skip
BY_GROUP = [pytest.param(each, id=each.group) for each in CASES]
[SILENT] = [each for each in CASES if each.group == "silent"]


class Disturbed(NamedTuple):
    """The groups, and when they were disturbed or left alone again."""

    cluster: Cluster
    at: dict[str, datetime]


def consumer(case: Case) -> Consumer:
    # Other tests use the shared coordinator.
    at = NAMESPACE if case.container == COORDINATOR else SHARED
    return Consumer(case.group, f"{NAMESPACE}.{case.group}", coordinator=at)


def send(cluster: Cluster, case: Case, which: signal.Signals) -> None:
    """Send a signal to the process that the case is about."""
    app = COORDINATOR if case.container == COORDINATOR else case.group
    pods = cluster.kubectl(
        "get", "pods", f"--selector=app={app}", f"--namespace={NAMESPACE}", "--output=name"
    )
    [pod] = pods.split()
    container = "coordinator" if app == COORDINATOR else case.container
    cluster.signal_container(which, pod.removeprefix("pod/"), container, namespace=NAMESPACE)


def ready(cluster: Cluster, group: str) -> dict[str, Any]:
    """The condition."""
    found = cluster.get(f"consumergroup/{group}", namespace=NAMESPACE)
    return next(each for each in found["status"]["conditions"] if each["type"] == "Ready")


def wait_reason(cluster: Cluster, group: str, reason: str) -> dict[str, Any]:
    """Wait until Ready has this reason; return the condition."""
    path = '{.status.conditions[?(@.type=="Ready")].reason}'
    condition = f"jsonpath={path}={reason}"
    cluster.wait(f"consumergroup/{group}", condition, namespace=NAMESPACE)
    return ready(cluster, group)


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  the operator's clock is this machine's


def elapsed_s(condition: dict[str, Any], since: datetime) -> float:
    """Seconds until a condition has become what it is, which is written in whole seconds."""
    at = datetime.fromisoformat(condition["lastTransitionTime"])
    return max(0.0, (at - since).total_seconds())


@pytest.fixture(scope="module")
def groups(rota_cluster: Cluster) -> Iterator[Cluster]:
    """Four groups, each with one pod, that are ready."""
    rota_cluster.create_namespace(NAMESPACE)
    rota_cluster.apply(coordinator(images.part("coordinator").name, NAMESPACE), namespace=NAMESPACE)
    consumers = [(case, consumer(case)) for case in CASES]
    rota_cluster.wait(f"deployment/{COORDINATOR}", "condition=Available", namespace=NAMESPACE)
    for at in {each.coordinator for _, each in consumers}:
        topics = {each.topic: PARTITIONS for _, each in consumers if each.coordinator == at}
        make_topics(rota_cluster, topics, at)
    image = images.part("cli").name
    manifests = [each.group(**case.spec) for case, each in consumers]
    manifests += [each.workload(image) for _, each in consumers]
    rota_cluster.apply(manifests, namespace=NAMESPACE)
    for case in CASES:
        wait_reason(rota_cluster, case.group, "PartitionsProgress")
    yield rota_cluster
    rota_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def disturbed(groups: Cluster) -> Disturbed:
    """All groups at once."""
    at = {}
    for case in CASES:
        at[case.group] = now()
        send(groups, case, case.disturb)
    return Disturbed(groups, at)


@pytest.fixture(scope="module")
def mended(disturbed: Disturbed) -> Disturbed:
    """All groups, once each has shown its disturbance."""
    for case in CASES:
        if case is not SILENT:
            wait_reason(disturbed.cluster, case.group, case.reason)
    at = {}
    for case in CASES:
        at[case.group] = now()
        send(disturbed.cluster, case, case.mend)
    return Disturbed(disturbed.cluster, at)


@pytest.mark.parametrize("case", BY_GROUP)
def test_a_group_that_does_not_make_progress_is_not_ready(
    disturbed: Disturbed, case: Case, report: list[str]
) -> None:
    condition = wait_reason(disturbed.cluster, case.group, case.reason)
    assert condition["status"] == case.status
    took_s = elapsed_s(condition, disturbed.at[case.group])
    report.append(
        f"{case.group}: Ready={case.status} ({case.reason}) after {took_s:.0f} s, documented {case.documented_s} s"
    )


def test_the_partitions_of_an_expelled_member_are_counted_without_an_owner(disturbed: Disturbed) -> None:
    wait_reason(disturbed.cluster, "expelled", "NoMembers")
    status = disturbed.cluster.get("consumergroup/expelled", namespace=NAMESPACE)["status"]
    assert (status["members"], status["unownedPartitions"]) == (0, PARTITIONS)


def test_partitions_that_no_member_has_noticed_yet_have_no_owner(disturbed: Disturbed) -> None:
    """The member that would assign them stands still."""
    cluster, grown = disturbed.cluster, consumer(SILENT)
    program = f"import rota\nwith rota.Topics('{grown.servers}') as topics: topics.add_partitions({{'{grown.topic}': 3}})"
    command = ("exec", f"deployment/{grown.name}", f"--container={APP}", "--", "python", "-c", program)
    cluster.kubectl(f"--namespace={NAMESPACE}", *command)
    condition = wait_reason(cluster, grown.name, "PartitionsUnowned")
    assert condition["status"] == "False"
    assert condition["message"] == f"without an owner: {grown.topic}-2"


@pytest.mark.parametrize("case", BY_GROUP)
def test_a_group_is_ready_again_when_the_disturbance_has_ended(
    mended: Disturbed, case: Case, report: list[str]
) -> None:
    condition = wait_reason(mended.cluster, case.group, "PartitionsProgress")
    assert condition["status"] == "True"
    took_s = elapsed_s(condition, mended.at[case.group])
    report.append(f"{case.group}: Ready=True again after {took_s:.0f} s")
