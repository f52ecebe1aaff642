"""A compacted log keeps the last record of each key at its offset, and what producers and transactions need."""

import pytest

from rota_coordinator.core.log import cleaning, sparse
from rota_coordinator.core.log.config import LogConfig
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import MalformedPayload
from rota_proto.log.compression import GZIP, ZSTD
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.compacting import CONFIG, Compacting, keyed, state_of
from tests.log.engine import TOPIC, Engine, batch

DAY_MS = 24 * 60 * 60 * 1000
A, B, C = b"a", b"b", b"c"


def test_the_last_record_of_each_key_is_left_and_offsets_stay() -> None:
    log = Compacting()
    log.put((A, b"1"), (B, b"1"), (A, b"2"), (C, b"1"))
    log.put((A, b"3"))
    log.put((B, b"2"))
    log.put((C, b"2"))
    log.compact()
    # The last batch is not compacted, so C has two records.
    assert log.records() == {3: (C, b"1"), 4: (A, b"3"), 5: (B, b"2"), 6: (C, b"2")}
    assert [row.header.base_offset for row in log.rows] == [0, 4, 5, 6]
    assert log.partition().end == log.read().partition(TOPIC, 0).end == 7  # type: ignore[union-attr]


def test_the_end_of_a_log_is_known_after_a_restart_whatever_was_removed() -> None:
    log = Compacting()
    for number in range(4):
        log.put((A, b"%d" % number))
    log.compact()
    log.crash()
    assert log.records() == {2: (A, b"2"), 3: (A, b"3")}
    assert log.put((B, b"")) == 4


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
def test_a_batch_with_gaps_keeps_its_compression_and_is_read_as_batches_without(codec: int) -> None:
    log = Compacting()
    keys = [A if number % 3 == 0 else b"%d" % number for number in range(90)]
    log.send(keyed([(key, bytes(50)) for key in keys], codec=codec))
    log.put((B, b""))
    log.compact()
    row = log.rows[0]
    assert sparse.is_sparse(row)
    assert row.codec & sparse.COMPRESSION == codec
    parts = list(sparse.split(row))
    spans = [(part.header.base_offset, part.header.count) for part in parts]
    assert spans == [*((first, 2) for first in range(1, 85, 3)), (85, 5)]
    assert all(part.codec == 0 for part in parts)
    times = [sparse.records_of(part).columns.timestamps_ms for part in parts]
    assert [each[-1] for each in times if each] == [part.header.max_timestamp_ms for part in parts]


def test_a_tombstone_is_kept_for_its_time_and_then_goes() -> None:
    log = Compacting(delete_retention_ms=1_000)
    log.put((A, b"1"))
    log.put((A, None))
    log.put((B, b"1"))
    log.compact()
    assert log.records() == {1: (A, None), 2: (B, b"1")}
    log.now_ms += 999
    log.put((C, b""))
    log.compact()
    assert 1 in log.records()
    log.now_ms += 1
    log.put((C, b""))
    log.compact()
    assert 1 not in log.records()
    assert state_of(log.records()) == {B: b"1", C: b""}


def test_a_tombstone_that_is_old_when_its_key_is_compacted_is_kept_all_the_same() -> None:
    """A reader that saw the record has the time to see the tombstone."""
    log = Compacting(delete_retention_ms=1_000)
    log.put((A, b"1"))
    log.put((A, None))
    log.now_ms += DAY_MS
    log.put((B, b"1"))
    log.compact()
    assert log.records() == {1: (A, None), 2: (B, b"1")}


def test_recent_batches_and_open_transactions_are_not_compacted() -> None:
    log = Compacting(LogConfig(min_compaction_lag_ms=1_000))
    producer = log.init()
    log.put((A, b"1"))
    log.put((A, b"2"))
    assert log.compact() is None
    log.now_ms += 1_000
    log.send(keyed([(A, b"open")], producer, 0), producer=producer)
    log.put((A, b"3"))
    log.now_ms += 1_000
    log.compact()
    assert log.records() == {1: (A, b"2")}
    assert [row.header.base_offset for row in log.rows] == [1, 2, 3]


