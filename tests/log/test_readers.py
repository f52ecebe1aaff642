"""Readers see the last stable offset, aborted transactions, and the start offset after retention."""

import pytest

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.retention import Oldest, new_start
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import START_MS, Engine

COMMITTED = pb.ISOLATION_LEVEL_READ_COMMITTED
UNCOMMITTED = pb.ISOLATION_LEVEL_READ_UNCOMMITTED


def test_what_follows_an_open_transaction_is_not_stable() -> None:
    engine = Engine()
    engine.create()
    first, second = engine.init("first"), engine.init("second")
    engine.produce(records=2)
    engine.produce(first, 0)
    engine.produce(second, 0)
    engine.produce()
    partition = engine.partition()
    assert (partition.visible_end(UNCOMMITTED), partition.visible_end(COMMITTED)) == (5, 2)
    engine.end(second, commit=True)
    assert partition.last_stable_offset == 2
    engine.end(first, commit=False)
    assert partition.last_stable_offset == partition.high_watermark == 7


def test_an_end_that_is_not_in_the_file_decides_nothing_for_readers() -> None:
    engine = Engine(writes_at_once=False)
    engine.create()
    producer = engine.init()
    engine.produce(producer, 0)
    engine.write()
    engine.end(producer, commit=True)
    assert engine.partition().last_stable_offset == 0
    engine.crash()
    assert engine.partition().last_stable_offset == 0
    # The producer asks again.
    engine.end(producer, commit=False)
    engine.write()
    assert engine.partition().last_stable_offset == 2
    assert engine.partition().is_aborted(engine.headers()[0])


def test_records_are_aborted_with_their_transaction_and_no_others_are() -> None:
    engine = Engine()
    engine.create()
    one, two = engine.init("one"), engine.init("two")
    for commit in (False, True, False):
        engine.produce(one, 0)
        engine.produce(two, 0)
        engine.produce(one, 1)
        engine.produce()
        one, two = engine.ended(one, commit=commit), engine.ended(two, commit=not commit)
    expected = [
        not header.control
        and header.transactional
        and (header.producer_id == one.producer_id) == (header.producer_epoch != 1)
        for header in engine.headers()
    ]
    for _ in range(2):
        assert [engine.partition().is_aborted(header) for header in engine.headers()] == expected
        engine.crash()
    assert expected.count(True) == 5


def test_what_was_aborted_stays_so_when_its_first_batch_is_deleted() -> None:
    engine = Engine()
    engine.create()
    producer = engine.init()
    engine.produce(producer, 0, records=2)
    engine.produce(producer, 2, records=2)
    producer = engine.ended(producer, commit=False)
    engine.produce(producer, 0)
    engine.end(producer, commit=True)
    engine.delete_records(3)
    for _ in range(2):
        assert [engine.partition().is_aborted(header) for header in engine.headers()[1:]] == [
            True,
            False,
            False,
            False,
        ]
        engine.crash()
    engine.delete_records(-1)
    assert not engine.partition().is_aborted(engine.headers()[1])


BATCHES = 5
EACH_BYTES = 100
AGE_MS = 1000


def retained(engine: Engine, limits: dict[str, int]) -> int:
    """Five batches of two records, each a second older than the next, before what else is there."""
    engine.create(retention_ms=limits.get("ms", -1), retention_bytes=limits.get("bytes", -1))
    oldest = []
    for number in range(BATCHES):
        engine.produce(records=2)
        header = engine.headers()[-1]._replace(max_timestamp_ms=START_MS + number * AGE_MS)
        oldest.append(Oldest(header, EACH_BYTES))
    return new_start(engine.partition(), oldest, BATCHES * EACH_BYTES, WallMs(START_MS + BATCHES * AGE_MS))


@pytest.mark.parametrize(
    ("limits", "start"),
    [
        ({}, 0),
        ({"ms": 5 * AGE_MS}, 0),
        ({"ms": 5 * AGE_MS - 1}, 2),
        ({"ms": 3 * AGE_MS}, 4),
        ({"ms": 1}, 10),
        ({"bytes": 500}, 0),
        ({"bytes": 401}, 0),
        ({"bytes": 400}, 2),
        ({"bytes": 150}, 6),
        ({"bytes": 1}, 8),
        ({"ms": 3 * AGE_MS, "bytes": 150}, 6),
        ({"ms": 2 * AGE_MS, "bytes": 400}, 6),
    ],
)
def test_what_is_too_old_or_too_much_goes_in_whole_batches(limits: dict[str, int], start: int) -> None:
    assert retained(Engine(), limits) == start


def test_retention_stops_before_an_open_transaction_and_before_what_is_not_in_the_file() -> None:
    engine = Engine()
    engine.create(retention_ms=1)
    engine.produce(records=2)
    producer = engine.init()
    engine.produce(producer, 0)
    engine.writes_at_once = False
    engine.end(producer, commit=True)
    oldest = [Oldest(header, 1) for header in engine.headers()]
    late_ms = WallMs(START_MS + AGE_MS)
    assert new_start(engine.partition(), oldest, 3, late_ms) == 2
    engine.write()
    assert new_start(engine.partition(), oldest, 3, late_ms) == 4


def test_rows_that_are_gone_already_are_passed_over_and_a_start_within_a_batch_stays() -> None:
    engine = Engine()
    engine.create(retention_bytes=25)
    for _ in range(4):
        engine.produce(records=2)
    oldest = [Oldest(header, 10) for header in engine.headers()]
    engine.delete_records(3)
    # The first row is only still in the file: what counts are the 30 bytes behind it.
    assert new_start(engine.partition(), oldest, 40, WallMs(START_MS)) == 3
    assert new_start(engine.partition(), oldest, 46, WallMs(START_MS)) == 4
    assert new_start(engine.partition(), [], 0, WallMs(START_MS)) == 3
