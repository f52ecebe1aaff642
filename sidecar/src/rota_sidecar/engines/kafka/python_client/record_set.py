"""
Decodes the record batches of a Fetch response into batches of columns. Called by `reading.py` in a thread; pure.

    records = batches; the last one may be cut off
    batch   = header (61 bytes), records, which may be compressed together
    record  = length, attributes (1 byte), timestamp delta, offset delta, key, value, headers; numbers are signed varints

Batches of one record are common: consecutive records of several batches are packed together. There is no object for a record,
only its cells in lists, as the columns of Rota's batches need them.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_proto.log.columns import HEADERS_MAX, Columns, Headers
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.engines.kafka.packing import BATCH_BYTES_MAX, packed
from rota_sidecar.engines.kafka.python_client.copies import MalformedData
from rota_sidecar.engines.kafka.python_client.crc32c import crc32c
from rota_sidecar.engines.kafka.python_client.decompression import BYTES_MAX as DECOMPRESSED_BYTES_MAX
from rota_sidecar.engines.kafka.python_client.decompression import decompress

HEADER = struct.Struct(">qiibIhiqqqhii")
# Base offset and length, which the length does not count.
LENGTH_END = 12
# Up to the leader epoch the checksum covers nothing: brokers set it, and the base offset, without reading the records.
CHECKED_FROM = 21
MAGIC_AT = 16
MAGIC = 2
CODEC_BITS, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
# A control record's key: its version and its type, each an int16.
ABORT_KEY_END = b"\x00\x00"
# Columns have differences of timestamps, of 64 bits.
TIMES_MAX = 1 << 62
# Records that are decoded before their columns are packed: their lists take more memory than their bytes.
RECORDS_AT_ONCE = 100_000


class Aborted(NamedTuple):
    """An aborted transaction: the records of a producer from an offset on, up to the producer's next abort marker."""

    producer_id: int
    first_offset: int


class Header(NamedTuple):
    """The header of a record batch, and the indexes of its records in the response."""

    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    record_count: int
    start: int
    end: int

    @property
    def next_offset(self) -> int:
        """The offset after the batch; compaction leaves it as it was."""
        return self.base_offset + self.last_delta + 1


@dataclass(slots=True)
class Decoded:
    """
    The records of a partition in a Fetch response.

    Invariant: `next_offset` is the offset after the last decoded batch, or that of the batch in `problem`.
    """

    batches: list[Batch]
    next_offset: int
    # Leader epoch of the last decoded batch; -1: none.
    leader_epoch: int = -1
    # Why the batch at `next_offset` cannot be read; empty: all are.
    problem: str = ""


@dataclass(slots=True)
class _Run:
    """Consecutive records that are not packed yet. Invariant: the lists have one element for each record."""

    first: int
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    # Headers by the index of their record.
    headers: dict[int, Headers] = field(default_factory=dict)
    size: int = 0

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + len(self.values)

    def columns(self) -> Columns:
        """Return the records as columns."""
        headers: list[Headers] | None = None
        if self.headers:
            headers = [()] * len(self.values)
            for index, each in self.headers.items():
                headers[index] = each
        return Columns(self.values, self.keys, self.times, headers)


