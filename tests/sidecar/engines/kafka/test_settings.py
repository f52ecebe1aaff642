"""Settings of a Kafka cluster, and the sources of user and password."""

from pathlib import Path

import pytest

from rota_sidecar.engines.kafka.settings import Address, Credentials, KafkaSettings, Sasl, TlsFiles
from rota_sidecar.engines.port import Refused


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kafka:9092", Address("kafka", 9092)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:9092", Address("::1", 9092)),
    ],
)
def test_addresses_are_read_and_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:x", "::1:9092"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="of a Kafka broker; give host:port, such as kafka:9092"):
        KafkaSettings(bootstrap=("kafka:9092", text))


def test_at_least_one_broker_is_named() -> None:
    with pytest.raises(ValueError, match="no bootstrap server is set; give at least one host:port"):
        KafkaSettings(bootstrap=())


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("127.evil.example", False),
    ],
)
def test_loopback_is_known_by_its_address(host: str, loopback: bool) -> None:
    assert Address(host, 9092).is_loopback == loopback


def test_a_client_certificate_needs_its_key() -> None:
    with pytest.raises(ValueError, match="a client certificate and its key go together"):
        TlsFiles(certificate=Path("client.crt"))


def test_secrets_come_from_files_first_and_are_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    sasl = Sasl("PLAIN", user="orders", password="from the environment", password_file=file)
    assert sasl.credentials() == Credentials("orders", "first")
    file.write_text("second")
    assert sasl.credentials() == Credentials("orders", "second")


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(KafkaSettings(("kafka:9092",), sasl=Sasl("PLAIN", "orders", "hunter2")))


def test_a_secret_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="of the Kafka password cannot be read"):
        Sasl("PLAIN", "orders", password_file=tmp_path / "none").credentials()
    with pytest.raises(Refused, match="the login to Kafka needs a user, but it is not set; set it in a file"):
        Sasl("PLAIN", password="x").credentials()
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(Refused, match=r"the login to Kafka needs a password, but .* is empty"):
        Sasl("PLAIN", "orders", password_file=empty).credentials()
    empty.write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match="is not UTF-8 text"):
        Sasl("PLAIN", "orders", password_file=empty).credentials()
