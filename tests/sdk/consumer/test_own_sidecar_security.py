"""A consumer whose own sidecar proves who it is to Rota, over TLS: what works, and what an application is told when not."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import rota
from rota import errors
from rota.consumer.options import Settings
from tests.sdk.consumer.own_sidecar import failure_message, shown_to_all, values
from tests.support.certificates import Authority
from tests.support.coordinator import QUICK, serving

pytestmark = pytest.mark.process

TOKEN = "right-token-nobody-sees"
TOKENS = f"""\
application plain:{TOKEN} topics:orders consume:orders billing
"""
RECORDS = 20
WITHIN_S = 60


class Secured(NamedTuple):
    """A server behind TLS that knows one token, and the files that a caller needs."""

    address: str
    ca_file: Path
    token_file: Path

    @property
    def credentials(self) -> rota.Credentials:
        return rota.Credentials(ca_file=self.ca_file, token_file=self.token_file)

    def settings(self, credentials: rota.Credentials) -> Settings:
        """Of a consumer."""
        return {"group_id": "billing", "bootstrap_servers": self.address, "credentials": credentials}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    server = authority.issue("coordinator")
    tokens, token = folder / "tokens", folder / "token"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    token.write_text(TOKEN)
    flags = [*QUICK, f"--tls-cert={server.certificate}", f"--tls-key={server.key}", f"--tokens-file={tokens}"]
    with serving(folder, flags) as coordinator:
        known = Secured(f"rota://{coordinator.address}", authority.certificate, token)
        with rota.Topics(known.address, credentials=known.credentials) as topics:
            topics.create({"orders": 2})
        yield known


def test_records_come_over_tls_for_a_token_that_stands_nowhere_but_in_its_file(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with rota.Producer(secured.address, credentials=secured.credentials) as producer:
        producer.send_many("orders", [b"%d" % number for number in range(RECORDS)]).result(30)
    with rota.Consumer("orders", **secured.settings(secured.credentials)) as consumer:
        assert values(consumer, RECORDS) == list(range(RECORDS))
        consumer.commit()
        shown = shown_to_all(consumer)
    assert "joined generation" in caplog.text
    assert TOKEN not in shown + caplog.text


def test_a_token_that_the_server_does_not_know_is_said_and_not_shown(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    wrong = tmp_path / "token"
    wrong.write_text("wrong-token-nobody-sees")
    said = failure_message(
        "orders", secured.settings(rota.Credentials(ca_file=secured.ca_file, token_file=wrong))
    )
    assert "cannot authenticate this client" in said
    assert "give a valid token or client certificate" in said
    assert "wrong-token" not in said + caplog.text


def test_a_token_file_that_is_not_there_is_named(secured: Secured, tmp_path: Path) -> None:
    said = failure_message(
        "orders", secured.settings(rota.Credentials(ca_file=secured.ca_file, token_file=tmp_path / "token"))
    )
    assert f"{tmp_path}/token" in said
    assert "cannot be read (No such file or directory)" in said


def test_a_server_of_an_untrusted_authority_is_refused(secured: Secured, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    said = failure_message(
        "orders",
        secured.settings(rota.Credentials(ca_file=foreign.certificate, token_file=secured.token_file)),
    )
    assert f"the certificate of {secured.address.removeprefix('rota://')} is not trusted" in said


def test_a_ca_that_is_no_certificate_is_named(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nothing")
    said = failure_message(
        "orders",
        secured.settings(rota.Credentials(ca_file=tmp_path / "ca.crt", token_file=secured.token_file)),
    )
    assert f"{tmp_path}/ca.crt" in said


def test_handlers_and_async_consumers_get_the_same_message(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong-token")
    settings = secured.settings(rota.Credentials(ca_file=secured.ca_file, token_file=tmp_path / "token"))

    @rota.handler("orders")
    def work(record: rota.Record[bytes, bytes]) -> None:
        raise AssertionError(record)

    async def poll() -> None:
        async with rota.AsyncConsumer("orders", **settings) as consumer:
            async for record in consumer:
                raise AssertionError(record)

    with pytest.raises(errors.SidecarFailed, match="cannot authenticate this client"):
        rota.run(work, **settings)
    with pytest.raises(errors.SidecarFailed, match="cannot authenticate this client"):
        asyncio.run(asyncio.wait_for(poll(), WITHIN_S))