def decode(
    records: bytes,
    offset: int,
    aborted: Sequence[Aborted] | None,
    *,
    with_keys: bool,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Decoded:
    """
    Decode the records from `offset` on. `aborted` None: those of aborted transactions are returned too.

    A batch that cannot be read ends the result, with the reason in `problem`. So does the batch with which the decompressed
    records exceed `bytes_max`, as its last one: compressed, they may be much smaller.
    """
    packer = _Packer(offset, with_keys=with_keys)
    found = Decoded([], offset)
    transactions = None if aborted is None else _Transactions(aborted)
    try:
        for header in _headers(records):
            # Also of batches before the offset: where a batch ends is checked by this alone.
            _check(records, header)
            is_hidden = transactions is not None and transactions.hides(header, records)
            if header.next_offset > offset and not is_hidden:
                packer.add(header, records)
            found.next_offset = max(header.next_offset, offset)
            found.leader_epoch = header.leader_epoch
            if packer.size > bytes_max:
                break
    except MalformedData as error:
        found.problem = str(error)
    found.batches = packer.finish(found.next_offset)
    return found


def _headers(records: bytes) -> Iterator[Header]:
    """Yield the headers of the batches that are there as a whole. Raises MalformedData for a format before Kafka 0.11."""
    at = 0
    while at + HEADER.size <= len(records):
        base, length, epoch, magic, crc, attributes, last, base_ms, max_ms, producer, _, _, count = (
            HEADER.unpack_from(records, at)
        )
        end = at + LENGTH_END + length
        if magic != MAGIC:
            raise MalformedData(f"it has message format {magic}, and formats before Kafka 0.11 are not read")
        if length < HEADER.size - LENGTH_END:
            raise MalformedData("its header is damaged")
        if end > len(records):
            return
        yield Header(
            base, epoch, magic, crc, attributes, last, base_ms, max_ms, producer, count, at + HEADER.size, end
        )
        at = end


def _check(records: bytes, header: Header) -> None:
    """Compare a batch with its checksum. Raises MalformedData."""
    if crc32c(records[header.start - HEADER.size + CHECKED_FROM : header.end]) != header.crc:
        raise MalformedData("its checksum does not match its bytes")
    if header.last_delta < 0 or header.record_count < 0:
        raise MalformedData("its header is damaged")


class _Transactions:
    """
    The aborted transactions of one partition, for batches in order of offsets.

    Invariant: `_aborting` has the producers whose batches are hidden, from the first one to the abort marker.
    """

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: set[int] = set()

    def hides(self, header: Header, records: bytes) -> bool:
        """Return whether the batch is of an aborted transaction."""
        while self._waiting and self._waiting[-1].first_offset < header.next_offset:
            self._aborting.add(self._waiting.pop().producer_id)
        if not header.attributes & TRANSACTIONAL or header.producer_id not in self._aborting:
            return False
        if header.attributes & CONTROL and _is_abort(header, records):
            self._aborting.discard(header.producer_id)
        return True


def _is_abort(header: Header, records: bytes) -> bool:
    """Return whether a control batch has an abort marker, by the key of its record; compaction may have left none."""
    return any(
        (run.keys[0] or b"").endswith(ABORT_KEY_END)
        for run in _runs(records[header.start : header.end], header)
    )


class _Packer:
    """Collects consecutive records of batches and packs them. Invariant: `_run` is behind all packed batches."""

    def __init__(self, offset: int, *, with_keys: bool) -> None:
        self._offset = offset
        self._with_keys = with_keys
        self._run = _Run(offset)
        self._packed: list[Batch] = []
        # Bytes of the decompressed records.
        self.size = 0

    def add(self, header: Header, records: bytes) -> None:
        """Add the records of a batch, except a control batch. Raises MalformedData, and then none of them is added."""
        if header.attributes & CONTROL or not header.record_count:
            return
        codec = header.attributes & CODEC_BITS
        data = decompress(codec, records[header.start : header.end], DECOMPRESSED_BYTES_MAX)
        self.size += len(data)
        # Decoded apart: of a batch that is damaged further on, nothing is returned.
        decoded = list(_runs(data, header))
        if header.attributes & APPEND_TIME:
            for run in decoded:
                run.times = [header.max_timestamp_ms] * len(run.values)
        for run in decoded:
            self._append(_from(run, self._offset))

    def finish(self, next_offset: int) -> list[Batch]:
        """Pack what is left, and return all batches before `next_offset`."""
        self._flush(next_offset)
        return self._packed

    def _append(self, run: _Run) -> None:
        if not run.values:
            return
        here = self._run
        if not here.values or here.end != run.first or here.size + run.size > BATCH_BYTES_MAX:
            self._flush(run.first)
            self._run = run
            return
        start = len(here.values)
        here.keys += run.keys
        here.values += run.values
        here.times += run.times
        here.headers.update({start + index: headers for index, headers in run.headers.items()})
        here.size += run.size

    def _flush(self, next_first: int) -> None:
        run, self._run = self._run, _Run(next_first)
        if run.values:
            self._packed += packed(run.first, len(run.values), run.columns(), with_keys=self._with_keys)


def _runs(data: bytes, header: Header) -> Iterator[_Run]:
    """Yield the records of a batch in runs of consecutive offsets. Raises MalformedData unless all are there."""
    at, left = 0, header.record_count
    while left:
        run, deltas = _Run(header.base_offset), list[int]()
        count = min(left, RECORDS_AT_ONCE)
        try:
            end = _read(data, at, count, (run, deltas))
        except IndexError:
            raise MalformedData("it ends within a record") from None
        run.times = [header.base_timestamp_ms + delta for delta in run.times]
        if not -TIMES_MAX < min(run.times) <= max(run.times) < TIMES_MAX:
            raise MalformedData("one of its timestamps has more than 62 bits")
        run.size = end - at
        if deltas[-1] - deltas[0] + 1 == count:
            run.first += deltas[0]
            yield run
        else:
            yield from _without_gaps(run, deltas)
        at = end
        left -= count
    if at != len(data):
        raise MalformedData("it has bytes behind its last record")


def _read(data: bytes, at: int, count: int, into: tuple[_Run, list[int]]) -> int:
    """Read so many records; return the index after them. Timestamps are added as deltas. Raises IndexError, MalformedData."""
    run, deltas = into
    keys, values, times = run.keys, run.values, run.times
    for index in range(count):
        # A number of one byte is decoded here: a call costs more than all of this.
        size, at = (data[at] >> 1, at + 1) if data[at] < 0x80 else signed(data, at)
        end = at + size
        # Behind the attributes, which have no meaning yet.
        delta_ms, at = signed(data, at + 1)
        delta, at = (data[at] >> 1, at + 1) if data[at] < 0x80 else signed(data, at)
        key, at = _blob(data, at)
        value, at = _blob(data, at)
        if data[at]:
            run.headers[index], at = _headers_of_record(data, at)
        else:
            at += 1
        if at != end:
            raise MalformedData("the lengths in one of its records contradict each other")
        keys.append(key)
        values.append(value)
        times.append(delta_ms)
        deltas.append(delta)
    return at


def signed(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed varint: seven bits a byte, lowest first, and the sign in the lowest bit; and return the index after it."""
    low = data[at]
    if low < 0x80:
        return low >> 1 ^ -(low & 1), at + 1
    high = data[at + 1]
    number, shift = low & 0x7F | (high & 0x7F) << 7, 14
    at += 2
    while high >= 0x80:
        high = data[at]
        number |= (high & 0x7F) << shift
        shift += 7
        at += 1
    return number >> 1 ^ -(number & 1), at


def _blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read bytes after their length, which is -1 for null; and return the index after them."""
    size, at = (data[at] >> 1, at + 1) if data[at] < 0x80 and not data[at] & 1 else signed(data, at)
    if size < 0:
        return None, at
    return data[at : at + size], at + size


def _headers_of_record(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = signed(data, at)
    if count > HEADERS_MAX:
        raise MalformedData(f"one of its records has more than {HEADERS_MAX:,} headers, which are not read")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _blob(data, at)
        value, at = _blob(data, at)
        try:
            headers.append(((name or b"").decode(), value))
        except UnicodeDecodeError:
            raise MalformedData("the name of a header is not UTF-8") from None
    return tuple(headers), at


def _without_gaps(run: _Run, deltas: Sequence[int]) -> Iterator[_Run]:
    """Split records where an offset is missing."""
    start = 0
    for end in range(1, len(deltas) + 1):
        if end == len(deltas) or deltas[end] != deltas[end - 1] + 1:
            yield _part(run, start, end, run.first + deltas[start])
            start = end


def _from(run: _Run, offset: int) -> _Run:
    """Return the records of a run from an offset on: a fetch may begin within a batch."""
    if run.first >= offset:
        return run
    return _part(run, min(offset - run.first, len(run.values)), len(run.values), offset)


def _part(run: _Run, start: int, end: int, first: int) -> _Run:
    headers = {index - start: each for index, each in run.headers.items() if start <= index < end}
    size = run.size * (end - start) // len(run.values)
    return _Run(first, run.keys[start:end], run.values[start:end], run.times[start:end], headers, size)
