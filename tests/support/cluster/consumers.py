"""
Applications that produce records and consume them, each beside a ConsumerGroup: for tests of groups whose records never end.

Applied by tests; the topics are created before, so that members find them at their start. A handler that has got SIGUSR1 does not
return before SIGUSR2.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest, container, deployment
from tests.support.cluster.rota_manifests import COORDINATOR, NAMESPACE, SECURITY

APP = "app"
# As long as the sidecar's drain needs at most: Rota need not raise it.
GRACE_S = 60
APPLICATION = """
import signal, sys, threading
import rota
servers, topic = sys.argv[1:]
go_on, closing = threading.Event(), threading.Event()
go_on.set()
signal.signal(signal.SIGUSR1, lambda *_: go_on.clear())
signal.signal(signal.SIGUSR2, lambda *_: go_on.set())
def produce():
    with rota.Producer(servers) as producer:
        while not closing.wait(0.4):
            producer.send(topic, b"record").result()
@rota.handler(topic)
def work(record):
    while not go_on.wait(1):
        pass
threading.Thread(target=produce).start()
try:
    rota.run(work)
finally:
    closing.set()
    go_on.set()
"""
# Run in a coordinator's pod: its image has no SDK.
MAKE_TOPICS = """
import sys
import grpc
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
topics = [each.split("=") for each in sys.argv[1:]]
asked = [
    log_pb2.CreateTopicsRequest.Topic(name=name, partitions=int(count), retention_ms=-1, retention_bytes=-1)
    for name, count in topics
]
with grpc.insecure_channel("127.0.0.1:7070") as channel:
    made = LogStub(channel).CreateTopics(log_pb2.CreateTopicsRequest(topics=asked), timeout=60)
assert not any(each.error_code for each in made.topics), made
"""


class Consumer(NamedTuple):
    """A workload and its ConsumerGroup, which have one name."""

    name: str
    topic: str
    replicas: int = 1
    # Namespace of the group's coordinator.
    coordinator: str = NAMESPACE

    @property
    def servers(self) -> str:
        """`bootstrapServers` of the group."""
        return f"rota://{COORDINATOR}.{self.coordinator}:7070"

    def workload(self, image: str) -> Manifest:
        """The Deployment. The group scales it: no pod starts before the adoption."""
        app = container(APP, image, APPLICATION, securityContext=SECURITY)
        app["command"] += [self.servers, self.topic]
        return deployment(self.name, app, replicas=0, terminationGracePeriodSeconds=GRACE_S)

    def group(self, **spec: object) -> Manifest:
        """The ConsumerGroup; `spec` adds to its spec."""
        return {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": self.name},
            "spec": {
                "bootstrapServers": [self.servers],
                "topics": [self.topic],
                "replicas": self.replicas,
                "scaleTargetRef": {"name": self.name},
                **spec,
            },
        }


def make_topics(cluster: Cluster, partitions: Mapping[str, int], coordinator: str = NAMESPACE) -> None:
    """Create topics, by name, at the coordinator of a namespace, which is ready."""
    topics = [f"{name}={count}" for name, count in partitions.items()]
    deployed = f"deployment/{COORDINATOR}"
    cluster.kubectl(
        "exec", deployed, f"--namespace={coordinator}", "--", "python", "-c", MAKE_TOPICS, *topics
    )