def test_aborted_records_and_markers_go_once_no_producer_needs_them() -> None:
    log = Compacting()
    producer = log.init()
    log.put((A, b"kept"))
    log.send(keyed([(A, b"aborted")], producer, 0), producer=producer)
    producer = log.ended(producer, commit=False)
    log.send(keyed([(B, b"committed")], producer, 0), producer=producer)
    log.ended(producer, commit=True)
    log.put((C, b""))
    log.compact()
    # The aborted transaction has gone with its marker; the producer may still send the batch of its last one again.
    assert [row.header.base_offset for row in log.rows] == [0, 3, 4, 5]
    log.now_ms += DAY_MS
    log.put((C, b""))
    log.compact()
    assert [row.header.base_offset for row in log.rows] == [0, 3, 5, 6]
    assert not any(row.header.transactional for row in log.rows)
    log.crash()
    assert state_of(log.records()) == {A: b"kept", B: b"committed", C: b""}
    assert log.partition().last_stable_offset == 7


def test_the_last_batches_of_a_producer_stay_until_it_has_expired() -> None:
    log = Compacting()
    producer = log.init("")
    for sequence in range(7):
        log.send(keyed([(A, b"%d" % sequence)], producer, sequence))
    log.put((A, b"last"))
    log.put((B, b""))
    log.compact()
    assert list(log.records()) == [2, 3, 4, 5, 6, 7, 8]
    for _ in range(2):
        # A batch that is sent again, and one behind a gap.
        assert log.send(keyed([(A, b"6")], producer, 6)).base_offset == 6
        assert log.send(keyed([(A, b"9")], producer, 9)).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.crash()
    log.now_ms += DAY_MS
    log.put((C, b""))
    log.compact()
    assert log.records() == {7: (A, b"last"), 8: (B, b""), 9: (C, b"")}
    # As in Kafka, an expired producer may begin with any sequence.
    assert log.send(keyed([(A, b"9")], producer, 9)).base_offset == 10


def test_a_record_that_was_kept_for_its_producer_is_removed_later_and_no_tombstone_before_it() -> None:
    log = Compacting(delete_retention_ms=1)
    producer = log.init("")
    log.send(keyed([(A, b"old")], producer, 0))
    log.put((A, None))
    log.put((B, b""))
    for _ in range(3):
        log.compact()
        log.now_ms += 10
        log.put((B, b""))
        assert A not in state_of(log.records())
    log.now_ms += DAY_MS
    for _ in range(3):
        log.put((B, b""))
        log.now_ms += 10
        log.compact()
        assert A not in state_of(log.records())
    assert all(key == B for key, _ in log.records().values())


def test_a_dirty_section_with_more_keys_than_fit_is_compacted_in_several_passes() -> None:
    log = Compacting(LogConfig(min_compaction_lag_ms=0, compaction_keys_max=10))
    for number in range(100):
        log.put((b"%d" % (number % 25), b"%d" % number))
    passes = 0
    while (done := log.compact()) is not None:
        assert done.clean_until > 10 * passes
        passes += 1
    assert passes == 10
    # The last batch is not compacted: its key has two records.
    assert list(log.records()) == [74, *range(75, 100)]


def test_records_without_a_key_are_refused_and_older_ones_removed() -> None:
    log = Compacting()
    reply = log.send(keyed([(A, b"1"), (None, b"2")]))
    assert (reply.error_code, reply.base_offset) == (codes.INVALID_RECORD, -1)
    assert reply.error_message == "a compacted topic takes no records without a key; give each record a key"
    assert log.send(batch()).error_code == codes.INVALID_RECORD

    log = Compacting()
    request = pb.AlterTopicsRequest()
    request.topics.add(name=TOPIC, cleanup_policy=pb.CLEANUP_POLICY_DELETE)
    log.decide(lambda effects: log.log.alter_topics(request, effects))
    assert not log.send(batch()).error_code
    request.topics[0].cleanup_policy = pb.CLEANUP_POLICY_COMPACT
    log.decide(lambda effects: log.log.alter_topics(request, effects))
    log.put((A, b""))
    log.compact()
    assert log.records() == {1: (A, b"")}


