"""Connection flags that do not go together are refused before any server is dialled."""

from pathlib import Path
from typing import Any

import pytest

from rota_cli.clusters.connection import Connection
from rota_cli.commands.connection_flags import ConnectionFlags
from rota_cli.errors import Failure, NotFound, WrongUsage


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
            {"bootstrap_servers": "k:1", "sasl_mechanism": "GSSAPI"},
            "--sasl-mechanism GSSAPI: expected one of",
        ),
        ({"bootstrap_servers": "k:1", "sasl_mechanism": "PLAIN"}, "the SASL username is missing"),
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


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"ca\.crt does not exist"):
        access(tls_ca=tmp_path / "ca.crt")
    with pytest.raises(Failure, match=r"cannot read .*password"):
        access(bootstrap_servers="k", sasl_mechanism="PLAIN", sasl_password_file=tmp_path / "password")
