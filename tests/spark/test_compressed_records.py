"""Executors read compressed batches of Rota's log as all others."""

from pathlib import Path

import pytest

import rota
from rota_spark.core.plan import Range
from rota_spark.rota_records import RotaRecords
from tests.support.coordinator import serving

pytestmark = pytest.mark.process

VALUES = [b'{"order": %d}' % number for number in range(2_000)]


def test_an_executor_reads_its_range_of_compressed_batches(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        address = f"rota://{coordinator.address}"
        rota.create_topics(address, {"orders": 1})
        with rota.Producer(address, compression_type="gzip") as producer:
            producer.send_many("orders", VALUES)
        records = RotaRecords(address, read_committed=True)
        try:
            (found,) = records.ranges(["orders"])
            assert found == Range("orders", 0, 0, len(VALUES))
            wanted = found._replace(start=7, end=1_900)
            values = [each for batch in records.read(wanted) for each in batch["value"].to_pylist()]
        finally:
            records.close()
    assert values == VALUES[7:1_900]
