"""
A consumer whose partitions stand still, each for a reason of its own: what it logs, and what its polls raise.

The same story on Rota and on Kafka: one topic is missing, the dead-letter topic is missing, of one partition an offset has expired,
of one nothing is committed, and one goes on.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota import errors

POLL_MS = 500
POLLS_MAX = 60
EXPIRED, UNKNOWN, FINE = range(3)
RECORDS = 6


class Poller:
    """Polls, and keeps what is returned and raised."""

    def __init__(self, consumer: rota.Consumer) -> None:
        self._consumer = consumer
        self.records: list[rota.Record[Any, Any]] = []
        self.raised: list[errors.RotaError] = []

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            if holds():
                return
            try:
                for records in self._consumer.poll(timeout_ms=POLL_MS).values():
                    self.records += records
            except errors.RotaError as error:
                self.raised.append(error)
        pytest.fail(f"after {POLLS_MAX} polls: {self.raised}, {self.records}")

    @property
    def named(self) -> set[tuple[str, int]]:
        """The partitions of all errors."""
        return {partition for error in self.raised for partition in error.partitions}


def has(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    """Return True if a warning has this text."""
    return any(each.levelno == logging.WARNING and text in each.getMessage() for each in caplog.records)


def each_is_said(topic: str, servers: str, caplog: pytest.LogCaptureFixture) -> None:
    """All records of the partition EXPIRED were deleted."""
    missing, dead_letter_topic = f"{topic}-missing", f"{topic}-letters"
    expired, unknown, fine = (rota.TopicPartition(topic, number) for number in (EXPIRED, UNKNOWN, FINE))
    settings: Any = {
        "group_id": topic,
        "bootstrap_servers": servers,
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "sidecar_flags": [f"--dead-letter-topic={dead_letter_topic}"],
    }
    with rota.Consumer(topic, missing, **settings) as consumer:
        poller = Poller(consumer)
        poller.until(lambda: poller.named == {expired, unknown, fine})
        assert {type(each) for each in poller.raised} == {errors.NoOffsetForPartition}
        assert poller.records == []
        poller.raised.clear()
        consumer.commit({expired: 1, fine: 0})
        poller.until(lambda: len(poller.records) == RECORDS and bool(poller.raised))
        assert {record.partition for record in poller.records} == {FINE}
        (error,) = poller.raised
        assert isinstance(error, errors.OffsetOutOfRange)
        assert error.partitions == (expired,)
        poller.until(lambda: has(caplog, missing) and has(caplog, dead_letter_topic))
        assert poller.raised == [error], "it is raised once"
    lost = f"group {topic} has no position to read from"
    assert has(caplog, f"{topic}-{EXPIRED}: {lost}: offset 1 is out of range")
    assert has(caplog, f"{topic}-{FINE}: {lost}: nothing is committed; seek")
    assert has(caplog, f"dead-letter topic {dead_letter_topic} does not exist: create it")
    assert has(caplog, f"subscribes to topics that do not exist: {missing}; create them")


def a_server_that_is_away_is_said(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    """A server that is away is reported with its address."""
    address = servers.removeprefix("rota://")
    with rota.Consumer("orders", group_id="orders", bootstrap_servers=servers) as consumer:
        Poller(consumer).until(lambda: has(caplog, address))