def test_a_batch_that_cannot_be_decoded_ends_a_pass_with_its_reason() -> None:
    log = Compacting()
    log.put((A, b"1"))
    damaged = log.rows[0]._replace(codec=7)
    log.rewrite([cleaning.Change(damaged.header, damaged)])
    log.put((A, b"2"))
    with pytest.raises(MalformedPayload, match="unknown codec 7"):
        log.compact()


@pytest.mark.parametrize(
    ("dirty", "total", "due"), [(0, 0, False), (0, 9, False), (4, 9, False), (5, 9, True)]
)
def test_a_pass_begins_when_half_of_the_log_is_new(dirty: int, total: int, due: bool) -> None:
    assert cleaning.is_due(dirty, total, CONFIG) is due


def create(engine: Engine, **settings: int) -> codes.ErrorCode.ValueType:
    request = pb.CreateTopicsRequest()
    request.topics.add(name="other", partitions=1, **settings)
    return (
        engine.decide(lambda effects: engine.log.create_topics(request, engine.topic_id, effects))
        .topics[0]
        .error_code
    )


def described(engine: Engine) -> tuple[int, int, int, int]:
    (topic,) = engine.log.describe_topics(pb.DescribeTopicsRequest(names=["other"])).topics
    return topic.cleanup_policy, topic.retention_ms, topic.retention_bytes, topic.delete_retention_ms


def test_a_topic_that_is_only_compacted_has_no_retention() -> None:
    engine = Engine()
    for wrong in ({"retention_ms": 1}, {"retention_bytes": 1}, {"delete_retention_ms": -1}):
        assert create(engine, cleanup_policy=pb.CLEANUP_POLICY_COMPACT, **wrong) == codes.INVALID_CONFIG
    assert create(engine, cleanup_policy=7) == codes.INVALID_CONFIG
    assert create(engine, cleanup_policy=pb.CLEANUP_POLICY_COMPACT) == codes.NONE
    assert described(engine) == (pb.CLEANUP_POLICY_COMPACT, -1, -1, DAY_MS)

    def alter(**settings: int) -> codes.ErrorCode.ValueType:
        request = pb.AlterTopicsRequest()
        request.topics.add(name="other", **settings)
        return engine.decide(lambda effects: engine.log.alter_topics(request, effects)).topics[0].error_code

    assert alter(retention_ms=1) == codes.INVALID_CONFIG
    assert alter(cleanup_policy=pb.CLEANUP_POLICY_COMPACT_DELETE, retention_bytes=5) == codes.NONE
    assert described(engine) == (pb.CLEANUP_POLICY_COMPACT_DELETE, engine.config.retention_ms, 5, DAY_MS)
    assert alter(delete_retention_ms=7) == codes.NONE
    engine.log = engine.read(engine.log.snapshot())
    assert described(engine) == (pb.CLEANUP_POLICY_COMPACT_DELETE, engine.config.retention_ms, 5, 7)
    assert alter(cleanup_policy=pb.CLEANUP_POLICY_COMPACT) == codes.NONE
    assert described(engine) == (pb.CLEANUP_POLICY_COMPACT, -1, -1, 7)


def test_how_far_compaction_has_come_survives_a_restart() -> None:
    log = Compacting()
    log.put((A, b"1"))
    log.put((A, b"2"))
    log.put((A, b"3"))
    log.compact()
    known = log.partition().cleaned
    assert (known.until, known.indexed_until, known.tombstones_until) == (2, 2, 2)
    log.log = log.read(log.log.snapshot())
    assert log.partition().cleaned == known
