"""ConsumerGroups for tests: a whole one, in which every field is given, and what breaks each of its rules."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Spec = dict[str, Any]
WHOLE = Path(__file__).parent / "whole.yaml"


def small() -> Spec:
    """Minimal valid spec."""
    return {
        "bootstrapServers": ["kafka:9092"],
        "topics": ["orders"],
        "scaleTargetRef": {"name": "orders-enricher"},
    }


def whole() -> Spec:
    """Every field but those that exclude others."""
    spec: Spec = yaml.safe_load(WHOLE.read_text())
    return spec


class Broken(NamedTuple):
    """A spec that one rule forbids."""

    rule: str
    spec: Spec
    # Of the part that the rule is about, and how the sentence goes on.
    path: str
    message: str


def without(spec: Spec, *names: str) -> Spec:
    """Spec without these fields."""
    return {name: value for name, value in spec.items() if name not in names}


def changed(change: Callable[[Spec], object]) -> Spec:
    """The whole one, with a change."""
    spec = copy.deepcopy(whole())
    change(spec)
    return spec


BROKEN = [
    Broken(
        "nothing is read",
        without(small(), "topics"),
        "spec",
        "must set exactly one of topics and topicPattern",
    ),
    Broken(
        "two things are read",
        {**small(), "topicPattern": "orders-.*"},
        "spec",
        "must set exactly one of topics and topicPattern",
    ),
    Broken(
        "nobody consumes",
        without(small(), "scaleTargetRef"),
        "spec",
        "must set exactly one of scaleTargetRef and spark.enabled",
    ),
    Broken(
        "two consume",
        {**small(), "spark": {"enabled": True, "template": {"spec": {}}}},
        "spec",
        "must set exactly one of scaleTargetRef and spark.enabled",
    ),
    Broken(
        "servers of two kinds",
        {**small(), "bootstrapServers": ["kafka:9092", "rota://rota:7070"]},
        "spec",
        "must not mix rota:// addresses and Kafka brokers",
    ),
    Broken(
        "Kafka coordinates Rota's records",
        {**small(), "bootstrapServers": ["rota://rota:7070"], "coordination": "Kafka"},
        "spec",
        "must have coordination Auto or Rota",
    ),
    Broken(
        "no coordinator's address",
        {**small(), "coordination": "Rota"},
        "spec",
        "must set coordinatorAddress if and only if",
    ),
    Broken(
        "a coordinator's address for nothing",
        {**small(), "coordinatorAddress": "rota://rota:7070"},
        "spec",
        "must set coordinatorAddress if and only if",
    ),
    Broken(
        "an owned property",
        {**small(), "config": {"group.id": "mine"}},
        "spec",
        "must not set config properties that Rota manages",
    ),
    Broken(
        "a certificate alone",
        changed(lambda spec: spec["auth"]["tls"].pop("keySecret")),
        "spec.auth.tls",
        "must set both certSecret and keySecret",
    ),
    Broken(
        "two heartbeats a session",
        {**small(), "membership": {"sessionTimeoutSeconds": 8}},
        "spec.membership",
        "must have a sessionTimeoutSeconds of at least three times",
    ),
    Broken(
        "a reset to two places",
        changed(lambda spec: spec["offsets"]["reset"]["to"].update(offset=7)),
        "spec.offsets.reset.to",
        "must set exactly one of datetime",
    ),
    Broken(
        "a reset to no place",
        changed(lambda spec: spec["offsets"]["reset"]["to"].clear()),
        "spec.offsets.reset.to",
        "must set exactly one of datetime",
    ),
    Broken(
        "HTTP to nowhere",
        {**small(), "delivery": {"mode": "http"}},
        "spec.delivery",
        "must set http.url if and only if mode is http",
    ),
    Broken(
        "an address for nothing",
        {**small(), "delivery": {"http": {"url": "http://127.0.0.1:8080/"}}},
        "spec.delivery",
        "must set http.url if and only if mode is http",
    ),
    Broken(
        "more at least than at most",
        {**small(), "autoscaling": {"minReplicaCount": 5, "maxReplicaCount": 4}},
        "spec.autoscaling",
        "must have a minReplicaCount less than or equal to maxReplicaCount",
    ),
    Broken(
        "Spark without a template",
        {**without(small(), "scaleTargetRef"), "spark": {"enabled": True}},
        "spec.spark",
        "must set template.spec if enabled is true",
    ),
    Broken(
        "no share of pods",
        {**small(), "podDisruptionBudget": {"maxUnavailable": "all"}},
        "spec.podDisruptionBudget",
        "must have a maxUnavailable that is",
    ),
]
