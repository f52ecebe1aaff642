"""
KEDA beside Rota in one cluster: it scales plain consumers by the lag of their group, and a ConsumerGroup by its scale subresource; where it
scales the workload of a ConsumerGroup, Rota names it and scales nothing.

KEDA is the real one: its operator, its metrics adapter, and the HorizontalPodAutoscaler of the controller-manager. One ConsumerGroup runs
through the module's last two tests, which stand in the order of its story.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.cluster.disruptions.lives import Lives
from tests.cluster.disruptions.plain import ONE_BY_ONE
from tests.cluster.disruptions.story import Setting
from tests.cluster.disruptions.workloads import (
    APPLICATION_ONE_BY_ONE,
    event_folders,
    group,
    plain_workload,
    serving_kafka,
    workload,
)
from tests.kafka.delivery_engines import KafkaEngine
from tests.support import keda as keda_support
from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.cluster.manifests import Manifest
from tests.support.keda.manifests import kafka_trigger, scaled_object
from tests.support.keda.running import SCALED_OBJECTS, Keda
from tests.support.load import Load
from tests.support.processes import wait_for

SUITE = "keda"
# The first of them starts the cluster, and builds KEDA where that was never done.
pytestmark = [pytest.mark.cluster, pytest.mark.soak(SUITE, only=True), pytest.mark.timeout(7_200)]

POLL_S = 0.5
PARTITIONS, REPLICAS_MAX = 4, 4
# Of one record, so that a pod processes at most 10 records per second.
WORK_MS = 100
BUSY = 30.0
SCALED = "orders-by-lag"
# The default waits for 5 minutes.
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
ON_GROUP = {"apiVersion": "rota.dev/v1alpha1", "kind": "ConsumerGroup"}
AUTOSCALING = {"enabled": True, "maxReplicaCount": REPLICAS_MAX, "pollingInterval": 1}


class Workload(NamedTuple):
    """A Deployment of consumers, and what they did."""

    cluster: Cluster
    setting: Setting
    lives: Lives

    def send(self, number: int) -> None:
        """Produce a record."""
        self.setting.engine.produce(self.setting.topic, {number % PARTITIONS: [str(number)]})

    def get(self, resource: str) -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(f"{resource}/{self.setting.name}", namespace=self.setting.namespace)

    def replicas(self, resource: str = "deployment") -> int:
        """Return the desired number of replicas."""
        return int(self.get(resource)["spec"]["replicas"])

    def active(self) -> dict[str, Any]:
        """Return the condition ScalingActive of the ConsumerGroup."""
        conditions = self.get("consumergroup")["status"]["conditions"]
        return next(each for each in conditions if each["type"] == "ScalingActive")

    def scale(self, **target: str) -> None:
        """Let KEDA scale a resource, by default the Deployment, by the lag of the group."""
        setting = self.setting
        trigger = kafka_trigger(setting.servers, setting.group_id, setting.topic)
        target = {"name": setting.name, **target}
        made = scaled_object(SCALED, target, trigger, (1, REPLICAS_MAX), AT_ONCE)
        self.cluster.apply(made, namespace=setting.namespace)
        self.cluster.wait(f"{SCALED_OBJECTS}/{SCALED}", "condition=Ready", namespace=setting.namespace)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        wait_for(f"{self.setting.namespace}: {what}", holds, within_s=WITHIN_S, poll_s=POLL_S)

    def until_done(self, records: int) -> None:
        """Wait until each record was processed."""
        self.until(f"{records} records are processed", lambda: len(self.done()) == records)

    def done(self) -> Counter[tuple[int, int]]:
        """Return how often each record was processed."""
        events = (event for life in self.lives.read() for event in life.events)
        return Counter((each["partition"], each["first"]) for each in events if each["event"] == "done")


@contextmanager
def deployed(cluster: Cluster, setting: Setting, *manifests: Manifest) -> Iterator[Workload]:
    """Apply the manifests in a namespace of their own, with a topic."""
    setting.engine.make_topic(setting.topic, PARTITIONS)
    lives = Lives(event_folders(cluster, setting.namespace))
    cluster.create_namespace(setting.namespace)
    cluster.apply(manifests, namespace=setting.namespace)
    yield Workload(cluster, setting, lives)
    cluster.kubectl("delete", "namespace", setting.namespace, "--wait=false")


@pytest.fixture(scope="module")
def keda(rota_cluster: Cluster) -> Iterator[Keda]:
    """KEDA runs."""
    with keda_support.running(rota_cluster) as found:
        yield found


@pytest.fixture(scope="module")
def broker(rota_cluster: Cluster) -> Iterator[tuple[KafkaEngine, str]]:
    """A broker that pods and KEDA reach, and its address for them."""
    with serving_kafka(rota_cluster) as found:
        yield found


@pytest.fixture(scope="module")
def orders(rota_cluster: Cluster, broker: tuple[KafkaEngine, str]) -> Iterator[Workload]:
    """A ConsumerGroup with Rota's autoscaler enabled, and one member."""
    setting = Setting("keda-group", "Deployment", *broker, replicas=1, work_ms=WORK_MS)
    scaled = group(setting)
    scaled["spec"] |= {
        "autoscaling": AUTOSCALING,
        "delivery": {"ordering": setting.ordering, "concurrency": 1},
    }
    arguments = (setting.topic, str(WORK_MS), setting.ordering)
    consumers = workload(setting, images.part("cli").name, APPLICATION_ONE_BY_ONE, *arguments)
    with deployed(rota_cluster, setting, scaled, consumers) as found:
        found.until("a member", lambda: found.get("consumergroup").get("status", {}).get("members") == 1)
        yield found


