"""The operator's credentials for Kafka clusters, as they are mounted: a list, and a folder of files for each cluster."""

from pathlib import Path

import pytest

from rota_operator.cluster.kafka_access import (
    LIST,
    NO_ACCESS,
    InvalidClusters,
    KafkaAccess,
    KafkaCredentials,
    read_credentials,
)
from rota_operator.cluster.observe import kafka_problem
from rota_operator.cluster.queues import Key
from rota_operator.spec.validation import parse_spec
from tests.operator.reconcile.worlds import resource

CLUSTERS = """
clusters:
- {name: plain, bootstrapServers: ["plain:9092"]}
- {name: main, bootstrapServers: ["main:9093"], tls: true, saslMechanism: SCRAM-SHA-512}
"""
FILES = {"ca.crt": "CA", "tls.crt": "CERTIFICATE", "tls.key": "KEY", "username": "u", "password": " p "}


def credentials(folder: Path, **files: str) -> KafkaCredentials:
    (folder / LIST).write_text(CLUSTERS)
    (folder / "main").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "main" / name).write_text(f"{text}\n")
    return read_credentials(folder)


def access(known: KafkaCredentials, *servers: str) -> KafkaAccess:
    given = {"bootstrapServers": servers, "topics": ["orders"], "scaleTargetRef": {"name": "orders"}}
    return known.access(parse_spec(given), "shop", "shop.orders")


def test_the_files_of_a_cluster_become_properties(tmp_path: Path) -> None:
    known = credentials(tmp_path, **FILES)
    common = {"client.id": "rota-operator"}
    assert dict(access(known, "plain:9092").properties) == {
        "bootstrap.servers": "plain:9092",
        "security.protocol": "plaintext",
        **common,
    }
    found = access(known, "main:9093")
    assert dict(found.properties) == {
        "bootstrap.servers": "main:9093",
        "security.protocol": "sasl_ssl",
        "ssl.ca.pem": "CA",
        "ssl.certificate.pem": "CERTIFICATE",
        "ssl.key.pem": "KEY",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": " p ",
        **common,
    }
    assert "KEY" not in repr(found)


def test_client_credentials_of_a_token_endpoint_become_properties(tmp_path: Path) -> None:
    folder = tmp_path / "main"
    folder.mkdir()
    for name in ("client-id", "client-secret", "token-endpoint-ca.crt"):
        (folder / name).write_text(f"{name} of it\n")
    (tmp_path / LIST).write_text(
        "clusters: [{name: main, bootstrapServers: ['main:9093'], tls: true, saslMechanism: OAUTHBEARER, "
        "tokenEndpointUrl: 'https://idp/token', scope: kafka}]"
    )
    found = access(read_credentials(tmp_path), "main:9093")
    assert dict(found.properties) == {
        "bootstrap.servers": "main:9093",
        "client.id": "rota-operator",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "probe",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.client.id": "client-id of it",
        "sasl.oauthbearer.client.secret": "client-secret of it",
        "sasl.oauthbearer.scope": "kafka",
        "https.ca.pem": "token-endpoint-ca.crt of it",
    }
    assert "client-secret of it" not in repr(found)


def test_files_are_read_anew_and_a_missing_one_is_named(tmp_path: Path) -> None:
    known = credentials(tmp_path, username="u")
    problem = "the operator cannot read the credentials of Kafka cluster main (password: No such file or directory); check its Secret"
    assert access(known, "main:9093").problem.startswith(problem)
    (tmp_path / "main" / "password").write_text("one")
    one = access(known, "main:9093")
    (tmp_path / "main" / "password").write_text("two")
    two = access(known, "main:9093")
    assert one != two
    assert (one.problem, dict(two.properties)["ssl.ca.location"]) == ("", "probe")


def test_a_group_with_its_records_at_rota_needs_none() -> None:
    assert access(KafkaCredentials(), "rota://rota:7070") == NO_ACCESS
    assert access(KafkaCredentials(), "kafka:9092").problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: [", "must be YAML"),
        ("clusters: 7", "--kafka-clusters: clusters.yaml.clusters must be a list"),
        (None, "cannot read .*clusters.yaml of --kafka-clusters"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / LIST).write_text(text)
    with pytest.raises(InvalidClusters, match=message):
        read_credentials(tmp_path)


def test_an_autoscaler_that_may_remove_all_members_needs_the_operators_own_access(tmp_path: Path) -> None:
    known, key = credentials(tmp_path, **FILES), Key("shop", "orders")

    def problem(server: str, autoscaling: object) -> str:
        spec = {
            "bootstrapServers": [server], "topics": ["orders"], "scaleTargetRef": {"name": "orders"}, "autoscaling": autoscaling,
        }  # fmt: skip
        return kafka_problem(known, key, resource(**spec))

    to_zero = {"enabled": True, "minReplicaCount": 0}
    assert problem("other:9092", to_zero).startswith(
        "the operator has no credentials for the group's Kafka cluster"
    )
    assert problem("plain:9092", to_zero) == ""
    assert problem("rota://rota:7070", to_zero) == ""
    assert problem("other:9092", {"enabled": True}) == ""
    assert problem("other:9092", {**to_zero, "maxReplicaCount": "x"}) == "", "refused for that"
    assert problem("other:9092", None) == ""
