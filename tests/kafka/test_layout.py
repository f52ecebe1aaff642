"""Properties of each broker whose errors would only show in a cluster that half works."""

from pathlib import Path

from tests.support.kafka.layout import Layout, Ports
from tests.support.kafka.security import Plaintext
from tests.support.network import HERE, NetworkNamespace

PORTS = (Ports(1, 2, 3, 4), Ports(5, 6, 7, 8), Ports(9, 10, 11, 12))


def properties(ports: tuple[Ports, ...], namespace: NetworkNamespace = HERE) -> dict[str, str]:
    """Properties of the first node."""
    layout = Layout(ports, Plaintext(), namespace, Path("/folder"), Path("/logs"))
    return dict(line.split("=", 1) for line in layout.properties(1).splitlines())


def test_every_node_knows_all_controllers() -> None:
    assert properties(PORTS)["controller.quorum.voters"] == "1@127.0.0.1:3,2@127.0.0.1:7,3@127.0.0.1:11"


def test_three_nodes_keep_three_copies_and_can_miss_one() -> None:
    settings = properties(PORTS)
    assert settings["offsets.topic.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == "2"


def test_one_node_keeps_one_copy() -> None:
    settings = properties(PORTS[:1])
    assert settings["offsets.topic.replication.factor"] == "1"
    assert settings["min.insync.replicas"] == "1"


def test_only_a_node_in_a_clusters_network_listens_for_pods() -> None:
    assert "PODS" not in properties(PORTS)["listeners"]
    assert properties(PORTS, NetworkNamespace("10.90.0.1"))["listeners"].endswith("PODS://10.90.0.1:4")
