"""Readers get batches in codecs that they decode: others are decompressed by the log, within the fetch's limits."""

import zlib

from rota_coordinator.core.log.batch import Control, Header, Row
from rota_coordinator.runtime.fetches import decodable

COLUMNS = bytes(1_000)
COMPRESSED = zlib.compress(COLUMNS, wbits=31)
GZIP, LATER = 1, 7


def row(offset: int, codec: int, payload: bytes) -> Row:
    return Row(
        1,
        Header(offset, 1, 0, 0, -1, -1, -1, transactional=False, control=Control.RECORDS),
        0,
        codec,
        payload,
    )


ROWS = [row(0, 0, COLUMNS), row(1, GZIP, COMPRESSED), row(2, GZIP, COMPRESSED), row(3, 0, COLUMNS)]


def test_a_reader_that_decodes_the_codec_gets_what_is_stored() -> None:
    assert decodable(ROWS, {GZIP}, 10) is ROWS
    assert decodable(ROWS[:1], (), 10) == ROWS[:1]


def test_a_reader_without_compression_gets_columns_within_its_limit() -> None:
    found = decodable(ROWS, (), 2_500)
    assert [(each.header.base_offset, each.codec, each.payload) for each in found] == [
        (0, 0, COLUMNS),
        (1, 0, COLUMNS),
    ]


def test_the_first_batch_is_returned_whatever_its_size_is() -> None:
    (found,) = decodable(ROWS[1:], (), 10)
    assert (found.codec, found.payload) == (0, COLUMNS)


def test_a_batch_of_a_later_version_is_left_to_the_reader_to_name() -> None:
    assert decodable([row(0, LATER, b"?")], {GZIP}, 10) == [row(0, LATER, b"?")]
