"""ConsumerGroups for tests: a whole one, in which every field is given, and what breaks each of its rules."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

Spec = dict[str, Any]
KERBEROS = {
    "keytabSecret": {"name": "orders", "key": "keytab"},
    "krb5ConfSecret": {"name": "realm", "key": "krb5.conf"},
}
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


USER = {"name": "user", "key": "username"}
CLIENT = {
    "tokenEndpointUrl": "https://idp.example/token",
    "clientIdSecret": USER,
    "clientSecretSecret": USER,
}
SERVICE_ACCOUNT = {"audience": "kafka"}


def with_sasl(**sasl: object) -> Spec:
    """The small one, with a login."""
    return {**small(), "auth": {"sasl": sasl}}


def with_oauth(**source: object) -> Spec:
    """The small one, with a source of bearer tokens."""
    return with_sasl(mechanism="OAUTHBEARER", oauthbearer=source)


BROKEN = [
    Broken(
        "a password is missing",
        with_sasl(mechanism="PLAIN", userSecret=USER),
        "spec.auth.sasl",
        "must set userSecret and passwordSecret with PLAIN and SCRAM, and neither with GSSAPI and OAUTHBEARER",
    ),
    Broken(
        "a user has tokens",
        with_sasl(mechanism="OAUTHBEARER", userSecret=USER, oauthbearer=CLIENT),
        "spec.auth.sasl",
        "must set userSecret and passwordSecret with PLAIN and SCRAM, and neither with GSSAPI and OAUTHBEARER",
    ),
    Broken(
        "tokens have no source",
        with_sasl(mechanism="OAUTHBEARER"),
        "spec.auth.sasl",
        "must set oauthbearer with OAUTHBEARER, and only then",
    ),
    Broken(
        "passwords have a source of tokens",
        with_sasl(mechanism="PLAIN", userSecret=USER, passwordSecret=USER, oauthbearer=CLIENT),
        "spec.auth.sasl",
        "must set oauthbearer with OAUTHBEARER, and only then",
    ),
    Broken(
        "tokens have two sources",
        with_oauth(**CLIENT, serviceAccountToken=SERVICE_ACCOUNT),
        "spec.auth.sasl.oauthbearer",
        "must set exactly one of serviceAccountToken and tokenEndpointUrl",
    ),
    Broken(
        "a client has no secret",
        with_oauth(**without(CLIENT, "clientSecretSecret")),
        "spec.auth.sasl.oauthbearer",
        "must set clientIdSecret and clientSecretSecret with tokenEndpointUrl",
    ),
    Broken(
        "a service account has a scope",
        with_oauth(serviceAccountToken=SERVICE_ACCOUNT, scope="kafka"),
        "spec.auth.sasl.oauthbearer",
        "must set clientIdSecret, clientSecretSecret, scope and caCertSecret with tokenEndpointUrl only",
    ),
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
        "Kerberos beside a password",
        changed(lambda spec: spec["auth"]["sasl"].update(kerberos=KERBEROS)),
        "spec.auth.sasl",
        "must set kerberos with GSSAPI, and only then",
    ),
    Broken(
        "GSSAPI with a password",
        changed(lambda spec: spec["auth"]["sasl"].update(mechanism="GSSAPI", kerberos=KERBEROS)),
        "spec.auth.sasl",
        "must set userSecret and passwordSecret with PLAIN and SCRAM, and neither with GSSAPI and OAUTHBEARER",
    ),
    Broken(
        "a user without a password",
        changed(lambda spec: spec["auth"]["sasl"].pop("passwordSecret")),
        "spec.auth.sasl",
        "must set userSecret and passwordSecret with PLAIN and SCRAM, and neither with GSSAPI and OAUTHBEARER",
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
