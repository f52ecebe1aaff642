"""The disrupted workloads: engines for their records, manifests of pods that write their events to the disk of their node, and of groups."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.disruptions import app, plain
from tests.cluster.disruptions.lives import Lives
from tests.cluster.disruptions.story import PARTITIONS, Setting, Story
from tests.kafka.delivery_engines import KafkaEngine
from tests.sidecar.delivery.rounds.engine import RotaEngine
from tests.support.cluster import Cluster, images
from tests.support.cluster.addresses import NODES
from tests.support.cluster.manifests import Manifest, container, deployment
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.coordinator import serving
from tests.support.kafka import running as kafka_running

COORDINATOR_FLAGS = ("--group-initial-rebalance-delay-ms=0", "--insecure")
APPLICATION = Path(app.__file__).read_text()
# With a limit on what a pod processes: one record at a time.
APPLICATION_ONE_BY_ONE = APPLICATION.replace("ordering=ordering)", "ordering=ordering, concurrency=1)")
PLAIN = Path(plain.__file__).read_text()
# On the disks of the nodes, below /var.
EVENTS = "disrupted"
# What `kubectl drain` evicts: other tests' pods stay.
LABEL = "disrupted"
# As long as the sidecar's drain needs at most: Rota need not raise it.
GRACE_S = 60
# No member is lost, however busy the machine is.
SESSION_S, HEARTBEAT_S, COMMIT_S = 20, 3, 1


def event_folders(cluster: Cluster, namespace: str) -> dict[str, Path]:
    """Create the folders, by node, in which the pods of a namespace write their events."""
    folders = {node.name: cluster.disk(node.name) / EVENTS / namespace for node in NODES}
    for folder in folders.values():
        folder.mkdir(parents=True)
        # Pods are not root.
        folder.chmod(0o777)
    return folders


def workload(setting: Setting, image: str, program: str = APPLICATION, *arguments: str) -> Manifest:
    """A Deployment or StatefulSet. The group scales it: no pod starts before the adoption."""
    consumes = container(
        "app", image, program,
        securityContext=SECURITY,
        volumeMounts=[{"name": "events", "mountPath": str(app.FOLDER)}],
    )  # fmt: skip
    consumes["command"] += arguments or (setting.topic, str(setting.work_ms), setting.ordering)
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": setting.name}},
    }
    events = {"path": f"/var/{EVENTS}/{setting.namespace}", "type": "Directory"}
    made = deployment(
        setting.name, consumes,
        replicas=0,
        terminationGracePeriodSeconds=GRACE_S,
        topologySpreadConstraints=[spread],
        volumes=[{"name": "events", "hostPath": events}],
    )  # fmt: skip
    made["spec"]["template"]["metadata"]["labels"][LABEL] = setting.namespace
    if setting.kind == "StatefulSet":
        made["kind"] = setting.kind
        made["spec"] |= {"serviceName": setting.name, "podManagementPolicy": "Parallel"}
    return made


def plain_workload(setting: Setting, image: str, config: Mapping[str, object]) -> Manifest:
    """A workload of plain consumers; `config` adds to the properties of librdkafka. Its pods start at once, for no group scales it."""
    properties = {
        "bootstrap.servers": setting.servers,
        "group.id": setting.group_id,
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        **config,
    }
    arguments = (setting.topic, str(setting.work_ms), setting.ordering, json.dumps(properties))
    made = workload(setting, image, PLAIN, *arguments)
    made["spec"]["replicas"] = setting.replicas
    return made


def group(setting: Setting) -> Manifest:
    """The ConsumerGroup, with a budget for evictions."""
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": setting.name},
        "spec": {
            "bootstrapServers": [setting.servers],
            "topics": [setting.topic],
            "replicas": setting.replicas,
            "scaleTargetRef": {"kind": setting.kind, "name": setting.name},
            "membership": {
                "sessionTimeoutSeconds": SESSION_S,
                "heartbeatIntervalSeconds": HEARTBEAT_S,
                "static": setting.is_static,
            },
            "delivery": {"ordering": setting.ordering},
            "offsets": {
                "commit": {"mode": "sync"} if setting.commits_at_once else {"intervalSeconds": COMMIT_S}
            },
            "podDisruptionBudget": {"maxUnavailable": 1},
        },
    }


class Engines(NamedTuple):
    """Both engines, reachable from pods and from here, and their addresses for pods."""

    rota: RotaEngine
    rota_servers: str
    kafka: KafkaEngine
    kafka_servers: str


@contextmanager
def serving_rota(cluster: Cluster, folder: Path) -> Iterator[tuple[RotaEngine, str]]:
    """A coordinator with its log, in the cluster's network and on none of its nodes; and its address for pods."""
    with serving(folder, COORDINATOR_FLAGS, network=cluster) as coordinator:
        engine = RotaEngine(coordinator)
        yield engine, f"rota://{coordinator.address_inside}"
        engine.close()


@contextmanager
def serving_kafka(cluster: Cluster) -> Iterator[tuple[KafkaEngine, str]]:
    """A broker, as the coordinator above."""
    with kafka_running(network=cluster) as kafka:
        engine = KafkaEngine(kafka)
        yield engine, kafka.bootstrap_for_pods
        engine.close()


@contextmanager
def serving_both(cluster: Cluster, folder: Path) -> Iterator[Engines]:
    """Both of them."""
    with serving_rota(cluster, folder) as rota, serving_kafka(cluster) as kafka:
        yield Engines(*rota, *kafka)


def open_story(cluster: Cluster, setting: Setting, seed: int, *manifests: Manifest) -> Story:
    """Create topic and namespace, and apply workload and group, or other manifests."""
    setting.engine.make_topic(setting.topic, PARTITIONS)
    lives = Lives(event_folders(cluster, setting.namespace))
    cluster.create_namespace(setting.namespace)
    applied = manifests or (group(setting), workload(setting, images.part("cli").name))
    cluster.apply(applied, namespace=setting.namespace)
    return Story(cluster, setting, lives, seed)


def close_story(story: Story) -> None:
    """Delete the namespace."""
    story.cluster.kubectl("delete", "namespace", story.setting.namespace, "--wait=false")
