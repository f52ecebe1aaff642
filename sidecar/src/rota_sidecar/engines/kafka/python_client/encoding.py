"""Encodes records as a record batch of Kafka, without compression. Called by `writing.py`; `record_set.py` decodes them."""

from collections.abc import Sequence

from rota_sidecar.engines.kafka.python_client.crc32c import crc32c
from rota_sidecar.engines.kafka.python_client.record_set import CHECKED_FROM, HEADER, LENGTH_END, MAGIC
from rota_sidecar.engines.records import DeadLetter

# A batch of a producer without idempotence; the broker sets base offset and leader epoch.
NO_PRODUCER = -1
NO_EPOCH = -1
NULL = b"\x01"


def encode(records: Sequence[DeadLetter]) -> bytes:
    """Return the records as one batch; their topics are ignored."""
    times = [max(each.timestamp_ms, 0) for each in records]
    body = b"".join(
        _record(each, offset, time - times[0])
        for offset, (each, time) in enumerate(zip(records, times, strict=True))
    )
    count = len(records)
    size = HEADER.size + len(body) - LENGTH_END
    last = count - 1

    def header(crc: int) -> bytes:
        return HEADER.pack(
            0,
            size,
            NO_EPOCH,
            MAGIC,
            crc,
            0,
            last,
            times[0],
            max(times),
            NO_PRODUCER,
            NO_EPOCH,
            NO_EPOCH,
            count,
        )

    return header(crc32c(header(0)[CHECKED_FROM:] + body)) + body


def _record(record: DeadLetter, offset: int, delta_ms: int) -> bytes:
    headers = (part for name, value in record.headers for part in (_blob(name.encode()), _blob(value)))
    fields = (
        b"\0",  # attributes
        varint(delta_ms),
        varint(offset),
        _blob(record.key),
        _blob(record.value),
        varint(len(record.headers)),
        *headers,
    )
    body = b"".join(fields)
    return varint(len(body)) + body


def _blob(value: bytes | None) -> bytes:
    return NULL if value is None else varint(len(value)) + value


def varint(number: int) -> bytes:
    """Return a signed number as a varint: seven bits a byte, lowest first, and the sign in the lowest bit."""
    rest = number << 1 ^ number >> 63
    found = bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
