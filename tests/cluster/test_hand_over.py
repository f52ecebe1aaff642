"""
Pods whose applications end in the wrong way: their members leave the group all the same, within the pod's grace period.

Three groups of one pod, side by side: each pod is deleted, and its successor takes the partitions over. A machine that does nothing else
has each member leave long before its session ends; on a busy one a kubelet may end a sidecar before the coordinator has answered.
"""

import json
import signal
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import pytest

from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.cluster.consumers import APP, Consumer, make_topics
from tests.support.cluster.manifests import Manifest, container, deployment
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.processes import Process, steady_ms, wait_for

# The first of them starts the cluster, loads four images and waits for Rota's parts.
pytestmark = [pytest.mark.cluster, pytest.mark.soak("pods"), pytest.mark.timeout(1_800)]

NAMESPACE = "hand-over"
PARTITIONS = 2
DRAIN_S, SESSION_S = 3, 120
GRACE_S = DRAIN_S + 15
POLL_S = 0.3
SIDECAR = "rota-sidecar"
IGNORES, ENDS_FIRST, HANGS = "ignores-sigterm", "ends-first", "hangs-in-prestop"
NAMES = (IGNORES, ENDS_FIRST, HANGS)
# Sends a record each 0.2 s, and works on those of its partitions. From SIGUSR1 on no record that has begun ends.
APPLICATION = """
import os, signal, sys, threading, time
import rota
servers, topic, ignores = sys.argv[1:]
pod, go_on = os.environ["HOSTNAME"], threading.Event()
go_on.set()
signal.signal(signal.SIGUSR1, lambda *_: go_on.clear())
def tell(event, record):
    # In one write: lines of two threads do not mix.
    sys.stdout.write(f"{event} {record}\\n")
def produce():
    number = 0
    with rota.Producer(servers) as producer:
        while True:
            producer.send(topic, f"{pod} {number}".encode()).result()
            tell("sent", f"{pod} {number}")
            number += 1
            time.sleep(0.2)
@rota.handler(topic)
def work(record):
    tell("begun", record.value.decode())
    while not go_on.wait(1):
        pass
    tell("done", record.value.decode())
threading.Thread(target=produce, daemon=True).start()
if ignores:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=rota.run, args=(work,)).start()
else:
    rota.run(work)
"""


