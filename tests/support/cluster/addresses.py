"""
Names and addresses inside a cluster.

Every cluster has the same ones: each lives in networks of its own, so two of them never meet.
"""

from dataclasses import dataclass

CONTROL_PLANE = "10.90.0.1"
API_PORT = 6443
API = f"https://{CONTROL_PLANE}:{API_PORT}"
PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""Kubernetes gives the first address of the range to its own Service."""
DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Address of a node, and the range of its pods' addresses."""

    name: str
    address: str
    pods: str


NODES = (
    NodeAddress("n1", "10.90.0.11", "10.244.1.0/24"),
    NodeAddress("n2", "10.90.0.12", "10.244.2.0/24"),
)
