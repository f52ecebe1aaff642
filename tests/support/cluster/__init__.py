"""
A Kubernetes cluster with real nodes and real pods on this machine, for tests and for people.

Tests use the fixtures in `fixtures`; people use `python -m tests.support.cluster`.
"""

from tests.support.cluster.cluster import WITHIN_S, Cluster
from tests.support.cluster.prepared import prepare

__all__ = ["WITHIN_S", "Cluster", "prepare"]
