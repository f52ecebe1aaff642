"""
The plan of a Kafka cluster, made before anything starts, and the properties that each node gets from it.

Every node must know the controllers' ports of all others, so ports are drawn for all of them at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kafka.security import Security
from tests.support.network import HERE, NetworkNamespace
from tests.support.ports import free_port

# What is the same in every cluster. Times are short, so that tests of failures do not wait for defaults made
# for data centres; numbers are small, because a test machine has few cores.
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKERS",
    "auto.create.topics.enable": "false",
    # Records of tests have times of long ago, and the broker deletes what is too old when it has run for half a minute.
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # How often consumers of KIP-848 are told what changed.
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    # Longer than any test: a broker that stands still for a while on a busy machine keeps its partitions.
    "broker.session.timeout.ms": "600000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
# For brokers that a test kills: others take their partitions, and they may come back, once their registration has expired.
MORTAL = {"broker.session.timeout.ms": "2000"}


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one node: for pods on the address of its namespace, for all others on 127.0.0.1."""

    clients: int = field(default_factory=free_port)
    brokers: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)
    pods: int = field(default_factory=free_port)


@dataclass(frozen=True, slots=True)
class Layout:
    """One cluster: node n has `ports[n - 1]`."""

    ports: tuple[Ports, ...]
    security: Security
    namespace: NetworkNamespace
    folder: Path
    logs: Path
    # Properties of this cluster alone; they come after those of every cluster.
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def reaches_pods(self) -> bool:
        return self.namespace != HERE

    def address(self, number: int) -> str:
        """Address of the node for clients on this machine."""
        return f"{self.security.host}:{self.ports[number - 1].clients}"

    def address_of_brokers(self, number: int) -> str:
        """Address of the node for other brokers, without a login."""
        return f"127.0.0.1:{self.ports[number - 1].brokers}"

    def address_for_pods(self, number: int) -> str:
        """Address of the node for pods."""
        return f"{self.namespace.address}:{self.ports[number - 1].pods}"

    def data(self, number: int) -> Path:
        """Data folder of the node."""
        return self.folder / f"node-{number}"

    def properties(self, number: int) -> str:
        """The node's `server.properties`."""
        every = {
            **SETTINGS,
            **self.settings,
            **self._replication(),
            **self._listeners(number),
            "node.id": str(number),
            "log.dirs": str(self.data(number)),
        }
        return "".join(f"{name}={value}\n" for name, value in every.items())

    def _replication(self) -> dict[str, str]:
        copies = min(len(self.ports), 3)
        needed = min(copies, 2)
        return {
            "default.replication.factor": str(copies),
            "min.insync.replicas": str(needed),
            "offsets.topic.replication.factor": str(copies),
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str(needed),
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": str(needed),
        }

    def _listeners(self, number: int) -> dict[str, str]:
        ports = self.ports[number - 1]
        internal = {"CONTROLLER": f"127.0.0.1:{ports.controller}", "BROKERS": self.address_of_brokers(number)}
        public = {"CLIENTS": self.address(number)}
        if self.reaches_pods:
            public["PODS"] = self.address_for_pods(number)
        protocols = {**dict.fromkeys(internal, "PLAINTEXT"), **dict.fromkeys(public, self.security.protocol)}
        voters = (f"{node}@127.0.0.1:{other.controller}" for node, other in enumerate(self.ports, start=1))
        return {
            "listeners": ",".join(f"{name}://{address}" for name, address in {**internal, **public}.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in protocols.items()),
            "controller.quorum.voters": ",".join(voters),
            **self.security.settings(list(public)),
        }
