"""Limits of a fetch as librdkafka's properties, and librdkafka's own opinion of them."""

import pytest
from confluent_kafka import Consumer

from rota_sidecar.engines.kafka.consumption import TUNING
from rota_sidecar.engines.kafka.reading import fetch_config
from rota_sidecar.engines.records import UNLIMITED, FetchLimits


def test_without_limits_the_client_keeps_its_own() -> None:
    own = {name: TUNING[name] for name in ("fetch.wait.max.ms",)}
    assert fetch_config(UNLIMITED) == {"fetch.min.bytes": 1, **own}


def test_whoever_waits_for_bytes_waits_as_long_as_kafkas_consumer() -> None:
    assert fetch_config(FetchLimits(min_bytes=1_000))["fetch.wait.max.ms"] == 500
    assert fetch_config(FetchLimits(min_bytes=1_000, max_wait_ms=20))["fetch.wait.max.ms"] == 20


@pytest.mark.parametrize("max_bytes", [1, 1_000, 999_999, 1_000_000, 50 << 20, 1 << 30])
def test_librdkafka_accepts_every_limit(max_bytes: int) -> None:
    limits = fetch_config(FetchLimits(min_bytes=100_000_000, max_bytes=max_bytes, max_wait_ms=30_000))
    Consumer({**TUNING, **limits, "group.id": "check", "log_level": 0}).close()
    assert limits["fetch.max.bytes"] == max(max_bytes, 1_000)
