"""
Records as CloudEvents in HTTP's binary mode: the attributes are headers, the record's value is the body.

Used by `http_delivery`. Bytes that a header cannot carry are percent-encoded, as the HTTP binding of CloudEvents requires;
bytes of keys and headers that are not UTF-8 as well, so that they are preserved.
"""

from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from rota_proto.log.columns import Columns, Headers
from rota_sidecar.core.member.partitions import Partition

TYPE = "dev.rota.record"
CONTENT_TYPE = "content-type"
OPAQUE = "application/octet-stream"
# Limit of all header names and values together; most servers accept no more.
HEAD_BYTES_MAX = 32 << 10
# The characters that are not percent-encoded: all printable ones except space, quotation mark and percent sign.
PLAIN = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")
# Characters of a header's name beside letters and digits, without the percent sign.
TOKEN = "!#$&'*+-.^_`|~"
YEAR_10000_MS = 253_402_300_800_000


class TooLarge(ValueError):
    """The headers of a record exceed the limit."""


class Record(NamedTuple):
    """A record, taken out of its columns."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Event(NamedTuple):
    """Headers and body of an HTTP request."""

    headers: list[tuple[str, str]]
    body: bytes


def record_at(columns: Columns, index: int, base_timestamp_ms: int) -> Record:
    """Return the record at an index of the columns."""
    return Record(
        None if columns.keys is None else columns.keys[index],
        None if columns.values is None else columns.values[index],
        () if columns.headers is None else columns.headers[index],
        base_timestamp_ms if columns.timestamps_ms is None else columns.timestamps_ms[index],
    )


def event_of(partition: Partition, offset: int, record: Record, deliveries: int) -> Event:
    """Convert a record into a CloudEvent. Raises TooLarge."""
    headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", f"{partition.topic}/{partition.number}/{offset}"),
        ("ce-source", f"/topics/{partition.topic}"),
        ("ce-type", TYPE),
    ]
    headers += time_of(record.timestamp_ms)
    if record.key:
        headers.append(("ce-partitionkey", quote(record.key, safe=PLAIN)))
    headers.append(("rota-deliveries", str(deliveries)))
    content_type = OPAQUE
    for name, content in record.headers:
        text = quote(content or b"", safe=PLAIN)
        if name.lower() == CONTENT_TYPE:
            content_type = (content or b"").decode("ascii", "replace")
        else:
            headers.append((f"rota-header-{quote(name, safe=TOKEN)}", text))
    if record.value is None:
        headers.append(("rota-value-is-null", "true"))
    else:
        is_plain = content_type.isascii() and content_type.isprintable() and content_type
        headers.append((CONTENT_TYPE, content_type if is_plain else OPAQUE))
    size = sum(len(name) + len(text) for name, text in headers)
    if size > HEAD_BYTES_MAX:
        raise TooLarge(f"its key and headers have {size} bytes; an HTTP request has at most {HEAD_BYTES_MAX}")
    return Event(headers, record.value or b"")


def time_of(timestamp_ms: int) -> list[tuple[str, str]]:
    """Return the header with the record's timestamp; empty if it is unknown or out of range."""
    if not 0 <= timestamp_ms < YEAR_10000_MS:
        return []
    text = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return [("ce-time", text.replace("+00:00", "Z"))]
