"""Sidecars on brokers with Kerberos, as processes: over expired tickets, without a KDC, with a wrong clock, without rights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.kerberos_realm import PARTITIONS, allow, kerberized, process, realm
from tests.kafka.sidecar_group import WITHIN_S
from tests.support.kafka import Kafka
from tests.support.processes import steady_ms, wait_for
from tests.support.sidecar import running as running_sidecar

pytestmark = pytest.mark.kafka

BRIEF_S = 10


@pytest.fixture(scope="module")
def kerberos() -> Iterator[Kafka]:
    """Brokers without TLS."""
    with kerberized("kerberos") as kafka:
        yield kafka


def test_a_sidecar_goes_on_over_expired_tickets_and_a_restarted_broker(
    kerberos: Kafka, tmp_path: Path
) -> None:
    realm(kerberos).add("worker", lifetime=f"{BRIEF_S}s")
    allow(kerberos, "worker")
    ours = process(kerberos, tmp_path, "worker")
    with running_sidecar(ours):
        held = ours.wait_until_it_has(PARTITIONS)
        first_ms = steady_ms()
        issued = realm(kerberos).tickets_issued("worker")
        wait_for(
            "the first tickets have expired",
            lambda: steady_ms() - first_ms > BRIEF_S * 1000,
            within_s=2 * BRIEF_S,
        )
        assert ours.commit(dict.fromkeys(held, 7)) == {}, "a connection outlives the ticket of its login"
        kerberos.broker(1).stop()
        kerberos.broker(1).start()
        wait_for(
            "another login", lambda: realm(kerberos).tickets_issued("worker") > issued, within_s=WITHIN_S
        )
        wait_for(
            "a commit over the new connection",
            lambda: ours.commit(dict.fromkeys(held, 8)) == {},
            within_s=WITHIN_S,
        )
        assert ours.terminate() == 0


def test_a_sidecar_waits_for_a_kdc_that_is_away_at_its_start(kerberos: Kafka, tmp_path: Path) -> None:
    realm(kerberos).add("patient")
    allow(kerberos, "patient")
    realm(kerberos).stop()
    ours = process(kerberos, tmp_path, "patient")
    with running_sidecar(ours):
        try:
            said = ours.wait("problem", lambda event: "Cannot contact any KDC" in event["sentence"])
        finally:
            realm(kerberos).start()
        assert said["sentence"].endswith("; check the realm's KDC in krb5.conf, and the network")
        ours.wait_until_it_has(PARTITIONS)
        assert ours.terminate() == 0


def test_a_sidecar_whose_clock_is_ten_minutes_fast_takes_the_time_of_the_kdc(
    kerberos: Kafka, tmp_path: Path
) -> None:
    realm(kerberos).add("hasty")
    allow(kerberos, "hasty")
    ours = process(kerberos, tmp_path, "hasty", **realm(kerberos).clock("+600s"))
    with running_sidecar(ours):
        ours.wait_until_it_has(PARTITIONS)
        assert ours.terminate() == 0


def test_a_sidecar_that_is_refused_says_why_and_ends(kerberos: Kafka, tmp_path: Path) -> None:
    realm(kerberos).add("stale")
    realm(kerberos).renew_key("stale")
    ours = process(kerberos, tmp_path, "stale")
    with running_sidecar(ours):
        stopped = ours.wait("stopped")
        assert stopped["reason"].endswith("stale.keytab again, with the principal's current key")
        assert ours.wait_for_exit() == 1


def test_a_principal_without_rights_is_refused_for_its_rights_and_not_for_its_login(
    kerberos: Kafka, tmp_path: Path
) -> None:
    realm(kerberos).add("stranger")
    ours = process(kerberos, tmp_path, "stranger")
    with running_sidecar(ours):
        reason = ours.wait("stopped")["reason"]
        assert "answered GROUP_AUTHORIZATION_FAILED: grant this" in reason
        assert "login" not in reason
