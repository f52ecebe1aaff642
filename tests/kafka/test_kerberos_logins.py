"""Logins with Kerberos: where tickets come from, their renewal, and the message of each refused or failed login."""

import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rota_sidecar.engines.kafka.settings import Kerberos
from rota_sidecar.engines.port import Refused, Unreachable
from tests.kafka.kerberos_realm import failure, kerberized, log_in, realm, settings, with_login
from tests.kafka.sidecar_group import WITHIN_S
from tests.support.kafka import Kafka
from tests.support.kerberos import Realm
from tests.support.kerberos.realm import SERVICE
from tests.support.processes import wait_for

pytestmark = pytest.mark.kafka

# The library renews a ticket when half of its lifetime is over, or less than 30 s are left.
BRIEF_S = 20


@pytest.fixture(scope="module")
def kerberos() -> Iterator[Kafka]:
    """Brokers without TLS."""
    with kerberized("kerberos") as kafka:
        yield kafka


def test_the_first_principal_of_a_keytab_is_the_default(kerberos: Kafka) -> None:
    log_in(with_login(kerberos, Kerberos(keytab=realm(kerberos).keytab_path("rota"))))


def test_the_credential_cache_is_used_without_a_keytab(
    kerberos: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "tickets"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    login = with_login(kerberos, Kerberos())
    said = failure(login)
    assert isinstance(said, Unreachable)
    assert str(said).endswith("; run kinit, or give a keytab")
    realm(kerberos).kinit("rota", cache)
    log_in(login)


def test_tickets_are_renewed(kerberos: Kafka) -> None:
    realm(kerberos).add("brief", lifetime=f"{BRIEF_S}s")
    brief = settings(kerberos, "brief")
    logins = realm(kerberos).tickets_issued("brief")

    def renewed() -> bool:
        log_in(brief)
        return realm(kerberos).tickets_issued("brief") >= logins + 3

    wait_for("the third ticket", renewed, within_s=3 * BRIEF_S, poll_s=1)


def test_tickets_are_kept_for_other_logins(kerberos: Kafka) -> None:
    realm(kerberos).add("steady")
    for _ in range(3):
        log_in(settings(kerberos, "steady"))
    assert realm(kerberos).tickets_issued("steady") == 1


def test_a_wrong_service_name_is_refused_with_it(kerberos: Kafka) -> None:
    said = failure(settings(kerberos, service_name="kavka"))
    assert isinstance(said, Refused)
    assert str(said) == (
        f"the Kerberos login to Kafka at {kerberos.bootstrap} is impossible (Server kavka/localhost@ROTA.TEST not found "
        "in Kerberos database); check the service name 'kavka', and that localhost is the host of the broker's principal"
    )


def test_an_address_that_is_not_the_brokers_principal_is_refused(kerberos: Kafka) -> None:
    elsewhere = replace(settings(kerberos), bootstrap=(kerberos.bootstrap.replace("localhost", "127.0.0.1"),))
    said = failure(elsewhere)
    assert isinstance(said, Refused)
    assert str(said).endswith("and that 127.0.0.1 is the host of the broker's principal")


def test_a_principal_that_the_kdc_does_not_know_is_refused(kerberos: Kafka) -> None:
    realm(kerberos).add("gone")
    realm(kerberos).remove("gone")
    said = failure(settings(kerberos, "gone"))
    assert isinstance(said, Refused)
    assert (
        "(Client 'gone@ROTA.TEST' not found in Kerberos database); check principal 'gone' and the realm"
        in str(said)
    )


def test_an_outdated_keytab_is_refused(kerberos: Kafka) -> None:
    realm(kerberos).add("outdated")
    realm(kerberos).renew_key("outdated")
    said = failure(settings(kerberos, "outdated"))
    assert isinstance(said, Refused)
    assert str(said).endswith("outdated.keytab again, with the principal's current key")


def test_a_keytab_that_cannot_be_used_is_refused_by_name(kerberos: Kafka, tmp_path: Path) -> None:
    garbage, empty = tmp_path / "garbage", tmp_path / "empty"
    garbage.write_bytes(b"any")
    empty.write_bytes(b"\x05\x02")
    for keytab, principal, message in (
        (
            tmp_path / "none",
            "rota",
            "none cannot be read (No such file or directory); check its path and mode",
        ),
        (tmp_path, "rota", " cannot be read (Is a directory); check its path and mode"),
        (garbage, "rota", "garbage is not a keytab; write it with ktadd or ktutil"),
        (empty, "rota", "empty has no keys; write it again with ktadd or ktutil"),
        (
            realm(kerberos).keytab_path("rota"),
            "rota@OTHER.TEST",
            "has no key of principal 'rota@OTHER.TEST', but of rota@ROTA.TEST; give one of these",
        ),
    ):
        said = failure(settings(kerberos, principal, keytab))
        assert isinstance(said, Refused)
        assert message in str(said)


def test_a_keytab_of_another_realm_is_refused_or_its_kdc_missed(kerberos: Kafka, tmp_path: Path) -> None:
    other = Realm.make(tmp_path / "other", "OTHER.TEST")
    keytab = other.add("rota")
    said = failure(settings(kerberos, "rota", keytab))
    assert isinstance(said, Refused)
    assert str(said).endswith(
        f"check that the keytab {keytab} is of the default realm of krb5.conf, or give the principal with its realm"
    )
    said = failure(settings(kerberos, "rota@OTHER.TEST", keytab))
    assert isinstance(said, Unreachable)
    assert '(Cannot find KDC for realm "OTHER.TEST"); check the realm\'s KDC in krb5.conf' in str(said)


def test_a_kdc_that_is_away_is_unreachable_at_first_and_needless_while_there_are_tickets(
    kerberos: Kafka,
) -> None:
    realm(kerberos).add("early")
    realm(kerberos).add("late")
    early, late = settings(kerberos, "early"), settings(kerberos, "late")
    log_in(early)
    realm(kerberos).stop()
    try:
        log_in(early)
        said = failure(late)
        assert isinstance(said, Unreachable)
        assert str(said) == (
            f"the Kerberos login to Kafka at {kerberos.bootstrap} fails now (Cannot contact any KDC for realm "
            "'ROTA.TEST'); check the realm's KDC in krb5.conf, and the network"
        )
    finally:
        realm(kerberos).start()
    log_in(late)


def test_a_kdc_that_is_silent_is_said_in_bounded_time(
    kerberos: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm(kerberos).add("unanswered")
    config = tmp_path / "krb5.conf"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config.write_text(re.sub(r"kdc = \S+", f"kdc = {address}", realm(kerberos).config.read_text()))
        monkeypatch.setenv("KRB5_CONFIG", str(config))
        said = failure(settings(kerberos, "unanswered"), within_s=1)
    assert isinstance(said, Unreachable)
    assert str(said) == (
        f"no KDC has issued a ticket for Kafka at {kerberos.bootstrap} within 1 s; check the realm's KDC in krb5.conf, and "
        "the network"
    )


def test_a_kdc_that_is_away_when_tickets_expire_is_said_and_healed(kerberos: Kafka) -> None:
    realm(kerberos).add("fleeting", lifetime="3s")
    fleeting = settings(kerberos, "fleeting")
    log_in(fleeting)
    realm(kerberos).stop()
    try:
        said: list[str] = []

        def expired() -> bool:
            try:
                log_in(fleeting)
            except Unreachable as error:
                said.append(str(error))
            return bool(said)

        wait_for("the ticket has expired", expired, within_s=WITHIN_S, poll_s=0.5)
        assert "Cannot contact any KDC" in said[0]
    finally:
        realm(kerberos).start()
    log_in(fleeting)


def test_expired_tickets_of_a_credential_cache_are_said_and_healed_by_kinit(
    kerberos: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm(kerberos).add("cached", lifetime="3s")
    cache = tmp_path / "tickets"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    realm(kerberos).kinit("cached", cache)
    login = with_login(kerberos, Kerberos())
    said: list[str] = []

    def expired() -> bool:
        try:
            log_in(login)
        except Unreachable as error:
            said.append(str(error))
        return bool(said)

    wait_for("the ticket has expired", expired, within_s=WITHIN_S, poll_s=0.5)
    assert said[0].endswith("(Ticket expired); run kinit, or give a keytab")
    realm(kerberos).kinit("cached", cache)
    log_in(login)


def test_clocks_that_differ_by_ten_minutes_are_said(kerberos: Kafka) -> None:
    realm(kerberos).add("early-bird")
    realm(kerberos).stop()
    realm(kerberos).start(clock="+600s")
    try:
        said = failure(settings(kerberos, "early-bird"))
    finally:
        realm(kerberos).stop()
        realm(kerberos).start()
    assert isinstance(said, Refused)
    assert str(said) == (
        f"Kafka at {kerberos.bootstrap} rejects the login of principal 'early-bird' with GSSAPI; check that the broker's "
        "keytab has the current key of kafka/localhost, and that the clocks of the broker, this machine and the KDC agree "
        "within five minutes"
    )


def test_a_rejection_after_an_accepted_login_is_retried_until_the_clocks_agree(kerberos: Kafka) -> None:
    realm(kerberos).add("regular", lifetime=f"{BRIEF_S}s")
    regular = settings(kerberos, "regular")
    log_in(regular)
    realm(kerberos).stop()
    realm(kerberos).start(clock="+600s")
    try:
        said = failure(regular)
    finally:
        realm(kerberos).stop()
        realm(kerberos).start()
    assert isinstance(said, Unreachable)
    assert "this machine and the KDC agree within five minutes" in str(said)
    log_in(regular)


def test_a_key_that_the_broker_has_replaced_is_noticed_by_a_rejection(kerberos: Kafka) -> None:
    realm(kerberos).add("rotating")
    rotating = settings(kerberos, "rotating")
    log_in(rotating)
    realm(kerberos).replace_keytab(SERVICE)
    kerberos.broker(1).stop()
    kerberos.broker(1).start()
    said = failure(rotating)
    assert isinstance(said, Unreachable)
    assert "the broker's keytab has the current key of kafka/localhost" in str(said)
    log_in(rotating)
