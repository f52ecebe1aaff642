"""Executors read ranges of Rota's log: compressed batches as all others, and records that were sent alone together."""

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow
import pytest

import rota
from rota import Records
from rota_proto.log.v1 import log_pb2
from rota_spark.columns import RECORDS_MAX, Columns
from rota_spark.core.plan import Range
from rota_spark.rota_records import RotaRecords
from tests.support.coordinator import Coordinator, serving
from tests.support.records import batch, produce

pytestmark = pytest.mark.process

VALUES = [b'{"order": %d}' % number for number in range(2_000)]
ALONE = 50
UNKNOWN_CODEC = 99


@contextmanager
def orders(folder: Path) -> Iterator[tuple[Coordinator, RotaRecords]]:
    """Serve an empty topic, and open it as an executor does."""
    with serving(folder) as coordinator:
        coordinator.make_topic("orders", 1)
        with closing(RotaRecords(f"rota://{coordinator.address}", read_committed=True)) as records:
            yield coordinator, records


def column(name: str, batches: Iterable[pyarrow.RecordBatch]) -> list[object]:
    """Return a column of all batches."""
    return [each for batch in batches for each in batch[name].to_pylist()]


def test_an_executor_reads_its_range_of_compressed_batches(tmp_path: Path) -> None:
    with orders(tmp_path) as (coordinator, records):
        with rota.Producer(f"rota://{coordinator.address}", compression_type="gzip") as producer:
            producer.send_many("orders", VALUES)
        (found,) = records.ranges(["orders"])
        assert found == Range("orders", 0, 0, len(VALUES))
        assert column("value", records.read(found._replace(start=7, end=1_900))) == VALUES[7:1_900]


def test_records_that_were_sent_alone_share_an_arrow_batch_with_their_neighbours(tmp_path: Path) -> None:
    alone = [f"alone {number}" for number in range(ALONE)]
    many = [f"many {number}" for number in range(RECORDS_MAX + ALONE)]
    with orders(tmp_path) as (coordinator, records):
        produce(coordinator.address, "orders", 0, *(batch([value], keys=[value]) for value in alone))
        produce(coordinator.address, "orders", 0, batch(many))
        produce(coordinator.address, "orders", 0, *(batch([value]) for value in alone))
        (found,) = records.ranges(["orders"])
        wanted = found._replace(start=3, end=found.end - 2)
        read = [*records.read(wanted)]
    assert column("value", read) == [each.encode() for each in (*alone, *many, *alone)][3:-2]
    assert column("offset", read) == [*range(wanted.start, wanted.end)]
    keys = [each.encode() for each in alone[3:]] + [None] * (wanted.records - ALONE + 3)
    assert column("key", read) == keys
    assert [each.num_rows for each in read] == [RECORDS_MAX, wanted.records - RECORDS_MAX]


def test_a_batch_behind_the_end_of_a_range_is_not_decompressed() -> None:
    in_range = batch(["one", "two"])
    behind = log_pb2.RecordBatch(base_offset=2, count=1, codec=UNKNOWN_CODEC)
    fetched = [Records("orders", 0, each, 0) for each in (in_range, behind)]

    assert column("value", Columns().batches(fetched, end=2)) == [b"one", b"two"]
    with pytest.raises(rota.errors.NotSupported, match="codec"):
        [*Columns().batches(fetched, end=3)]
