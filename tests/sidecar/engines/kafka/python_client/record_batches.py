"""Record batches as brokers send them, written by kafka-python, for the tests of the Python client."""

from collections.abc import Sequence
from typing import NamedTuple

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from rota_sidecar.engines.kafka.python_client.crc32c import crc32c
from rota_sidecar.engines.kafka.python_client.decompression import NONE
from rota_sidecar.engines.kafka.python_client.record_set import CHECKED_FROM, HEADER
from tests.sidecar.engines.readers import Row

CRC_AT = 17
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
CONTROL_BIT, TRANSACTIONAL_BIT, APPEND_TIME_BIT = 0x20, 0x10, 0x08


class Producer(NamedTuple):
    """A transactional producer."""

    producer_id: int

    def batch(self, offset: int, *values: bytes) -> bytes:
        """Return a batch of a transaction."""
        return batch(rows(offset, *values), producer_id=self.producer_id, bits=TRANSACTIONAL_BIT)

    def marker(self, offset: int, key: bytes) -> bytes:
        """Return the control batch that ends a transaction."""
        row = Row(offset, b"\0\0\0\0\0\0", key, 1_000, ())
        return batch([row], producer_id=self.producer_id, bits=TRANSACTIONAL_BIT | CONTROL_BIT)


def rows(offset: int, *values: bytes | None) -> Sequence[Row]:
    """Return records with these values, from an offset on."""
    return [Row(offset + index, value, None, 1_000 + index, ()) for index, value in enumerate(values)]


def batch(
    records: Sequence[Row],
    *,
    end: int | None = None,
    codec: int = NONE,
    producer_id: int = -1,
    leader_epoch: int = 0,
    bits: int = 0,
) -> bytes:
    """Return one batch. With gaps, or an `end` after its last record, it is as compaction leaves it."""
    base = records[0].offset
    builder = DefaultRecordBatchBuilder(
        magic=2,
        # Compressed by the tests: kafka-python has not all codecs.
        compression_type=NONE,
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 30,
    )
    for offset, value, key, timestamp_ms, headers in records:
        builder.append(offset - base, timestamp_ms, key, value, list(headers))
    data = bytearray(builder.build())
    last = (records[-1].offset if end is None else end - 1) - base
    data[0:8] = base.to_bytes(8, "big")
    data[12:16] = leader_epoch.to_bytes(4, "big")
    data[21:23] = (codec | bits).to_bytes(2, "big")
    data[23:27] = last.to_bytes(4, "big")
    return sealed(data)


def with_records(data: bytes, records: bytes) -> bytes:
    """Return a batch with other bytes of records, such as compressed ones."""
    changed = bytearray(data[: HEADER.size]) + records
    changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
    return sealed(changed)


def sealed(data: bytearray) -> bytes:
    """Return a batch with the checksum of its bytes."""
    data[CRC_AT : CRC_AT + 4] = crc32c(bytes(data[CHECKED_FROM:])).to_bytes(4, "big")
    return bytes(data)


def valid_for_kafka_python(data: bytes) -> bool:
    """Return whether kafka-python accepts the checksum."""
    return bool(DefaultRecordBatch(data).validate_crc())
