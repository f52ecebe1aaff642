"""Grants that the chart makes by default: those that the examples need, in their namespace alone."""

import re
from collections.abc import Iterator

import pytest
import yaml

from rota_coordinator.security.authenticator import Principal
from rota_coordinator.security.policy import PodPolicy, TopicAction
from rota_coordinator.security.principals import parse
from rota_coordinator.security.service_accounts import user_of
from rota_service.pod_tokens import Pod
from tests.chart.rendered import named
from tests.support import helm
from tests.support.tree import REPO

pytestmark = pytest.mark.process

EXAMPLES = REPO / "examples"
CREATED = re.compile(r"create_topics\(address, \{(?P<topics>[^}]*)\}")
TRANSACTIONAL = re.compile(r'name = f"(?P<prefix>\w+-)\{os\.environ')


def policy(*flags: str) -> PodPolicy:
    """The coordinator's rules for pods."""
    grants = named(helm.render(*flags), "ConfigMap", "rota-coordinator-grants")["data"]["grants"]
    found = parse(grants, "grants")
    return PodPolicy(found.grants_of, found.grants_of_pods, found.grants_in)


def pod(namespace: str) -> Principal:
    found = Pod(namespace, "p", "uid", "default")
    return Principal(user_of(found), found)


def topics() -> set[str]:
    """Topics that the examples' programs create, and those that their groups consume."""
    sources = "".join(file.read_text() for file in EXAMPLES.rglob("*.py"))
    created = "".join(each["topics"] for each in CREATED.finditer(sources))
    return {*re.findall(r'"([\w-]+)"', created), *consumed()}


def consumed() -> Iterator[str]:
    """Yield the topics of the groups of the examples in files for `kubectl apply`, all of which are in namespace shop."""
    for file in EXAMPLES.glob("*/*.yaml"):
        for each in yaml.safe_load_all(file.read_text()):
            assert each["metadata"]["namespace"] == "shop"
            if each["kind"] == "ConsumerGroup":
                yield from each["spec"]["topics"]


def test_the_examples_have_their_topics_and_transactions() -> None:
    found = policy()
    assert topics() >= {"orders", "priced-orders", "payments", "receipts"}
    for topic in topics():
        assert found.may_topic(pod("shop"), TopicAction.ADMIN, topic), topic
    [prefix] = TRANSACTIONAL.findall((EXAMPLES / "exactly-once" / "biller.py").read_text())
    assert found.may_transact(pod("shop"), f"{prefix}biller-6c9-x")
    assert not found.may_topic(pod("shop"), TopicAction.CONSUME, "invoices")


def test_other_namespaces_have_none_of_them() -> None:
    found = policy()
    for topic in (*topics(), "shop.invoices", "invoices"):
        assert not found.may_topic(pod("bank"), TopicAction.CONSUME, topic), topic
    assert not found.may_transact(pod("bank"), "biller-x")
    assert found.may_topic(pod("bank"), TopicAction.ADMIN, "bank.invoices")


def test_without_grants_a_namespace_has_what_bears_its_name() -> None:
    found = policy("--set-json=coordinator.grants=[]")
    assert not any(found.may_topic(pod("shop"), TopicAction.CONSUME, topic) for topic in topics())
    assert found.may_topic(pod("shop"), TopicAction.ADMIN, "shop.orders")


def test_every_topic_can_be_granted_to_every_pod() -> None:
    found = policy('--set-json=coordinator.grants=[{"permissions": ["topics:*"]}]')
    assert found.may_topic(pod("bank"), TopicAction.ADMIN, "invoices")
