"""A producer shows who it is, and trusts whom it was told to trust."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota import errors
from rota.connection import credentials_of_environment
from tests.support.certificates import Authority
from tests.support.coordinator import QUICK, Coordinator, serving

pytestmark = pytest.mark.process

WITHIN_S = 60
TOKENS = """\
writer plain:right-token topics:orders*
"""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server behind TLS, and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    server = authority.issue("coordinator")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    flags = [*QUICK, f"--tls-cert={server.certificate}", f"--tls-key={server.key}", f"--tokens-file={tokens}"]
    with serving(folder, flags) as coordinator:
        yield f"rota://{coordinator.address}", authority.certificate


def test_a_token_is_shown_with_every_call_and_read_anew(secured: tuple[str, Path], tmp_path: Path) -> None:
    address, ca_file = secured
    token_file = tmp_path / "token"
    token_file.write_text("right-token\n")
    credentials = rota.Credentials(ca_file=ca_file, token_file=token_file)
    with rota.Topics(address, credentials=credentials) as topics:
        topics.create({"orders": 1})

    with rota.Producer(address, credentials=credentials, linger_ms=0) as producer:
        assert producer.send("orders", b"x").result(WITHIN_S).offset == 0
        token_file.write_text("wrong-token")
        assert isinstance(producer.send("orders", b"x").exception(WITHIN_S), errors.AuthenticationFailed)
        token_file.unlink()
        missing = producer.send("orders", b"x").exception(WITHIN_S)
        assert isinstance(missing, errors.AuthenticationFailed)
        assert "cannot be read (No such file or directory)" in str(missing)
        token_file.write_text("right-token")
        assert producer.send("orders", b"x").result(WITHIN_S).offset == 1


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.AuthenticationFailed, match=r"ca\.crt.* cannot be read"):
        rota.Producer("rota://127.0.0.1:1", credentials=rota.Credentials(ca_file=tmp_path / "ca.crt"))


def test_what_was_not_granted_is_named(secured: tuple[str, Path], tmp_path: Path) -> None:
    address, ca_file = secured
    token_file = tmp_path / "token"
    token_file.write_text("right-token")
    credentials = rota.Credentials(ca_file=ca_file, token_file=token_file)
    with (
        rota.Topics(address, credentials=credentials) as topics,
        pytest.raises(errors.TopicAuthorizationFailed, match="secrets"),
    ):
        topics.create({"secrets": 1})


def test_a_server_of_an_untrusted_authority_is_refused(secured: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = secured
    foreign = Authority(tmp_path / "foreign")
    credentials = rota.Credentials(ca_file=foreign.certificate)
    with (
        rota.Producer(address, credentials=credentials, max_block_ms=500) as producer,
        pytest.raises(errors.Disconnected),
    ):
        producer.send("orders", b"x")


def test_the_variables_of_a_pod_are_the_default(
    secured: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, ca_file = secured
    token_file = tmp_path / "token"
    token_file.write_text("right-token\n")
    monkeypatch.setenv("ROTA_TLS_CA", str(ca_file))
    monkeypatch.setenv("ROTA_TOKEN_FILE", str(token_file))
    with rota.Topics(address) as topics, rota.Producer(address, linger_ms=0) as producer:
        topics.create({"orders-of-a-pod": 1})
        assert producer.send("orders-of-a-pod", b"x").result(WITHIN_S).offset == 0
        token_file.write_text("wrong-token")
        refused = producer.send("orders-of-a-pod", b"x").exception(WITHIN_S)
        assert isinstance(refused, errors.AuthenticationFailed), "the token is read anew"
    with (
        rota.Topics(address, credentials=rota.Credentials(ca_file=ca_file)) as topics,
        pytest.raises(errors.AuthenticationFailed, match="has no token"),
    ):
        topics.describe()


def test_empty_variables_are_none() -> None:
    assert credentials_of_environment({"ROTA_TLS_CA": "", "ROTA_TOKEN_FILE": ""}) == rota.Credentials()
    assert credentials_of_environment({"ROTA_TOKEN_FILE": "t"}) == rota.Credentials(token_file=Path("t"))


def test_an_authority_that_is_replaced_is_trusted_by_a_running_producer(tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    served = old.issue("coordinator")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(old.certificate.read_bytes())
    flags = [*QUICK, f"--tls-cert={served.certificate}", f"--tls-key={served.key}"]
    coordinator = Coordinator(tmp_path, flags)
    coordinator.start()
    address = coordinator.address
    credentials = rota.Credentials(ca_file=ca_file)
    with rota.Topics(f"rota://{address}", credentials=credentials) as topics:
        topics.create({"orders": 1})
        with rota.Producer(f"rota://{address}", credentials=credentials, linger_ms=0) as producer:
            assert producer.send("orders", b"x").result(WITHIN_S).offset == 0
            # The connection is lost with the process, and the next one has a certificate of the new authority.
            served.replace(new.issue("coordinator"))
            ca_file.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
            coordinator.stop()
            coordinator.start(f"--listen={address}")
            assert producer.send("orders", b"y").result(WITHIN_S).offset == 1
    coordinator.stop()
