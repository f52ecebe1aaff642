"""
Validation of a batch before it is appended, so that every acknowledged batch can be decoded by every consumer.

Called by `appends` for each batch of a Produce. Payloads are not decoded into records, so the cost is bounded by the payload
size, whatever record count the batch claims. Compressed ones are decompressed to be checked, within the same limit, and are
stored as they came.
"""

from rota_coordinator.core.log.batch import NO_PRODUCER, Control, Header, Row
from rota_coordinator.core.log.config import EPOCH_MAX, LogConfig
from rota_coordinator.core.log.sequences import Refused
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import RECORDS_MAX, MalformedPayload, has_keys, verify
from rota_proto.log.compression import PayloadTooLarge, UnknownCodec, decompress

REMEDY = "write the records with a current client"
WITHOUT_KEY = "a compacted topic takes no records without a key; give each record a key"
OTHER_CODEC = "set compression_type of the producer to one of them, or upgrade the coordinator"


def validate(row: Row, config: LogConfig, *, needs_keys: bool = False) -> Refused | None:
    """
    Return the refusal of a batch that no reader could read, or of records without a key where `needs_keys`; None when the
    batch is valid.
    """
    return _validate_header(row.header) or _validate_payload(row, config, needs_keys=needs_keys)


def _validate_header(header: Header) -> Refused | None:
    if header.control is not Control.RECORDS or header.count < 1 or header.producer_id < NO_PRODUCER:
        # Only the log itself writes transaction markers.
        return Refused(codes.INVALID_RECORD)
    if header.count > RECORDS_MAX:
        message = f"the batch has {header.count:,} records; at most {RECORDS_MAX:,} are allowed, send smaller batches"
        return Refused(codes.INVALID_RECORD, message)
    if header.producer_id == NO_PRODUCER:
        if header.transactional:
            return Refused(codes.INVALID_RECORD)
    elif not 0 <= header.producer_epoch <= EPOCH_MAX or header.base_sequence < 0:
        return Refused(codes.INVALID_RECORD)
    return None


def _validate_payload(row: Row, config: LogConfig, *, needs_keys: bool) -> Refused | None:
    header, size = row.header, len(row.payload)
    if size > config.batch_bytes_max:
        message = f"the batch has {size:,} bytes; at most {config.batch_bytes_max:,} are allowed, send smaller batches"
        return Refused(codes.MESSAGE_TOO_LARGE, message)
    try:
        columns = decompress(row.codec, row.payload, config.batch_bytes_max)
        latest_ms = verify(columns, header.count, header.base_timestamp_ms)
        if needs_keys and not has_keys(columns, header.count):
            return Refused(codes.INVALID_RECORD, WITHOUT_KEY)
    except UnknownCodec as error:
        return Refused(codes.UNSUPPORTED_COMPRESSION_TYPE, f"{error}; {OTHER_CODEC}")
    except PayloadTooLarge as error:
        return Refused(codes.MESSAGE_TOO_LARGE, f"{error}; send smaller batches")
    except MalformedPayload as error:
        return Refused(codes.CORRUPT_MESSAGE, f"{error}; {REMEDY}")
    if latest_ms != header.max_timestamp_ms:
        message = (
            f"max_timestamp_ms is {header.max_timestamp_ms}, but the latest record has {latest_ms}; {REMEDY}"
        )
        return Refused(codes.INVALID_TIMESTAMP, message)
    return None
