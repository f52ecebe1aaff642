"""
Pods follow the load of their group: four times the load brings more, and without load they drain before they go: no record is repeated.

The operator runs in the cluster; coordinator and broker are reachable from pods and from here.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster.disruptions.lives import Lives
from tests.cluster.disruptions.story import Setting
from tests.cluster.disruptions.workloads import (
    APPLICATION_ONE_BY_ONE,
    event_folders,
    group,
    serving_kafka,
    serving_rota,
    workload,
)
from tests.cluster.replaced_certificates import FLEET_PORT
from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.load import Load
from tests.support.processes import wait_for

SUITE = "autoscaling-pods"
pytestmark = [pytest.mark.cluster, pytest.mark.paired, pytest.mark.soak(SUITE), pytest.mark.timeout(1_800)]

POLL_S = 0.5
PARTITIONS = 4
# Of one record, so that a pod processes at most 20 records per second.
WORK_MS = 50
CALM, BUSY = 10.0, 40.0
AUTOSCALING = {
    "enabled": True, "maxReplicaCount": 4, "pollingInterval": 1, "minChangeIntervalSeconds": 20, "catchUpSeconds": 30,
    "targetUtilization": 1.0, "partitionAlignment": "off",
}  # fmt: skip


class Scaled(NamedTuple):
    """The workload, its group, and what its applications did."""

    cluster: Cluster
    setting: Setting
    lives: Lives

    def send(self, number: int) -> None:
        """Produce a record."""
        self.setting.engine.produce(self.setting.topic, {number % PARTITIONS: [str(number)]})

    @property
    def status(self) -> dict[str, Any]:
        found = self.cluster.get(f"cg/{self.setting.name}", namespace=self.setting.namespace)
        return dict(found.get("status") or {})

    @property
    def generation(self) -> int:
        return int(self.status["generation"])

    @property
    def active(self) -> dict[str, Any]:
        """The condition ScalingActive."""
        return next(each for each in self.status["conditions"] if each["type"] == "ScalingActive")

    @property
    def replicas(self) -> int:
        found = self.cluster.get(
            f"{self.setting.kind}/{self.setting.name}".lower(), namespace=self.setting.namespace
        )
        return int(found["spec"]["replicas"])

    @property
    def decisions(self) -> list[dict[str, Any]]:
        """The decisions in the status, newest first."""
        return list((self.status.get("scaling") or {}).get("decisions") or ())

    @property
    def done(self) -> Counter[tuple[int, int]]:
        """Number of times that each record was done."""
        return Counter(
            (event["partition"], event["first"])
            for life in self.lives.read()
            for event in life.events
            if event["event"] == "done"
        )

    def until(self, what: str, holds: Any) -> None:  # noqa: ANN401  whatever can be asked
        wait_for(what, lambda: bool(holds()), within_s=WITHIN_S, poll_s=POLL_S)

    def events(self, reason: str) -> list[str]:
        """Messages of the ConsumerGroup's Events with this reason."""
        found = self.cluster.get("events", namespace=self.setting.namespace)["items"]
        return [each["message"] for each in found if each["reason"] == reason]


@contextmanager
def running(cluster: Cluster, setting: Setting) -> Iterator[Scaled]:
    """The group with one pod, which is a member."""
    setting.engine.make_topic(setting.topic, PARTITIONS)
    lives = Lives(event_folders(cluster, setting.namespace))
    cluster.create_namespace(setting.namespace)
    scaled = group(setting)
    scaled["spec"] |= {
        "autoscaling": AUTOSCALING,
        "delivery": {"ordering": "partition", "concurrency": 1},
    }
    consumers = workload(
        setting, images.part("cli").name, APPLICATION_ONE_BY_ONE, setting.topic, str(WORK_MS), "partition"
    )
    cluster.apply([scaled, consumers], namespace=setting.namespace)
    found = Scaled(cluster, setting, lives)
    found.until("the group has a member", lambda: found.status.get("members") == 1)
    yield found
    cluster.kubectl("delete", "namespace", setting.namespace, "--wait=false")


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("Deployment", "rota"),
        pytest.param("StatefulSet", "kafka", marks=pytest.mark.soak(SUITE, only=True)),
    ],
)
def test_pods_follow_the_load_and_are_drained_before_they_go(
    rota_cluster: Cluster, tmp_path: Path, kind: str, engine: str, report: list[str]
) -> None:
    began = time.monotonic()  # noqa: TID251  a measurement
    with ExitStack() as stack:
        serving = serving_kafka(rota_cluster) if engine == "kafka" else serving_rota(rota_cluster, tmp_path)
        backend, servers = stack.enter_context(serving)
        setting = Setting(f"scaled-{engine}", kind, backend, servers, replicas=1, work_ms=WORK_MS)
        scaled = stack.enter_context(running(rota_cluster, setting))
        load = stack.enter_context(Load(scaled.send, CALM))
        scaled.until("one pod keeps up", lambda: len(scaled.done) > 2 * CALM)
        assert scaled.replicas == 1
        generations = [scaled.generation]
        load.per_second = BUSY
        scaled.until("the pods follow", lambda: scaled.replicas > 1)
        scaled.until("they have joined", lambda: scaled.status.get("members") == scaled.replicas)
        with rota_cluster.pods_cut_off(FLEET_PORT, how="reject with tcp reset"):
            scaled.until("the load is unknown", lambda: scaled.active["status"] == "Unknown")
        scaled.until("the load is known again", lambda: scaled.active["status"] == "True")
        generations.append(scaled.generation)
        load.stop()
        scaled.until("the pods go", lambda: scaled.replicas == 1)
        scaled.until("everything is done", lambda: len(scaled.done) == load.sent)
        scaled.until("one member is left", lambda: scaled.status.get("members") == 1)
        generations.append(scaled.generation)
        assert [record for record, times in scaled.done.items() if times > 1] == []

        changes = [each for each in reversed(scaled.decisions) if each["recommendation"] != each["replicas"]]
        assert changes[0]["replicas"] == 1
        assert changes[-1]["reason"] == "LoadBelowTarget"
        growth = [each["recommendation"] for each in changes if each["recommendation"] > each["replicas"]]
        assert len(growth) <= 2
        # None while no report came.
        assert {each["inputs"]["knowledge"] for each in changes} == {"Good"}
        # The group's own number was applied first.
        said = [each for each in scaled.events("Scaled") if " from " in each]
        assert len(said) == len(changes)
        assert scaled.events("ScaleFailed") == []
        assert (scaled.active["status"], scaled.active["reason"]) == ("True", "MetricsKnown")
    report.append(
        f"autoscaling of a {kind} on {engine}: 1 to {max(growth)} replicas and back in {len(changes)} changes, generations {generations}, "
        f"{load.sent} records, 0 repeated, {time.monotonic() - began:.0f} s"  # noqa: TID251
    )
