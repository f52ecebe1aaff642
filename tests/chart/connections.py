"""
Decides which connections NetworkPolicies allow, after https://kubernetes.io/docs/concepts/services-networking/network-policies.

A connection needs a policy on each side that allows it; a pod that no policy selects for a direction is open in it. Kubelets are
not pods: no policy applies to their probes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from tests.support.helm import Object

NAME_LABEL = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a connection: a pod, or an address outside of the cluster."""

    # Empty: no pod.
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "192.0.2.1"


def allows(
    policies: Sequence[Object], source: Endpoint, target: Endpoint, port: int, protocol: str = "TCP"
) -> bool:
    """Return whether a connection from one end to the other is allowed."""
    return _open(policies, "Egress", source, target, (protocol, port)) and _open(
        policies, "Ingress", target, source, (protocol, port)
    )


def _open(
    policies: Sequence[Object], direction: str, pod: Endpoint, peer: Endpoint, port: tuple[str, int]
) -> bool:
    selecting = [each for each in policies if _selects(each, direction, pod)]
    if not selecting:
        return True
    side = "to" if direction == "Egress" else "from"
    return any(
        _has_port(rule, port) and _has_peer(rule.get(side), policy["metadata"]["namespace"], peer)
        for policy in selecting
        for rule in policy["spec"].get(direction.lower(), ())
    )


def _selects(policy: Object, direction: str, pod: Endpoint) -> bool:
    spec = policy["spec"]
    return (
        policy["metadata"]["namespace"] == pod.namespace
        and direction in spec["policyTypes"]
        and matches(spec["podSelector"], pod.labels)
    )


def _has_port(rule: Object, port: tuple[str, int]) -> bool:
    ports = rule.get("ports")
    return not ports or any((each.get("protocol", "TCP"), each["port"]) == port for each in ports)


def _has_peer(peers: Sequence[Object] | None, own_namespace: str, peer: Endpoint) -> bool:
    # Without peers: everywhere.
    return not peers or any(_is_peer(each, own_namespace, peer) for each in peers)


def _is_peer(allowed: Object, own_namespace: str, peer: Endpoint) -> bool:
    if block := allowed.get("ipBlock"):
        address = ip_address(peer.address)
        return address in ip_network(block["cidr"]) and not any(
            address in ip_network(each) for each in block.get("except", ())
        )
    if not peer.namespace:
        return False
    namespaces = allowed.get("namespaceSelector")
    in_namespace = (
        peer.namespace == own_namespace
        if namespaces is None
        else matches(namespaces, {NAME_LABEL: peer.namespace})
    )
    return in_namespace and matches(allowed.get("podSelector", {}), peer.labels)


def matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches."""
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _expressions(selector.get("matchExpressions", ()), labels)
    )


def _expressions(expressions: Sequence[Any], labels: Mapping[str, str]) -> Iterator[bool]:
    for each in expressions:
        value, operator = labels.get(each["key"]), each["operator"]
        if operator in ("In", "NotIn"):
            yield (value in each["values"]) == (operator == "In")
        else:
            yield (value is not None) == (operator == "Exists")
