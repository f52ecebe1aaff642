"""Which Kafka cluster's credentials the operator uses for a ConsumerGroup, and why for none."""

from typing import Any

import pytest

from rota_operator.plan.kafka_clusters import KafkaClusters, find_cluster
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import InvalidSpec, parse_model, parse_spec

MAIN = {"name": "main", "bootstrapServers": ["kafka-0.kafka:9093", "kafka-1.kafka:9093"]}


def clusters(*given: dict[str, Any]) -> KafkaClusters:
    return parse_model(KafkaClusters, {"clusters": given}, ("clusters.yaml",))


def spec(*servers: str) -> ConsumerGroupSpec:
    return parse_spec(
        {"bootstrapServers": servers, "topics": ["orders"], "scaleTargetRef": {"name": "orders"}}
    )


@pytest.mark.parametrize(
    "servers", [("kafka-1.kafka:9093",), ("other:9092", "KAFKA-0.kafka:9093"), ("kafka-0.kafka:9093",)]
)
def test_a_group_belongs_to_the_cluster_that_has_one_of_its_addresses(servers: tuple[str, ...]) -> None:
    other = {"name": "other", "bootstrapServers": ["kafka:9092"]}
    found = find_cluster(clusters(other, MAIN), spec(*servers), "shop", "shop.orders")
    assert found.cluster is not None
    assert (found.cluster.name, found.problem) == ("main", "")


@pytest.mark.parametrize(
    ("cluster", "group_id", "problem"),
    [
        ({}, "shop.orders", ""),
        ({"namespaces": ["shop"]}, "shop.orders", ""),
        ({"groups": ["orders-*"]}, "orders-eu", ""),
        ({"groups": ["orders"]}, "orders", ""),
        ({"groups": ["*"]}, "anything", ""),
        ({"namespaces": ["billing"]}, "shop.orders", "main are not for namespace shop; add it to the cluster's namespaces"),
        ({}, "billing.orders", "main are for groups shop.* only; add billing.orders to the cluster's groups"),
        ({}, "shopping.orders", "are for groups shop.* only"),
        ({"groups": ["orders"]}, "orders-eu", "are for groups shop.* only"),
        ({"bootstrapServers": ["kafka:9092"]}, "shop.orders", "the operator has no credentials for the group's Kafka cluster"),
    ],
)  # fmt: skip
def test_credentials_are_for_groups_of_the_namespace_and_granted_ones(
    cluster: dict[str, Any], group_id: str, problem: str
) -> None:
    found = find_cluster(clusters(MAIN | cluster), spec("kafka-0.kafka:9093"), "shop", group_id)
    assert problem in found.problem
    assert (found.cluster is None) == bool(found.problem) == bool(problem)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([MAIN, MAIN], "must have clusters with different names"),
        ([MAIN, MAIN | {"name": "b"}], "must name each address in one cluster only"),
        ([MAIN | {"name": "../etc"}], "clusters.yaml.clusters[0].name must be a lowercase RFC 1123 label"),
        ([MAIN | {"bootstrapServers": []}], "clusters.yaml.clusters[0].bootstrapServers must have 1 or more elements"),
        ([MAIN | {"bootstrapServers": ["rota://a:7070"]}], "clusters.yaml.clusters[0].bootstrapServers[0] must match"),
        ([MAIN | {"saslMechanism": "GSSAPI"}], "clusters.yaml.clusters[0].saslMechanism must be"),
        ([MAIN | {"saslMechanism": "OAUTHBEARER"}], "must set tokenEndpointUrl with saslMechanism OAUTHBEARER, and only then"),
        ([MAIN | {"tokenEndpointUrl": "https://idp/token"}], "must set tokenEndpointUrl with saslMechanism OAUTHBEARER, and only then"),
        ([MAIN | {"tokenEndpointUrl": "http://idp/token"}], "clusters.yaml.clusters[0].tokenEndpointUrl must match"),
        ([MAIN | {"scope": "kafka"}], "must set scope with tokenEndpointUrl only"),
        ([MAIN | {"password": "secret"}], "clusters.yaml.clusters[0].password is an unknown field"),
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_followed_is_refused_with_its_path(
    given: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        clusters(*given)
    assert message in str(refused.value)
