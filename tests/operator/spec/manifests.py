"""ConsumerGroups for tests: a whole one, in which every field is given, and what breaks each of its rules."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Spec = dict[str, Any]
WHOLE = Path(__file__).parent / "whole.yaml"


def small() -> Spec:
    """What must be said at least."""
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
    wrong: str


def without(spec: Spec, *names: str) -> Spec:
    """These fields are absent."""
    return {name: value for name, value in spec.items() if name not in names}


def changed(change: Callable[[Spec], object]) -> Spec:
    """The whole one, with a change."""
    spec = copy.deepcopy(whole())
    change(spec)
    return spec


BROKEN = [
    Broken("nothing is read", without(small(), "topics"), "spec", "does not say what to read"),
    Broken(
        "two things are read", {**small(), "topicPattern": "orders-.*"}, "spec", "does not say what to read"
    ),
    Broken("nobody consumes", without(small(), "scaleTargetRef"), "spec", "does not say who consumes"),
    Broken(
        "two consume",
        {**small(), "spark": {"enabled": True, "template": {"spec": {}}}},
        "spec",
        "does not say who consumes",
    ),
    Broken(
        "servers of two kinds",
        {**small(), "bootstrapServers": ["kafka:9092", "rota://rota:7070"]},
        "spec",
        "mixes Rota's servers with Kafka's",
    ),
    Broken(
        "Kafka coordinates Rota's records",
        {**small(), "bootstrapServers": ["rota://rota:7070"], "coordination": "Kafka"},
        "spec",
        "has Kafka coordinate what Rota keeps",
    ),
    Broken("no coordinator's address", {**small(), "coordination": "Rota"}, "spec", "contradicts itself"),
    Broken(
        "a coordinator's address for nothing",
        {**small(), "coordinatorAddress": "rota://rota:7070"},
        "spec",
        "contradicts itself",
    ),
    Broken(
        "an owned property",
        {**small(), "config": {"group.id": "mine"}},
        "spec",
        "sets a property in config that Rota sets by itself",
    ),
    Broken(
        "a certificate alone",
        changed(lambda spec: spec["auth"]["tls"].pop("keySecret")),
        "spec.auth.tls",
        "has a certificate or a key alone",
    ),
    Broken(
        "two heartbeats a session",
        {**small(), "membership": {"sessionTimeoutSeconds": 8}},
        "spec.membership",
        "lets a session end with two lost heartbeats",
    ),
    Broken(
        "a reset to two places",
        changed(lambda spec: spec["offsets"]["reset"]["to"].update(offset=7)),
        "spec.offsets.reset.to",
        "names no single place",
    ),
    Broken(
        "a reset to no place",
        changed(lambda spec: spec["offsets"]["reset"]["to"].clear()),
        "spec.offsets.reset.to",
        "names no single place",
    ),
    Broken(
        "HTTP to nowhere", {**small(), "delivery": {"mode": "http"}}, "spec.delivery", "contradicts itself"
    ),
    Broken(
        "an address for nothing",
        {**small(), "delivery": {"http": {"url": "http://127.0.0.1:8080/"}}},
        "spec.delivery",
        "contradicts itself",
    ),
    Broken(
        "more at least than at most",
        {**small(), "autoscaling": {"minReplicaCount": 5, "maxReplicaCount": 4}},
        "spec.autoscaling",
        "has a minReplicaCount above its maxReplicaCount",
    ),
    Broken(
        "Spark without a template",
        {**without(small(), "scaleTargetRef"), "spark": {"enabled": True}},
        "spec.spark",
        "is enabled without a template",
    ),
    Broken(
        "no share of pods",
        {**small(), "podDisruptionBudget": {"maxUnavailable": "all"}},
        "spec.podDisruptionBudget",
        "is no number and no share",
    ),
]
