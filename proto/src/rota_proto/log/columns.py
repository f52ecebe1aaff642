"""
Encode and decode the payload of a `RecordBatch` with codec 0: records, column by column.

Producers call `pack`, consumers `unpack`; the log calls `verify` before it appends a batch, and `first_at` to find a
timestamp. All operations work on whole columns, because Python statements per record would dominate the cost.

    payload   = flags (1 byte), then the columns whose flag is set, in this order
    timestamps = numbers: differences to the base timestamp of the batch, in milliseconds. Omitted if all are 0
    keys, values = blobs. Omitted if all are null
    headers   = numbers: headers of each record, then blobs: all names (UTF-8), then blobs: all values. Omitted if there
                are no headers
    numbers   = '=' and one int64 if all are equal, else 'b', 'h', 'i' or 'q' (as in `struct`, little-endian) for their
                width, then the numbers
    blobs     = numbers: the lengths, -1 for null, then the bytes one after the other
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise, repeat
from typing import NamedTuple

CODEC = 0
# A column of equal numbers takes ten bytes for any count: the limits prevent a short payload from exhausting memory.
RECORDS_MAX = 1_000_000
HEADERS_MAX = 1_000_000

TIMESTAMPS, KEYS, VALUES, HEADERS = 1, 2, 4, 8
KNOWN_FLAGS = TIMESTAMPS | KEYS | VALUES | HEADERS
SAME = b"="
WIDTHS = ((b"b", 0x7F), (b"h", 0x7FFF), (b"i", 0x7FFF_FFFF), (b"q", 0x7FFF_FFFF_FFFF_FFFF))
BYTES = bytes(range(256))
SAFE_BASE_MS = 1 << 62
SIZES = {b"b": 1, b"h": 2, b"i": 4, b"q": 8}

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


class MalformedPayload(ValueError):
    """The bytes were not written by `pack`, or were damaged; the message says how."""


class Columns(NamedTuple):
    """The records of one batch. Invariant: a column has one element for each record, or is None: null (headers: empty; timestamps: the base) in all records."""

    values: Sequence[bytes | None] | None = None
    keys: Sequence[bytes | None] | None = None
    timestamps_ms: Sequence[int] | None = None
    headers: Sequence[Headers] | None = None


def pack(columns: Columns, count: int, base_timestamp_ms: int) -> bytes:
    """
    Encode the payload of a batch of `count` records. Raises ValueError for columns of another length.

    >>> payload = pack(Columns(values=[b"a", None]), 2, 1_700_000_000_000)
    >>> unpack(payload, 2, 1_700_000_000_000).values
    [b'a', None]
    """
    _check(columns, count)
    flags = 0
    # All blobs, and not one after the other: the bytes of a large batch are copied and allocated once.
    parts: list[bytes] = []
    if columns.timestamps_ms is not None:
        low, high = min(columns.timestamps_ms), max(columns.timestamps_ms)
        if not low == high == base_timestamp_ms:
            flags |= TIMESTAMPS
            deltas = [time - base_timestamp_ms for time in columns.timestamps_ms]
            parts += _packed_numbers(deltas, low - base_timestamp_ms, high - base_timestamp_ms)
    for flag, blobs in ((KEYS, columns.keys), (VALUES, columns.values)):
        if blobs is not None and (nulls := blobs.count(None)) != count:
            flags |= flag
            _pack_blobs(blobs, nulls, parts)
    if columns.headers is not None and any(columns.headers):
        flags |= HEADERS
        together = list(chain.from_iterable(columns.headers))
        if len(together) > HEADERS_MAX:
            raise ValueError(
                f"a batch has at most {HEADERS_MAX:,} headers, not {len(together):,}: send smaller ones"
            )
        names, values = zip(*together, strict=True)
        counts = list(map(len, columns.headers))
        parts += _packed_numbers(counts, min(counts), max(counts))
        _pack_blobs([name.encode() for name in names], 0, parts)
        _pack_blobs(values, values.count(None), parts)
    return b"".join([bytes((flags,)), *parts])


def unpack(payload: bytes, count: int, base_timestamp_ms: int) -> Columns:
    """Decode a batch of `count` records. Raises MalformedPayload."""
    reader = _Reader(payload)
    flags = reader.flags(count)
    times = _timestamps(reader, flags, count, base_timestamp_ms)
    keys = reader.blobs(count) if flags & KEYS else None
    values = reader.blobs(count) if flags & VALUES else None
    headers = _headers(reader, count) if flags & HEADERS else None
    reader.check_end()
    return Columns(values, keys, times, headers)


def verify(payload: bytes, count: int, base_timestamp_ms: int) -> int:
    """
    Check that `unpack` decodes these bytes, without decoding a record; return the latest timestamp in milliseconds.

    A column of equal numbers costs nothing, any other some 10 ns for each record. Raises MalformedPayload.

    >>> verify(pack(Columns(timestamps_ms=[5, 7]), 2, 5), 2, 5)
    7
    """
    reader = _Reader(payload)
    flags = reader.flags(count)
    latest_ms = base_timestamp_ms
    if flags & TIMESTAMPS:
        low, high = reader.span(count)
        _check_times(base_timestamp_ms, low, high)
        latest_ms += high
    for flag in (KEYS, VALUES):
        if flags & flag:
            reader.skip_blobs(count)
    if flags & HEADERS:
        low, total = reader.lengths(count)
        _check_header_counts(low, total)
        reader.check_names(total)
        reader.skip_blobs(total)
    reader.check_end()
    return latest_ms


def has_keys(payload: bytes, count: int) -> bool:
    """
    Return whether every record has a key, without decoding one. Raises MalformedPayload.

    >>> has_keys(pack(Columns(keys=[b"a", None]), 2, 0), 2)
    False
    """
    reader = _Reader(payload)
    flags = reader.flags(count)
    if not flags & KEYS:
        return False
    if flags & TIMESTAMPS:
        reader.span(count)
    shortest, _ = reader.lengths(count)
    return shortest >= 0


def first_at(payload: bytes, count: int, base_timestamp_ms: int, timestamp_ms: int) -> tuple[int, int] | None:
    """Return index and timestamp of the first record at or after a timestamp; None: all are earlier."""
    reader = _Reader(payload)
    times = _timestamps(reader, reader.flags(count), count, base_timestamp_ms)
    if times is None:
        return (0, base_timestamp_ms) if base_timestamp_ms >= timestamp_ms else None
    found: Iterator[tuple[int, int]] = ((at, time) for at, time in enumerate(times) if time >= timestamp_ms)
    return next(found, None)


def _check(columns: Columns, count: int) -> None:
    if not 1 <= count <= RECORDS_MAX:
        raise ValueError(f"a batch has 1 to {RECORDS_MAX:,} records, not {count:,}: send several")
    for name, column in zip(columns._fields, columns, strict=True):
        if column is not None and len(column) != count:
            raise ValueError(
                f"the column {name} has {len(column):,} records and the batch {count:,}: make them equal"
            )


def _packed_numbers(numbers: Sequence[int], low: int, high: int) -> list[bytes]:
    """Encode numbers of which the lowest and the highest are known."""
    if not -(1 << 63) <= low <= high < 1 << 63:
        raise ValueError(
            "a timestamp is further away from the others than 64 bits can say: use milliseconds since 1970"
        )
    if low == high:
        return [SAME, struct.pack("<q", low)]
    code = next(code for code, most in WIDTHS if -most - 1 <= low and high <= most)
    return [code, struct.pack(f"<{len(numbers)}{code.decode()}", *numbers)]


def _pack_blobs(blobs: Sequence[bytes | None], nulls: int, parts: list[bytes]) -> None:
    """Append the lengths of blobs, of which some are null, and the blobs."""
    # mypy does not see that no None is left; a check for each would cost what columns save.
    lengths = [-1 if blob is None else len(blob) for blob in blobs] if nulls else list(map(len, blobs))  # type: ignore[arg-type]
    parts += _packed_numbers(lengths, min(lengths), max(lengths))
    parts += filter(None, blobs)


def _timestamps(reader: "_Reader", flags: int, count: int, base_timestamp_ms: int) -> Sequence[int] | None:
    if not flags & TIMESTAMPS:
        return None
    # Narrow numbers cannot lead beyond 64 bits from a base that is this far within them.
    is_safe = abs(base_timestamp_ms) <= SAFE_BASE_MS and reader.is_narrow()
    deltas = reader.numbers(count)
    if not is_safe:
        _check_times(base_timestamp_ms, min(deltas), max(deltas))
    return [base_timestamp_ms + delta for delta in deltas]


def _check_times(base_timestamp_ms: int, low: int, high: int) -> None:
    if not -(1 << 63) <= base_timestamp_ms + low <= base_timestamp_ms + high < 1 << 63:
        raise MalformedPayload("the payload has a timestamp of more than 64 bits")


def _check_header_counts(low: int, total: int) -> None:
    if low < 0 or not 1 <= total <= HEADERS_MAX:
        raise MalformedPayload(f"the payload counts {total:,} headers, 1 to {HEADERS_MAX:,} are possible")


def _headers(reader: "_Reader", count: int) -> Sequence[Headers]:
    counts = reader.numbers(count)
    total = sum(counts)
    _check_header_counts(min(counts), total)
    names = _decoded(reader.blobs(total))
    pairs = zip(names, reader.blobs(total), strict=True)
    return [tuple(islice(pairs, number)) for number in counts]


def _decoded(names: Sequence[bytes | None]) -> list[str]:
    if None in names:
        raise MalformedPayload("the payload has a header without a name")
    try:
        return [str(name, "utf-8") for name in names if name is not None]
    except UnicodeDecodeError as error:
        raise MalformedPayload(f"the payload has a header whose name is not UTF-8: {error}") from error


class _Reader:
    """Reads a payload from start to end. Invariant: it never reads beyond the end."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def flags(self, count: int) -> int:
        """Read the flags byte, and check the record count that the batch states."""
        if not 1 <= count <= RECORDS_MAX:
            raise MalformedPayload(
                f"the batch says that it has {count:,} records, 1 to {RECORDS_MAX:,} are possible"
            )
        flags = self._take(1)[0]
        if flags & ~KNOWN_FLAGS:
            raise MalformedPayload(
                f"the payload has columns of an unknown kind (flags {flags:#x}): update the reader"
            )
        return flags

    def is_narrow(self) -> bool:
        """Return whether each number of the next column has at most 4 bytes."""
        return SIZES.get(self._payload[self._at : self._at + 1], 8) <= 4

    def numbers(self, count: int) -> Sequence[int]:
        """Decode the next column of numbers."""
        number = self._same()
        if number is not None:
            return list(repeat(number, count))
        code, raw = self._raw_numbers(count)
        return struct.unpack(f"<{count}{code}", raw)

    def _raw_numbers(self, count: int) -> tuple[str, bytes]:
        """Return the `struct` code and the bytes of the next column, whose numbers differ."""
        code = self._take(1)
        size = SIZES.get(code)
        if size is None:
            raise MalformedPayload(
                f"the payload has numbers of unknown width {code!r} before byte {self._at}"
            )
        return code.decode(), self._take(size * count)

    def blobs(self, count: int) -> Sequence[bytes | None]:
        """Decode the next column of blobs."""
        lengths = self.numbers(count)
        shortest, longest = min(lengths), max(lengths)
        if shortest < -1:
            raise MalformedPayload(f"the payload has a length of {shortest} before byte {self._at}")
        if shortest == longest and shortest > 0:
            # Equal lengths are common, and this is twice as fast as slices.
            return list(
                struct.unpack(f"{shortest}s" * self._fitting(count, shortest), self._take(shortest * count))
            )
        sizes = lengths if shortest >= 0 else [max(length, 0) for length in lengths]
        data = self._take(sum(sizes))
        blobs: list[bytes | None] = [data[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]
        if shortest < 0:
            return [None if length < 0 else blob for length, blob in zip(lengths, blobs, strict=True)]
        return blobs

    def span(self, count: int) -> tuple[int, int]:
        """Return the minimum of the next column and 0, and its maximum."""
        number = self._same()
        if number is not None:
            return min(number, 0), number
        low, numbers = self._checked_numbers(count)
        # Timestamps mostly rise; for single bytes it costs nearly nothing to check that the last one is the maximum.
        if isinstance(numbers, bytes) and not numbers.translate(None, BYTES[: numbers[-1] + 1]):
            return low, numbers[-1]
        return low, max(numbers)

    def lengths(self, count: int) -> tuple[int, int]:
        """Return the minimum of the next column of numbers and 0, and the sum of the column without its -1s."""
        number = self._same()
        if number is not None:
            return min(number, 0), max(number, 0) * count
        low, numbers = self._checked_numbers(count)
        return low, sum(numbers) + (numbers.count(-1) if low < 0 else 0)

    def _checked_numbers(self, count: int) -> tuple[int, Sequence[int]]:
        """Return the minimum of the next numbers, which differ, and 0; and the numbers."""
        code, raw = self._raw_numbers(count)
        size = len(raw) // count
        # Only a negative number has the first bit of its last byte set; checking these bytes costs nearly nothing.
        is_negative = not raw[size - 1 :: size].isascii()
        if size == 1 and not is_negative:
            return 0, raw
        numbers = struct.unpack(f"<{count}{code}", raw)
        return min(numbers) if is_negative else 0, numbers

    def skip_blobs(self, count: int) -> tuple[int, int]:
        """Skip the next column of blobs; return the result of `lengths`."""
        low, total = self.lengths(count)
        if low < -1:
            raise MalformedPayload(f"the payload has a length of {low} before byte {self._at}")
        self._check(total)
        self._at += total
        return low, total

    def check_names(self, count: int) -> None:
        """Check that the next column, the names of headers, is UTF-8; nearly always it is ASCII, which is checked at once."""
        start = self._at
        low, total = self.skip_blobs(count)
        if low < 0 or not self._payload[self._at - total : self._at].isascii():
            self._at = start
            _decoded(self.blobs(count))

    def check_end(self) -> None:
        """Check that no bytes are left."""
        if self._at != len(self._payload):
            raise MalformedPayload(
                f"the payload has {len(self._payload) - self._at} bytes behind its last column"
            )

    def _same(self) -> int | None:
        """Return the number of all records of a column; None if they differ."""
        if self._payload[self._at : self._at + 1] != SAME:
            return None
        self._take(1)
        return int(struct.unpack("<q", self._take(8))[0])

    def _fitting(self, count: int, each: int) -> int:
        """Return the count after checking that so many elements fit; called before anything of that size is allocated."""
        self._check(count * each)
        return count

    def _take(self, size: int) -> bytes:
        self._check(size)
        start = self._at
        self._at += size
        return self._payload[start : self._at]

    def _check(self, size: int) -> None:
        if size > len(self._payload) - self._at:
            raise MalformedPayload(
                f"the payload ends at byte {len(self._payload)}, {size} more were to follow byte {self._at}"
            )