def test_plain_consumers_follow_the_lag_of_their_group(
    rota_cluster: Cluster, keda: Keda, broker: tuple[KafkaEngine, str], report: list[str]
) -> None:
    setting = Setting(
        "keda-plain",
        "Deployment",
        *broker,
        replicas=1,
        work_ms=WORK_MS,
        ordering=ONE_BY_ONE,
        is_adopted=False,
    )
    consumers = plain_workload(setting, images.part("cli").name, {"auto.commit.interval.ms": 1_000})
    with deployed(rota_cluster, setting, consumers) as plain:
        plain.until("an owner", lambda: any(life.partitions for life in plain.lives.running()))
        plain.scale()
        with Load(plain.send, BUSY) as load:
            plain.until("more replicas", lambda: plain.replicas() > 1)
            most = plain.replicas()
        plain.until_done(load.sent)
        plain.until("one replica", lambda: plain.replicas() == 1)
        repeated = sum(times - 1 for times in plain.done().values())
    keda.check()
    report.append(
        f"KEDA and plain consumers: from 1 to {most} replicas and back, {load.sent} records, {repeated} of them repeated"
    )


def test_a_scaled_object_on_the_workload_of_a_group_is_named(keda: Keda, orders: Workload) -> None:
    orders.scale()
    orders.until("the autoscaler is named", lambda: orders.active()["reason"] == "ForeignAutoscaler")
    active = orders.active()
    assert active["status"] == "False"
    assert f"of ScaledObject {SCALED} scales Deployment {orders.setting.name}" in active["message"]
    # Its finalizer removes the HorizontalPodAutoscaler.
    orders.cluster.kubectl("delete", SCALED_OBJECTS, SCALED, f"--namespace={orders.setting.namespace}")
    orders.until("Rota scales again", lambda: orders.active()["reason"] == "MetricsKnown")
    keda.check()


def test_a_scaled_object_on_a_group_scales_it_by_its_scale_subresource(
    keda: Keda, orders: Workload, report: list[str]
) -> None:
    disabled = json.dumps({"spec": {"autoscaling": {"enabled": False}}})
    namespace = f"--namespace={orders.setting.namespace}"
    orders.cluster.kubectl(
        "patch", "consumergroup", orders.setting.name, namespace, "--type=merge", f"--patch={disabled}"
    )
    orders.scale(**ON_GROUP)
    with Load(orders.send, BUSY) as load:
        orders.until("more replicas", lambda: orders.replicas("consumergroup") > 1)
        orders.until("more members", lambda: orders.get("consumergroup")["status"]["members"] > 1)
        most = orders.replicas()
        active = orders.active()
    assert most > 1, "the group passes its number on to the workload"
    assert (active["status"], active["reason"]) == ("False", "AutoscalingDisabled")
    orders.until_done(load.sent)
    orders.until("one replica", lambda: orders.replicas("consumergroup") == orders.replicas() == 1)
    keda.check()
    report.append(f"KEDA and a ConsumerGroup: from 1 to {most} replicas and back, {load.sent} records")
