"""SASL with Kerberos (RFC 4752): the exchange with a scripted context, the offers of layers, and the failures with their remedies."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rota_sidecar.engines.kafka import kerberos
from rota_sidecar.engines.kafka.kerberos import Login, exchange, failure_of, layer_answer
from rota_sidecar.engines.kafka.scram import Unproved
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.port import Refused, Unreachable

LOGIN = Login("rota", Path("/etc/rota/keytab"), "kafka", Address("broker-1", 9092))
CODES = {
    name: code
    for name, code in vars(kerberos).items()
    if name.isupper() and isinstance(code, int) and code < 0 and name != "PROTOCOL"
}


@dataclass
class Scripted:
    """A context that is established after the last of its tokens."""

    tokens: Iterator[bytes]
    steps: int
    mutual: bool = True
    offer: bytes = b"\x01\x01\x00\x00"
    received: list[bytes] = field(default_factory=list)
    established: bool = False

    def step(self, token: bytes) -> bytes:
        self.received.append(token)
        self.established = len(self.received) == self.steps
        return next(self.tokens)

    def unwrap(self, message: bytes) -> bytes:
        self.received.append(message)
        return self.offer

    def wrap(self, content: bytes) -> bytes:
        return b"signed " + content


def test_the_exchange_is_tokens_then_the_answer_to_the_offer() -> None:
    context = Scripted(iter([b"request", b""]), steps=2)
    login = exchange(context)
    assert next(login) == b"request"
    assert login.send(b"reply") == b"", "the server waits for a message before its offer"
    assert login.send(b"offer") == b"signed \x01\0\0\0"
    with pytest.raises(StopIteration):
        login.send(b"")
    assert context.received == [b"", b"reply", b"offer"]


def test_a_context_may_take_more_or_fewer_steps() -> None:
    longer = exchange(Scripted(iter([b"1", b"2", b"3"]), steps=3))
    assert [next(longer), longer.send(b"a"), longer.send(b"b")] == [b"1", b"2", b"3"]
    assert longer.send(b"offer").startswith(b"signed")
    shorter = exchange(Scripted(iter([b"1"]), steps=1))
    assert next(shorter) == b"1"
    assert shorter.send(b"offer").startswith(b"signed")


def test_a_server_that_does_not_authenticate_itself_is_refused() -> None:
    login = exchange(Scripted(iter([b"request", b""]), steps=2, mutual=False))
    next(login)
    with pytest.raises(Unproved, match="does not authenticate itself"):
        login.send(b"reply")


@pytest.mark.parametrize("layers", [1, 3, 5, 7])
def test_no_security_layer_is_chosen_wherever_it_is_offered(layers: int) -> None:
    assert layer_answer(bytes([layers, 0, 1, 0])) == b"\x01\0\0\0"


@pytest.mark.parametrize(
    ("offer", "message"),
    [
        (
            b"\x06\x00\x01\x00",
            r"requires a security layer; set its quality of protection \(sasl.qop\) to auth",
        ),
        (b"", "its offer of security layers is malformed"),
        (b"\x01\x00\x00\x00\x00", "its offer of security layers is malformed"),
    ],
)
def test_other_offers_are_refused(offer: bytes, message: str) -> None:
    with pytest.raises(Unproved, match=message):
        layer_answer(offer)


@pytest.mark.parametrize("name", CODES)
def test_each_failure_names_the_broker_the_reason_and_a_remedy(name: str) -> None:
    said = str(failure_of(CODES[name], "the library's text", LOGIN))
    reason, remedy = said.split("; ")
    assert reason.startswith("the Kerberos login to Kafka at broker-1:9092 ")
    assert reason.endswith(" (the library's text)")
    assert remedy.split()[0] in {"check", "have", "run", "synchronize", "write"}
    assert not remedy.endswith(".")


@pytest.mark.parametrize(
    "name",
    [
        "KDC_UNREACHABLE",
        "REALM_UNRESOLVED",
        "CLOCK_SKEW",
        "TICKET_NOT_YET_VALID",
        "TICKET_EXPIRED",
    ],
)
def test_failures_that_heal_are_retried(name: str) -> None:
    assert isinstance(failure_of(CODES[name], "", LOGIN), Unreachable)


def test_failures_of_the_settings_are_not() -> None:
    for name in ("CLIENT_UNKNOWN", "SERVICE_UNKNOWN", "PREAUTHENTICATION_FAILED", "CONFIG_MALFORMED"):
        assert isinstance(failure_of(CODES[name], "", LOGIN), Refused)


@pytest.mark.parametrize("name", ["CACHE_NOT_FOUND", "CACHE_FILE_MISSING"])
def test_no_tickets_are_awaited_from_kinit_and_are_a_wrong_realm_of_a_keytab(name: str) -> None:
    cached = failure_of(CODES[name], "", LOGIN._replace(keytab=None))
    assert isinstance(cached, Unreachable)
    assert str(cached).endswith("run kinit, or give a keytab")
    kept = failure_of(CODES[name], "", LOGIN)
    assert isinstance(kept, Refused)
    assert str(kept).endswith("is of the default realm of krb5.conf, or give the principal with its realm")


def test_an_unknown_failure_is_retried() -> None:
    assert isinstance(failure_of(1, "any", LOGIN), Unreachable)


def test_the_client_is_named_by_what_is_known() -> None:
    assert LOGIN.who == "principal 'rota'"
    assert LOGIN._replace(principal="").who == "the keytab /etc/rota/keytab"
    assert LOGIN._replace(principal="", keytab=None).who == "the credential cache"
    assert LOGIN.service == "kafka/broker-1"
