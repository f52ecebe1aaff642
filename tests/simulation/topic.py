"""Contents of the simulated topic's partitions: records, and between them control markers that readers skip."""

from collections.abc import Sequence

from rota_sidecar.core.ledger.batches import Batch

# Further than strangers set offsets to.
AT_START = 120
A_SECOND = 2
MARKER_EVERY = 23
KEYLESS_EVERY = 11
KEYS = 7
BATCH_MAX = 10


def end_at(now_s: float) -> int:
    """Return the offset of the next record."""
    return AT_START + int(now_s * A_SECOND)


def is_record(offset: int) -> bool:
    """Else a marker, as the end of a transaction leaves one."""
    return offset % MARKER_EVERY != MARKER_EVERY - 1


def key_of(offset: int) -> bytes | None:
    """Records with the same key are worked through one after the other, where keys matter."""
    return None if offset % KEYLESS_EVERY == 0 else b"key-%d" % (offset % KEYS)


def read(offset: int, end: int, batches_max: int) -> tuple[Sequence[Batch], int]:
    """Some batches, and where to read on."""
    batches: list[Batch] = []
    while offset < end and len(batches) < batches_max:
        first = offset
        while offset < min(end, first + BATCH_MAX) and is_record(offset):
            offset += 1
        if offset > first:
            keys = [key_of(each) for each in range(first, offset)]
            batches.append(Batch(first, offset - first, 100 * (offset - first), None, keys))
        while offset < end and not is_record(offset):
            offset += 1
    return batches, offset
