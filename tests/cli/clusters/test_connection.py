"""Connection flags that do not go together are refused before any server is dialled."""

from pathlib import Path
from typing import Any

import pytest

from rota_cli.clusters.connection import Connection, KerberosLogin, SaslLogin
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.errors import Failure, NotFound, WrongUsage

OAUTH = {"bootstrap_servers": "k:1", "sasl_mechanism": "OAUTHBEARER"}
URL, ID = "sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_client_id"


def access(**given: Any) -> Connection:  # noqa: ANN401  any of the flags
    return ConnectionFlags(**given).connection()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    there = tmp_path / "file"
    there.write_text("content\n")
    return there


def test_addresses_are_spelt_as_the_sdk_spells_them() -> None:
    assert access(bootstrap_servers="rota://here").servers == "rota://here:7070"
    assert access(bootstrap_servers="kafka://a,b:1").servers == "a:9092,b:1"
    shared = access(bootstrap_servers="kafka:9092", coordinator_address="rota://here")
    assert (shared.servers, shared.coordinator) == ("kafka:9092", "rota://here:7070")


def test_without_an_address_it_is_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = access()
    assert (found.servers, found.source) == ("rota://127.0.0.1:7070", "the default")


def test_any_of_the_files_of_tls_means_tls(file: Path) -> None:
    assert access(bootstrap_servers="rota://far", tls_ca=file).tls
    assert access(bootstrap_servers="rota://far", tls=True).trusted_ca_file is not None
    assert access(bootstrap_servers="rota://far").trusted_ca_file is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tls_cert": "file"}, "--tls-key is missing"),
        ({"tls_key": "file"}, "--tls-cert is missing"),
        ({"token_file": "file"}, "refusing to send the token to 127.0.0.2.example:7070 in plain text"),
        (
            {"bootstrap_servers": "kafka:9092", "token_file": "file"},
            "--token-file applies to Rota's servers only",
        ),
        ({"coordinator_address": "rota://x"}, "--coordinator-address applies to records in Kafka only"),
        ({"bootstrap_servers": "kafka:9092", "coordinator_address": "x:1"}, "x:1: expected rota://HOST:PORT"),
        ({"sasl_mechanism": "PLAIN"}, "--sasl-mechanism applies to Kafka only"),
        ({"bootstrap_servers": "k:1", "sasl_username_file": "file"}, "--sasl-mechanism is missing"),
        (
            {"bootstrap_servers": "k:1", "sasl_mechanism": "DIGEST-MD5"},
            "--sasl-mechanism DIGEST-MD5: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI",
        ),
        (
            {"bootstrap_servers": "k:1", "sasl_mechanism": "GSSAPI", "sasl_username_file": "file"},
            "--sasl-mechanism GSSAPI has no user name and no password",
        ),
        (
            {"bootstrap_servers": "k:1", "sasl_mechanism": "GSSAPI", "sasl_kerberos_principal": "me"},
            "--sasl-kerberos-keytab is missing",
        ),
        ({"bootstrap_servers": "k:1", "sasl_kerberos_keytab": "file"}, "--sasl-mechanism is missing"),
        (
            {
                "bootstrap_servers": "k:1",
                "sasl_mechanism": "PLAIN",
                "sasl_username_file": "file",
                "sasl_password_file": "file",
                "sasl_kerberos_keytab": "file",
            },
            "--sasl-kerberos-... apply to --sasl-mechanism GSSAPI only",
        ),
        ({"bootstrap_servers": "k:1", "sasl_mechanism": "PLAIN"}, "the SASL username is missing"),
        (OAUTH, "OAUTHBEARER needs --sasl-oauthbearer-token-endpoint-url: a token endpoint, or file:///PATH"),
        ({**OAUTH, URL: "idp.example"}, "-endpoint-url: the token endpoint idp.example is not a URL"),
        (
            {**OAUTH, URL: "http://idp.example"},
            "the client secret would be sent to idp.example in clear text",
        ),
        ({**OAUTH, URL: "https://idp"}, "the client id is missing: pass --sasl-oauthbearer-client-id"),
        (
            {**OAUTH, URL: "https://idp", ID: "me"},
            "the client secret is missing: pass --sasl-oauthbearer-client-secret-file",
        ),
        (
            {**OAUTH, URL: "file:///t", ID: "me"},
            "is a file: client id, secret and scope are for a token endpoint",
        ),
        ({**OAUTH, URL: "file:///t", "sasl_username_file": "file"}, "do not apply to OAUTHBEARER"),
        ({"bootstrap_servers": "k:1", URL: "file:///t"}, "--sasl-mechanism is missing"),
        (
            {"bootstrap_servers": "k:1", "sasl_mechanism": "PLAIN", URL: "file:///t"},
            "apply to --sasl-mechanism OAUTHBEARER only",
        ),
        ({**OAUTH, URL: "file:///t"}, "refusing to send the token to k:1 in plain text"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any], says: str, file: Path) -> None:
    given = {name: file if value == "file" else value for name, value in given.items()}
    with pytest.raises(WrongUsage, match=says):
        access(**{"bootstrap_servers": "rota://127.0.0.2.example", **given})


def test_a_password_goes_in_the_open_to_this_machine_only(file: Path) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username_file": file, "sasl_password_file": file}
    found = access(bootstrap_servers="127.0.0.1:9092", **login).login
    assert found is not None
    assert (found.username, found.password) == ("content", "content")
    with pytest.raises(WrongUsage, match="refusing to send the password to far:9092 in plain text"):
        access(bootstrap_servers="localhost:9092,far:9092", **login)
    assert access(bootstrap_servers="far:9092", insecure=True, **login).login
    scram: dict[str, Any] = {**login, "sasl_mechanism": "SCRAM-SHA-512"}
    assert access(bootstrap_servers="far:9092", **scram).login


def test_a_client_secret_comes_from_a_file_or_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = {**OAUTH, URL: "https://idp", ID: "me", "tls": True}
    monkeypatch.delenv("ROTA_SASL_OAUTHBEARER_CLIENT_SECRET", raising=False)
    of_file = access(**client, sasl_oauthbearer_client_secret_file=file).login
    assert of_file is not None
    assert of_file.oauth.client_secret_file == file
    monkeypatch.setenv("ROTA_SASL_OAUTHBEARER_CLIENT_SECRET", "canary")
    found = access(**client)
    assert found.login is not None
    assert found.login.oauth.client_secret == "canary"
    assert "canary" not in repr(found)


def test_a_kerberos_login_needs_neither_a_password_nor_tls(file: Path) -> None:
    cached = access(bootstrap_servers="far:9092", sasl_mechanism="GSSAPI").login
    assert cached == SaslLogin("GSSAPI")
    kept = access(
        bootstrap_servers="far:9092",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name="kavka",
        sasl_kerberos_principal="me",
        sasl_kerberos_keytab=file,
    ).login
    assert kept == SaslLogin("GSSAPI", kerberos=KerberosLogin("kavka", "me", file))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"ca\.crt does not exist"):
        access(tls_ca=tmp_path / "ca.crt")
    with pytest.raises(Failure, match=r"cannot read .*password"):
        access(bootstrap_servers="k", sasl_mechanism="PLAIN", sasl_password_file=tmp_path / "password")
