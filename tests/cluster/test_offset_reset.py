"""Offsets are reset while the pods run: the dry run's plan is executed, undone, and acts once; no pod restarts."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cluster.kubectl_rota import KubectlRota
from tests.support.cluster import Cluster, images
from tests.support.cluster.consumers import Consumer, make_topics
from tests.support.processes import wait_for

# The first of them starts the cluster, loads four images and waits for Rota's parts.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

NAMESPACE = "resets"
PARTITIONS = 4
WITHIN_S = 120
GROUP = Consumer("replayed", f"{NAMESPACE}.replayed", replicas=2)
PLAN = "replayed-reset-replay-1"


class Replayed(NamedTuple):
    """A group of two pods that reads."""

    cluster: Cluster

    def get(self, resource: str) -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(resource, namespace=NAMESPACE)

    def request(self, request_id: str, *, dry_run: bool, **to: object) -> None:
        """Apply a reset by its requestId."""
        reset = {"requestId": request_id, "dryRun": dry_run, "to": to}
        # Replaced as a whole: a merge would keep the former target beside the new one.
        patch = json.dumps([{"op": "add", "path": "/spec/offsets/reset", "value": reset}])
        self.cluster.kubectl(
            "patch",
            "consumergroup",
            GROUP.name,
            f"--namespace={NAMESPACE}",
            "--type=json",
            f"--patch={patch}",
        )

    def record(self) -> Any:  # noqa: ANN401  as it is stored
        return self.get(f"consumergroup/{GROUP.name}")["status"].get("offsetReset", {})

    def wait_phase(self, request_id: str, phase: str) -> Any:  # noqa: ANN401  as it is stored
        """Wait until a reset has this phase."""

        def has_come() -> bool:
            record = self.record()
            return bool((record.get("requestId"), record.get("phase")) == (request_id, phase))

        wait_for(f"reset {request_id} is {phase}", has_come, within_s=WITHIN_S, poll_s=0.2)
        return self.record()

    def plan(self, name: str) -> dict[int, tuple[int, int]]:
        """Return old and new offset by partition."""
        table = self.get(f"configmap/{name}")["data"]["plan.csv"].splitlines()[1:]
        rows = [line.split(",") for line in table]
        return {int(row[1]): (int(row[2]), int(row[3])) for row in rows}

    def restarts(self) -> dict[str, int]:
        """Restarts of all containers by the pods' uids."""
        pods = self.get("pods")["items"]
        return {
            each["metadata"]["uid"]: sum(
                state["restartCount"]
                for state in (*each["status"]["initContainerStatuses"], *each["status"]["containerStatuses"])
            )
            for each in pods
        }


@pytest.fixture(scope="module")
def replayed(rota_cluster: Cluster) -> Iterator[Replayed]:
    """The group is ready and has read something of each partition."""
    cluster = rota_cluster
    cluster.kubectl("create", "namespace", NAMESPACE)
    make_topics(cluster, {GROUP.topic: PARTITIONS})
    spec = {"offsets": {"commit": {"intervalSeconds": 1}}}
    cluster.apply([GROUP.group(**spec), GROUP.workload(images.part("cli").name)], namespace=NAMESPACE)
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    cluster.wait(
        f"consumergroup/{GROUP.name}", f"jsonpath={path}=True", namespace=NAMESPACE, within_s=WITHIN_S
    )
    yield Replayed(cluster)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def kubectl_rota(
    replayed: Replayed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> KubectlRota:
    return KubectlRota(replayed.cluster, NAMESPACE, monkeypatch, capsys)


def test_a_dry_run_its_execution_and_the_undo_while_the_pods_run(
    replayed: Replayed, kubectl_rota: KubectlRota
) -> None:
    pods = replayed.restarts()
    replayed.request("replay-1", dry_run=True, earliest=True)
    planned = replayed.wait_phase("replay-1", "Planned")
    plan = replayed.plan(planned["planConfigMap"])
    assert planned["planConfigMap"] == PLAN
    assert [new for _, new in plan.values()] == [0] * PARTITIONS
    assert planned["repeatedRecords"] == sum(old for old, _ in plan.values())

    replayed.request("replay-1", dry_run=False, earliest=True)
    done = replayed.wait_phase("replay-1", "Completed")
    undo = replayed.plan(done["undoConfigMap"])
    # Read on between the dry run and the suspension.
    assert all(undo[number][1] >= old for number, (old, _) in plan.items())
    assert done["planHash"] == planned["planHash"]

    command = ("groups", "reset", GROUP.name, "--from-config-map", done["undoConfigMap"], "-o", "json")
    reviewed = kubectl_rota(*command, "--dry-run").data
    assert [each["new"] for each in reviewed["partitions"]] == [undo[number][1] for number in sorted(undo)]
    reset = ("groups", "reset", GROUP.name, "--request-id", reviewed["request_id"], "--execute")
    back = kubectl_rota(*reset, "-o", "json")
    assert back.data["partitions"] == reviewed["partitions"]
    assert "Committing: " in back.stderr
    record = replayed.record()
    assert (record["requestId"], record["phase"]) == (reviewed["request_id"], "Completed")
    assert kubectl_rota(*reset).error.endswith("was executed before: make a new dry run")
    replayed.request("replay-1", dry_run=False, earliest=True)
    reason = '{.status.conditions[?(@.type=="OffsetReset")].reason}=AlreadyExecuted'
    replayed.cluster.wait(
        f"consumergroup/{GROUP.name}", f"jsonpath={reason}", namespace=NAMESPACE, within_s=WITHIN_S
    )
    assert replayed.record()["requestId"] == reviewed["request_id"]
    assert replayed.restarts() == pods
    ready = '{.status.conditions[?(@.type=="Ready")].status}=True'
    replayed.cluster.wait(
        f"consumergroup/{GROUP.name}", f"jsonpath={ready}", namespace=NAMESPACE, within_s=WITHIN_S
    )
