"""
Kafka clusters that the operator has credentials for, and which ConsumerGroups it uses them for.

`cluster.kafka_access` reads the list from the file of `--kafka-clusters` and asks `find_cluster` for each ConsumerGroup whose
records are in Kafka. Credentials are used for the groups `<namespace>.*` and for those that the list grants, and for no other: the
author of a ConsumerGroup must not read or delete another team's group with rights that only the operator has.
"""

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, StringConstraints

from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.names import Namespace
from rota_operator.spec.scalars import OptionalScope, OptionalTokenEndpoint
from rota_operator.spec.schema import SpecModel, ValidationRule

# A grant that ends with it is a prefix.
ANY = "*"
ClusterName = Annotated[str, StringConstraints(max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Server = Annotated[str, StringConstraints(max_length=1024, pattern=r"^(\[[^\]]+\]|[^:/\s]+):[0-9]{1,5}$")]
GroupGrant = Annotated[str, StringConstraints(min_length=1, max_length=249)]


def _are_different(values: Collection[str]) -> bool:
    return len(set(values)) == len(values)


class KafkaCluster(SpecModel):
    """A Kafka cluster. Its credentials are files in the folder of its name."""

    name: ClusterName
    # As ConsumerGroups name them: a group belongs to the cluster if one of its addresses is among these.
    bootstrap_servers: tuple[Server, ...] = Field(min_length=1)
    # Namespaces whose ConsumerGroups may use the credentials; empty: all.
    namespaces: tuple[Namespace, ...] = ()
    # Group ids beside <namespace>.*; one that ends with * is a prefix.
    groups: tuple[GroupGrant, ...] = ()
    # Files ca.crt, else the system's authorities, and tls.crt with tls.key, if brokers require client certificates.
    tls: bool = False
    # Files username and password; with OAUTHBEARER client-id and client-secret. Empty: no login.
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    # With OAUTHBEARER; file token-endpoint-ca.crt, else the system's authorities.
    token_endpoint_url: OptionalTokenEndpoint = ""
    scope: OptionalScope = ""

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "",
            "must set tokenEndpointUrl with saslMechanism OAUTHBEARER, and only then",
            lambda each: bool(each.token_endpoint_url) == (each.sasl_mechanism == "OAUTHBEARER"),
        ),
        ValidationRule(
            "",
            "must set scope with tokenEndpointUrl only",
            lambda each: bool(each.token_endpoint_url) or not each.scope,
        ),
    )


class KafkaClusters(SpecModel):
    """The list of Kafka clusters."""

    clusters: tuple[KafkaCluster, ...] = ()

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "",
            "must have clusters with different names",
            lambda every: _are_different([each.name for each in every.clusters]),
        ),
        ValidationRule(
            "",
            "must name each address in one cluster only",
            lambda every: _are_different(
                [server.lower() for each in every.clusters for server in each.bootstrap_servers]
            ),
        ),
    )


NO_CLUSTERS = KafkaClusters()


class Found(NamedTuple):
    """A cluster whose credentials may be used, or why there is none."""

    cluster: KafkaCluster | None
    problem: str = ""


def find_cluster(clusters: KafkaClusters, spec: ConsumerGroupSpec, namespace: str, group_id: str) -> Found:
    """Return the cluster of a ConsumerGroup whose records are in Kafka."""
    servers = {each.lower() for each in spec.bootstrap_servers}
    cluster = next(
        (
            each
            for each in clusters.clusters
            if servers & {server.lower() for server in each.bootstrap_servers}
        ),
        None,
    )
    if cluster is None:
        return Found(
            None,
            "the operator has no credentials for the group's Kafka cluster; name it in kafka.clusters of the chart",
        )
    if cluster.namespaces and namespace not in cluster.namespaces:
        return Found(
            None,
            f"the operator's credentials for Kafka cluster {cluster.name} are not for namespace {namespace}; add it to the "
            "cluster's namespaces in kafka.clusters of the chart",
        )
    if not group_id.startswith(f"{namespace}.") and not _is_granted(cluster.groups, group_id):
        return Found(
            None,
            f"the operator's credentials for Kafka cluster {cluster.name} are for groups {namespace}.* only; add {group_id} to "
            "the cluster's groups in kafka.clusters of the chart",
        )
    return Found(cluster)


def _is_granted(grants: Collection[str], group_id: str) -> bool:
    return any(
        group_id.startswith(each.removesuffix(ANY)) if each.endswith(ANY) else group_id == each
        for each in grants
    )
