"""`Record.deliveries`: how often a record was delivered, this time included."""

from pathlib import Path
from typing import Any

import pytest

import rota
from rota.testing import Group
from tests.sdk.consumer.delivery_counts import counts_of_retries
from tests.sdk.consumer.reading import fill, read
from tests.support.coordinator import QUICK, serving


def test_each_retry_counts_and_the_next_record_begins_at_one() -> None:
    seen: list[tuple[bytes, int]] = []

    @rota.handler("orders")
    def note(record: rota.Record[Any, Any]) -> None:
        seen.append((record.value, record.deliveries))
        if record.value == b"a" and record.deliveries < 3:
            raise rota.Retry

    with Group(partitions=1) as group:
        for value in (b"a", b"b"):
            group.send("orders", value)
        group.run(note)
    assert seen == [(b"a", 1), (b"a", 2), (b"a", 3), (b"b", 1)]


def test_polled_records_have_it(group: Group) -> None:
    fill(group, 3)
    with group.consumer("orders") as consumer:
        assert [record.deliveries for record in read(consumer, 3)] == [1, 1, 1]


def test_a_record_that_no_sidecar_delivered_has_none() -> None:
    assert rota.Record("orders", 0, 0, 0, None, b"", ()).deliveries == 0


@pytest.mark.process
def test_the_sidecar_of_a_handler_counts_its_retries(tmp_path: Path) -> None:
    with serving(tmp_path, QUICK) as coordinator:
        servers = f"rota://{coordinator.address}"
        rota.create_topics(servers, {"orders": 1})
        assert counts_of_retries("orders", servers, tmp_path) == [1, 2, 3]
        with rota.LogReader(servers) as reader:
            (batch,) = reader.read("orders", 0)
            assert [record.deliveries for record in batch] == [0]
