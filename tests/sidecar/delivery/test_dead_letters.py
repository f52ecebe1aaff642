"""A dead letter is the record as it was, and tells where it came from and why."""

from collections.abc import Sequence

import pytest

from rota_proto.log.columns import Columns, Headers, pack
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.delivery.actions import WriteDeadLetter
from rota_sidecar.core.ledger.batches import Batch, BatchSlice
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.dead_letters import dead_letter_of
from rota_sidecar.engines.batch_slicing import BatchSlicer
from rota_sidecar.engines.records import DeadLetter

BASE_MS = 1_700_000_000_000
ORIGIN = [
    ("rota-dlq-topic", b"orders"),
    ("rota-dlq-partition", b"3"),
    ("rota-dlq-offset", b"41"),
    ("rota-dlq-timestamp", b"1700000000007"),
    ("rota-dlq-reason", "not a number: \N{GREEK SMALL LETTER PI}".encode()),
    ("rota-dlq-deliveries", b"6"),
    ("rota-dlq-group", b"shop"),
]


def written(columns: Columns, *, count: int = 2) -> DeadLetter:
    """The letter for the second of the records."""
    payload = pack(columns, count, BASE_MS)
    content = log_pb2.RecordBatch(base_offset=40, base_timestamp_ms=BASE_MS, count=count, payload=payload)
    batch_slice = BatchSlice(Batch(40, count, len(payload), content), 41, 42)
    reason = "not a number: \N{GREEK SMALL LETTER PI}"
    due = WriteDeadLetter(1, "dead", Partition("orders", 3), batch_slice, reason, deliveries=6)
    return dead_letter_of(due, "shop", BatchSlicer())


def test_a_dead_letter_is_the_record_with_its_origin_behind_its_own_headers() -> None:
    own: Sequence[Headers] = [(), (("trace", b"t"), ("null", None))]
    dead_letter = written(Columns([b"a", b"b"], [b"1", b"2"], [BASE_MS, BASE_MS + 7], own))
    assert dead_letter == DeadLetter(
        "dead", b"2", b"b", [("trace", b"t"), ("null", None), *ORIGIN], BASE_MS + 7
    )


def test_nulls_stay_nulls() -> None:
    dead_letter = written(Columns())
    assert (dead_letter.key, dead_letter.value, dead_letter.timestamp_ms) == (None, None, BASE_MS)
    assert [name for name, _ in dead_letter.headers] == [name for name, _ in ORIGIN]


@pytest.mark.parametrize("name", ["rota-dlq-topic", "rota-dlq-reason"])
def test_a_dead_letter_that_fails_again_names_its_last_origin_only(name: str) -> None:
    own: Sequence[Headers] = [(), ((name, b"before"), ("kept", b"k"))]
    dead_letter = written(Columns([b"a", b"b"], None, [BASE_MS, BASE_MS + 7], own))
    assert dead_letter.headers == [("kept", b"k"), *ORIGIN]
