"""One appended batch as bytes: the records, with a checksum, so that a damaged file is noticed and not believed."""

import zlib
from collections.abc import Iterable, Sequence

from rota_coordinator.store.port import StoreError
from rota_proto.coordinator.v1.records_pb2 import Record, RecordBatch


def encode(records: Iterable[Record]) -> tuple[bytes, int]:
    """The bytes, and their checksum."""
    data = RecordBatch(records=records).SerializeToString()
    return data, zlib.crc32(data)


def decode(data: bytes, checksum: int, where: str) -> Sequence[Record]:
    """The records of a batch; `where` is said when it is damaged."""
    if zlib.crc32(data) != checksum:
        raise StoreError(f"{where} is damaged (its checksum differs); restore the file from a backup")
    return RecordBatch.FromString(data).records