def workload(consumer: Consumer) -> Manifest:
    """The Deployment. The group scales it: no pod starts before the adoption."""
    app = container(APP, images.part("cli").name, APPLICATION, securityContext=SECURITY)
    app["command"] += [consumer.servers, consumer.topic, "yes" if consumer.name == IGNORES else ""]
    if consumer.name == HANGS:
        app["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "3600"]}}}
    return deployment(consumer.name, app, replicas=0, terminationGracePeriodSeconds=GRACE_S)


class Member(NamedTuple):
    """The pod that is deleted, and what its application prints."""

    cluster: Cluster
    name: str
    pod: str
    log: Process
    # What its sidecar logs.
    sidecar: Process

    def said(self) -> list[str]:
        """Events that its sidecar has logged."""
        lines = self.sidecar.log.read_text().splitlines(keepends=True)
        # The last line may be written just now.
        return [json.loads(line)["event"] for line in lines if line.startswith("{") and line.endswith("\n")]

    def lines(self, pods: Mapping[str, Any]) -> list[str]:
        """Lines of this application, and of those of the pods that are there now."""
        logs = [
            self.cluster.kubectl("logs", pod, f"--namespace={NAMESPACE}", f"--container={APP}")
            for pod in pods
        ]
        return [*chain.from_iterable(log.splitlines() for log in [self.log.log.read_text(), *logs])]

    def values(self, event: str, pods: Mapping[str, Any]) -> list[str]:
        """Records of these lines, in no particular order."""
        return [line.partition(" ")[2] for line in self.lines(pods) if line.startswith(f"{event} ")]


class Ended(NamedTuple):
    """A pod that was deleted, and its successor; times since `kubectl delete pod`."""

    member: Member
    # Until its successor had all partitions.
    taken_over_s: float
    # Until Kubernetes had no such pod any more.
    gone_s: float
    # Its successor.
    pods: Mapping[str, Any]


def pods_of(cluster: Cluster, name: str) -> Mapping[str, Any]:
    """Pods of a workload by name, those that are being deleted too."""
    found = cluster.get("pods", namespace=NAMESPACE, selector=f"app={name}")["items"]
    return {each["metadata"]["name"]: each for each in found}


def owners_of(cluster: Cluster, name: str) -> Mapping[str, int]:
    """
    Return the number of partitions of each pod, as the status of the group has them.

    To the coordinator a successor that has taken a membership over is the pod that joined.
    """
    status = cluster.get(f"consumergroup/{name}", namespace=NAMESPACE).get("status") or {}
    placements = status.get("placements") or ()
    return {each["podName"]: each["partitions"] for each in placements if each["partitions"]}


@pytest.fixture(scope="module")
def members(rota_cluster: Cluster) -> Iterator[list[Member]]:
    """All groups work."""
    consumers = [Consumer(name, f"{NAMESPACE}.{name}") for name in NAMES]
    rota_cluster.create_namespace(NAMESPACE)
    make_topics(rota_cluster, {each.topic: PARTITIONS for each in consumers})
    spec = {
        "sidecar": {"terminationDrainSeconds": DRAIN_S},
        "membership": {"sessionTimeoutSeconds": SESSION_S},
        "offsets": {"commit": {"intervalSeconds": 1}},
    }
    manifests = chain.from_iterable((workload(each), each.group(**spec)) for each in consumers)
    rota_cluster.apply([*manifests], namespace=NAMESPACE)
    found: list[Member] = []
    for name in NAMES:
        available = "jsonpath={.status.availableReplicas}=1"
        rota_cluster.wait(f"deployment/{name}", available, namespace=NAMESPACE)
        [pod] = pods_of(rota_cluster, name)
        logs = [
            rota_cluster.start_kubectl(
                "logs", "--follow", pod, f"--namespace={NAMESPACE}", f"--container={each}"
            )
            for each in (APP, SIDECAR)
        ]
        found.append(Member(rota_cluster, name, pod, *logs))
    yield found
    for each in found:
        each.log.kill()
        each.sidecar.kill()
    rota_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def ended(rota_cluster: Cluster, members: list[Member]) -> Mapping[str, Ended]:
    """All pods are deleted at the same time, while each application works; by name of the group."""
    [ends_first] = [each for each in members if each.name == ENDS_FIRST]
    rota_cluster.signal_container(signal.SIGUSR1, ends_first.pod, APP, namespace=NAMESPACE)
    wait_for(
        "a record is in flight",
        lambda: len(ends_first.values("begun", {})) > len(ends_first.values("done", {})),
        within_s=WITHIN_S,
    )
    began_ms = steady_ms()
    rota_cluster.kubectl(
        "delete", "pods", *(each.pod for each in members), f"--namespace={NAMESPACE}", "--wait=false"
    )
    # Killed before its kubelet knows that the pod goes, the container would be started again.
    wait_for("the pod drains", lambda: "draining" in ends_first.said(), within_s=WITHIN_S, poll_s=POLL_S)
    rota_cluster.signal_container(signal.SIGKILL, ends_first.pod, APP, namespace=NAMESPACE)
    taken_over: dict[str, float] = {}
    gone: dict[str, float] = {}

    def all_have_ended() -> bool:
        now_s = (steady_ms() - began_ms) / 1000
        for each in members:
            owners = owners_of(rota_cluster, each.name)
            if each.pod not in owners and [*owners.values()] == [PARTITIONS]:
                taken_over.setdefault(each.name, now_s)
            if each.pod not in pods_of(rota_cluster, each.name):
                gone.setdefault(each.name, now_s)
        return len(taken_over) == len(gone) == len(members)

    wait_for("successors have all partitions", all_have_ended, within_s=WITHIN_S, poll_s=POLL_S)
    return {
        each.name: Ended(
            each, taken_over[each.name], gone[each.name], pods_of(rota_cluster, each.name)
        )
        for each in members
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_its_successor_has_the_partitions(
    ended: Mapping[str, Ended], name: str, report: list[str], in_soak: bool
) -> None:
    found = ended[name]
    report.append(
        f"{name}: the successor has all partitions {found.taken_over_s:.1f} s after kubectl delete pod, the pod is gone after "
        f"{found.gone_s:.1f} s; its grace period is {GRACE_S} s"
    )
    assert found.taken_over_s < SESSION_S / 2 or not in_soak
    assert ended[name].member.pod not in ended[name].pods
    said = ended[name].member.said()
    assert "draining" in said
    assert "undrained" not in said or not in_soak, "the drain lasts as long as the pod"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_and_only_what_was_in_flight_when_an_application_ended_comes_again(
    ended: Mapping[str, Ended], name: str
) -> None:
    member, pods = ended[name].member, ended[name].pods
    sent = member.values("sent", pods)
    wait_for(
        "what was sent before is done",
        lambda: set(sent) <= set(member.values("done", pods)),
        within_s=WITHIN_S,
        poll_s=POLL_S,
    )
    begun = member.values("begun", pods)
    again = {value for value in begun if begun.count(value) > 1}
    in_flight = {
        value
        for value in member.values("begun", {})
        if value not in member.values("done", {})
    }  # fmt: skip
    assert again == in_flight
    assert bool(again) == (name == ENDS_FIRST)


def test_the_group_says_that_the_containers_own_prestop_does_not_wait(members: list[Member]) -> None:
    found = members[0].cluster.get(f"consumergroup/{HANGS}", namespace=NAMESPACE)["status"]["conditions"]
    [ready] = [each for each in found if each["type"] == "Ready"]
    assert "PreStopKept" in ready["message"]
