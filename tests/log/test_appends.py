"""Batches: which are refused, where the others go, and when they are seen."""

from collections.abc import Callable

import pytest

from rota_coordinator.core.log.config import LogConfig
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import START_MS, Engine, Producer, batch


def test_offsets_are_given_in_the_order_of_the_calls() -> None:
    engine = Engine()
    engine.create()
    reply = engine.send(batch(records=3), batch(records=2))
    assert (reply.error_code, reply.base_offset, reply.log_append_time_ms, reply.log_start_offset) == (
        codes.NONE,
        0,
        START_MS,
        0,
    )
    assert engine.produce(records=4).base_offset == 5
    assert [(row.header.base_offset, row.header.count, row.payload) for row in engine.rows] == [
        (0, 3, batch(records=3).payload),
        (3, 2, batch(records=2).payload),
        (5, 4, batch(records=4).payload),
    ]


def change(**fields: int | bytes) -> Callable[[pb.RecordBatch], None]:
    def apply(changed: pb.RecordBatch) -> None:
        for name, value in fields.items():
            setattr(changed, name, value)

    return apply


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (change(count=0), codes.INVALID_RECORD),
        (change(count=-1), codes.INVALID_RECORD),
        (change(control=True), codes.INVALID_RECORD),
        (change(producer_id=-2), codes.INVALID_RECORD),
        (change(producer_epoch=-1), codes.INVALID_RECORD),
        (change(producer_epoch=32_768), codes.INVALID_RECORD),
        (change(base_sequence=-1), codes.INVALID_RECORD),
        (change(producer_id=-1, transactional=True), codes.INVALID_RECORD),
        (change(max_timestamp_ms=START_MS - 1), codes.INVALID_TIMESTAMP),
        (change(payload=batch().payload + b"?"), codes.MESSAGE_TOO_LARGE),
        (change(payload=batch().payload), codes.NONE),
    ],
)
def test_a_batch_must_be_what_the_log_can_keep(
    wrong: Callable[[pb.RecordBatch], None], error: codes.ErrorCode.ValueType
) -> None:
    engine = Engine(LogConfig(batch_bytes_max=len(batch().payload)))
    engine.create()
    producer = engine.init("")
    good, bad = batch(producer, 0), batch(producer, 1)
    wrong(bad)
    reply = engine.send(good, bad, producer=producer)
    assert reply.error_code == error
    assert reply.base_offset == (-1 if error else 0)
    assert engine.partition().end == (0 if error else 2)


def test_a_request_without_batches_is_refused() -> None:
    engine = Engine()
    engine.create()
    assert engine.send().error_code == codes.INVALID_RECORD


def test_records_go_to_the_topic_that_is_meant() -> None:
    engine = Engine()
    old = engine.create()
    engine.delete()
    assert engine.send(batch()).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    engine.create()
    assert engine.send(batch(), topic_id=old.topic_id).error_code == codes.UNKNOWN_TOPIC_ID
    assert engine.send(batch(), index=1).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert engine.send(batch()).base_offset == 0


@pytest.mark.parametrize("isolation", pb.IsolationLevel.values())
def test_records_are_seen_when_they_are_in_the_file(isolation: pb.IsolationLevel.ValueType) -> None:
    engine = Engine(writes_at_once=False)
    engine.create()
    engine.produce(records=3)
    engine.produce(records=4)
    partition = engine.partition()
    assert (partition.end, partition.high_watermark, partition.visible_end(isolation)) == (7, 0, 0)
    engine.write(until=2)
    assert (partition.high_watermark, partition.visible_end(isolation)) == (3, 3)
    engine.crash()
    assert engine.partition().visible_end(isolation) == 3
    assert engine.produce().base_offset == 3


def test_batches_that_reach_the_file_after_their_topic_went_do_no_harm() -> None:
    engine = Engine(writes_at_once=False)
    engine.create()
    engine.produce()
    engine.delete()
    engine.create()
    engine.write()
    assert engine.partition().high_watermark == 0


def test_a_batch_without_producer_is_never_a_duplicate() -> None:
    engine = Engine()
    engine.create()
    assert [engine.produce(Producer(), sequence=0).base_offset for _ in range(3)] == [0, 1, 2]
