"""
A Kafka cluster for one test, for one session of tests, or for a person.

`running` is the one way to have one; the fixtures and the command are thin layers over it. `prepare` is what `make test`
calls before the tests.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support import cache
from tests.support.java import java
from tests.support.kafka.broker import Broker
from tests.support.kafka.jars import fetched
from tests.support.kafka.layout import Layout, Ports
from tests.support.kafka.security import Kerberos, Security, SecurityName, make_security
from tests.support.network import HERE, LOOPBACK, Network
from tests.support.processes import ProcessFailed, wait_for
from tests.support.workdir import logs, workdir

TIMEOUT_S = 60
CLASSES = "classes.jsa"
CLASSES_S = 120


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running cluster of brokers."""

    brokers: tuple[Broker, ...]
    security: Security

    @property
    def bootstrap(self) -> str:
        """The addresses for clients on this machine."""
        return ",".join(broker.address for broker in self.brokers)

    @property
    def bootstrap_for_pods(self) -> str:
        """The addresses for pods of the cluster whose network it runs in."""
        return ",".join(broker.address_for_pods for broker in self.brokers)

    def broker(self, number: int) -> Broker:
        """One node, counted from 1, as Kafka's node ids are here."""
        return self.brokers[number - 1]

    def client_config(self) -> dict[str, str | int | float | bool]:
        """Connection settings of a librdkafka client."""
        addresses = self.bootstrap
        if isinstance(self.security, Kerberos):
            addresses = ",".join(broker.address_of_brokers for broker in self.brokers)
        return {"bootstrap.servers": addresses, **self.security.client_config()}

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        """
        Create a topic with as many copies as the cluster keeps of everything: three, if it has that many nodes.

        Returns once a broker describes it: brokers learn of a topic after its creation was acknowledged.
        """
        admin = AdminClient(self.client_config())
        admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(TIMEOUT_S)
        wait_for(
            f"a broker describes {name}",
            lambda: len(admin.list_topics(name, TIMEOUT_S).topics[name].partitions) == partitions,
            within_s=TIMEOUT_S,
        )

    def grow_topic(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, up to this number."""
        admin = AdminClient(self.client_config())
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)


def prepare() -> Path:
    """The archive of the classes that a broker loads, parsed and checked: with it a start is half the work."""
    jars = fetched()
    # A Java takes only an archive of its own, of these very files.
    key = cache.key_of(java().home / "release", f"{jars} {jars.stat().st_mtime_ns}")
    return cache.build_once("kafka-classes", key, _record_classes) / CLASSES


def _record_classes(folder: Path) -> None:
    archive = folder / CLASSES
    with running(java_option=f"-XX:ArchiveClassesAtExit={archive}") as kafka:
        kafka.create_topic("any")
        # The broker ends before its clients do, and they would complain.
        client = {**kafka.client_config(), "log_level": 0}
        producer = Producer(client)
        producer.produce("any", value=b"any")
        producer.flush(TIMEOUT_S)
        consumer = Consumer({**client, "group.id": "any", "auto.offset.reset": "earliest"})
        consumer.subscribe(["any"])
        consumer.poll(TIMEOUT_S)
        consumer.close()
        broker = kafka.broker(1)
        broker.stop(within_s=CLASSES_S)
        if not archive.exists():
            raise ProcessFailed(f"Kafka's Java has archived no classes; its log: {broker.log}")


@contextmanager
def running(
    nodes: int = 1,
    *,
    security: SecurityName = "plaintext",
    network: Network = LOOPBACK,
    settings: Mapping[str, str] | None = None,
    java_option: str = "",
) -> Iterator[Kafka]:
    """
    A new, empty cluster of that many nodes; it ends with the block, and with this process.

    `settings` are broker properties of this cluster alone, `java_option` is instead of the archive of classes.
    """
    # Before anything else: the first time it takes a while and may say that it cannot be had.
    option = java_option or f"-XX:SharedArchiveFile={prepare()}"
    namespace = network.namespace()
    with workdir("kafka") as folder, ExitStack() as stack:
        layout = Layout(
            ports=tuple(Ports() for _ in range(nodes)),
            security=make_security(security, folder, [HERE.address, namespace.address]),
            namespace=namespace,
            folder=folder,
            logs=logs(folder),
            settings=settings or {},
        )
        for ports in layout.ports:
            stack.enter_context(network.forward(HERE.address, ports.clients, listen=ports.clients))
        brokers = tuple(Broker(number, layout, option) for number in range(1, nodes + 1))
        stack.callback(_end, brokers)
        _start(brokers)
        yield Kafka(brokers, layout.security)


def _start(brokers: tuple[Broker, ...]) -> None:
    for broker in brokers:
        broker.begin_start()
    for broker in brokers:
        broker.end_start(beside=brokers)


def _end(brokers: tuple[Broker, ...]) -> None:
    # Killed, for their data goes away in a moment: asked to stop, the last ones would wait for a majority that
    # is gone already.
    for broker in brokers:
        broker.end()
