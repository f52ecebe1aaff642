"""Record batches that are written are read again, by this client and by kafka-python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from rota_sidecar.engines.kafka.python_client.encoding import encode, varint
from rota_sidecar.engines.kafka.python_client.record_set import decode, signed
from rota_sidecar.engines.records import DeadLetter
from tests.sidecar.engines.kafka.python_client.record_batches import valid_for_kafka_python
from tests.sidecar.engines.readers import rows_of

blobs = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=70) | st.just(bytes(9_000))
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple)
dead_letters = st.builds(DeadLetter, st.just("t"), blobs, blobs, headers, st.integers(0, 1 << 45))


@given(given_ones=st.lists(dead_letters, min_size=1, max_size=12))
def test_what_is_written_is_read(given_ones: list[DeadLetter]) -> None:
    data = encode(given_ones)
    assert valid_for_kafka_python(data)
    found = decode(data, 0, [], with_keys=True)
    assert found.problem == ""
    written = [(each.value, each.key, each.timestamp_ms, tuple(each.headers)) for each in given_ones]
    rows = [row for each in found.batches for row in rows_of(each)]
    assert [(row.value, row.key, row.timestamp_ms, tuple(row.headers)) for row in rows] == written
    theirs = [
        (each.value, each.key, each.timestamp, tuple(each.headers)) for each in DefaultRecordBatch(data)
    ]
    assert theirs == written


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, 1 << 31, -(1 << 62), (1 << 63) - 1]
)
def test_numbers_of_any_size_are_read(number: int) -> None:
    data = varint(number)
    assert signed(data + b"\xff", 0) == (number, len(data))


def test_a_time_before_1970_is_written_as_1970() -> None:
    found = decode(encode([DeadLetter("t", None, b"v", (), -1)]), 0, [], with_keys=False)
    assert rows_of(found.batches[0])[0].timestamp_ms == 0
