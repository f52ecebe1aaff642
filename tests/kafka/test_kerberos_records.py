"""A consumer of the SDK with Kerberos: its own sidecar reads records, over several sessions and tickets."""

import pytest
from confluent_kafka import Producer

import rota
from tests.kafka.kerberos_realm import ALLOWED, PARTITIONS, TOPIC, allow, kerberized, realm, security
from tests.kafka.sidecar_group import WITHIN_S
from tests.sdk.consumer.own_sidecar import values
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

RECORDS = 20
# Of sessions and tickets.
SESSION_MS, LIFETIME_S = 3_000, 10


def write(kafka: Kafka, *numbers: int) -> None:
    producer = Producer(kafka.client_config())
    for number in numbers:
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0


def test_records_are_read_and_committed_over_sessions_and_tickets() -> None:
    with kerberized("kerberos-tls", {"connections.max.reauth.ms": str(SESSION_MS)}) as kafka:
        keytab = realm(kafka).add("reader", lifetime=f"{LIFETIME_S}s")
        allow(kafka, "reader")
        write(kafka, *range(RECORDS))
        with rota.Consumer(
            TOPIC,
            group_id=f"{ALLOWED}readers",
            bootstrap_servers=kafka.bootstrap,
            security_protocol="SASL_SSL",
            ssl_cafile=str(security(kafka).ca),
            sasl_mechanism="GSSAPI",
            sasl_kerberos_principal="reader",
            sasl_kerberos_keytab=str(keytab),
        ) as consumer:
            assert sorted(values(consumer, RECORDS)) == list(range(RECORDS))
            consumer.commit()
            for _ in range(LIFETIME_S + 3):
                assert consumer.poll(timeout_ms=1_000) == {}
            write(kafka, RECORDS)
            assert values(consumer, 1) == [RECORDS]
            consumer.commit()
        # Each session begins with a login, and each login has a ticket with 30 s and more to live, or gets another one.
        assert realm(kafka).tickets_issued("reader") > LIFETIME_S * 1000 // SESSION_MS
