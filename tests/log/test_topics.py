"""Topics: what may be made, what a deleted one leaves behind, and where the records begin."""

import pytest

from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import TOPIC, Engine


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "a" * 249, "...", "_"])
def test_names_that_kafka_allows(name: str) -> None:
    assert Engine().create(name).error_code == codes.NONE


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n", "٣"])
def test_names_that_kafka_refuses(name: str) -> None:
    engine = Engine()
    assert engine.create(name).error_code == codes.INVALID_TOPIC_EXCEPTION
    assert engine.events == []


@pytest.mark.parametrize(
    ("partitions", "error"),
    [
        (1, codes.NONE),
        (4, codes.NONE),
        (0, codes.INVALID_PARTITIONS),
        (-1, codes.INVALID_PARTITIONS),
        (5, codes.INVALID_PARTITIONS),
    ],
)
def test_a_topic_has_from_one_partition_to_the_limit(
    partitions: int, error: codes.ErrorCode.ValueType
) -> None:
    assert Engine(LogConfig(partitions_max=4)).create(partitions=partitions).error_code == error


def test_all_topics_together_have_a_limit_that_deleting_gives_back() -> None:
    engine = Engine(LogConfig(partitions_total_max=4))
    assert engine.create("a", partitions=3).error_code == codes.NONE
    assert engine.create("b", partitions=2).error_code == codes.POLICY_VIOLATION
    assert engine.grow("a", 5).error_code == codes.POLICY_VIOLATION
    assert engine.grow("a", 4).error_code == codes.NONE
    engine.delete("a")
    assert engine.create("b", partitions=4).error_code == codes.NONE


@pytest.mark.parametrize(("ms", "size"), [(-2, -1), (-1, -2)])
def test_retention_is_for_ever_or_a_number(ms: int, size: int) -> None:
    result = Engine().create(retention_ms=ms, retention_bytes=size)
    assert result.error_code == codes.INVALID_CONFIG


def test_who_says_nothing_of_retention_gets_the_servers() -> None:
    engine = Engine(LogConfig(retention_ms=77, retention_bytes=88))
    engine.create("default", retention_ms=0, retention_bytes=0)
    engine.create("own", retention_ms=5, retention_bytes=6)
    engine.create("for-ever")
    described = engine.log.describe_topics(pb.DescribeTopicsRequest()).topics
    assert [(topic.name, topic.retention_ms, topic.retention_bytes) for topic in described] == [
        ("default", 77, 88),
        ("for-ever", -1, -1),
        ("own", 5, 6),
    ]


def test_the_last_word_about_a_topic_counts() -> None:
    engine = Engine()
    engine.create(retention_ms=1, retention_bytes=1)
    changed = LogEvent()
    changed.CopyFrom(engine.events[0])
    changed.topic_created.log_ids.append(2)
    changed.topic_created.retention_ms = 2
    log = engine.read([*engine.events, changed])
    assert [partition.retention[:2] for partition in log.partitions()] == [(2, 1), (2, 1)]


def test_a_name_is_used_once_in_a_request_and_by_one_topic() -> None:
    engine = Engine()
    engine.create("there")
    request = pb.CreateTopicsRequest()
    for name in ("twice", "there", "new", "twice"):
        request.topics.add(name=name, partitions=1)
    effects = Effects()
    reply = engine.log.create_topics(request, engine.topic_id, effects)
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("twice", codes.INVALID_REQUEST),
        ("there", codes.TOPIC_ALREADY_EXISTS),
        ("new", codes.NONE),
        ("twice", codes.INVALID_REQUEST),
    ]
    assert [event.topic_created.name for event in effects.events] == ["new"]


def test_partitions_only_become_more() -> None:
    engine = Engine(LogConfig(partitions_max=4))
    engine.create(partitions=2)
    before = [engine.partition(index).log_id for index in range(2)]
    for partitions in (1, 2, 5):
        assert engine.grow(TOPIC, partitions).error_code == codes.INVALID_PARTITIONS
    assert engine.grow(TOPIC, 4).error_code == codes.NONE
    after = [engine.partition(index).log_id for index in range(4)]
    assert after[:2] == before
    assert len(set(after)) == 4
    assert engine.grow("unknown", 3).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_retention_is_changed_as_far_as_it_is_given() -> None:
    engine = Engine(LogConfig(retention_ms=7_000, retention_bytes=5_000))
    engine.create(partitions=2, retention_ms=1_000, retention_bytes=2_000)
    ids = [engine.partition(index).log_id for index in range(2)]

    def retention() -> set[tuple[int, int]]:
        return {(each.retention_ms, each.retention_bytes) for each in engine.log.partitions()}

    assert engine.alter(TOPIC, retention_ms=3_000).error_code == codes.NONE
    assert retention() == {(3_000, 2_000)}
    assert engine.alter(TOPIC, retention_bytes=-1).error_code == codes.NONE
    assert retention() == {(3_000, -1)}
    # 0 is the server's default, as in a creation.
    assert engine.alter(TOPIC, retention_ms=0, retention_bytes=0).error_code == codes.NONE
    assert retention() == {(7_000, 5_000)}
    engine.log = engine.read(engine.log.snapshot())
    assert retention() == {(7_000, 5_000)}
    assert [engine.partition(index).log_id for index in range(2)] == ids


def test_a_retention_that_cannot_be_changes_nothing() -> None:
    engine = Engine()
    engine.create(retention_ms=1_000)
    for asked in ({"retention_ms": -2}, {"retention_bytes": -2}, {"retention_ms": 5, "retention_bytes": -2}):
        assert engine.alter(TOPIC, **asked).error_code == codes.INVALID_CONFIG
    assert engine.alter("unknown", retention_ms=5).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    # Nothing is written for what holds already.
    before = len(engine.events)
    assert engine.alter(TOPIC, retention_ms=1_000).error_code == codes.NONE
    assert len(engine.events) == before
    assert engine.partition().retention_ms == 1_000


def test_a_name_that_stands_twice_in_other_requests_is_refused_there_too() -> None:
    engine = Engine()
    engine.create()
    more = pb.CreatePartitionsRequest()
    more.topics.add(name=TOPIC, partitions=2)
    more.topics.add(name=TOPIC, partitions=3)
    effects = Effects()
    grown = engine.log.create_partitions(more, effects).topics
    deleted = engine.log.delete_topics(pb.DeleteTopicsRequest(names=[TOPIC, TOPIC]), effects).topics
    other = pb.AlterTopicsRequest(topics=[pb.AlterTopicsRequest.Topic(name=TOPIC, retention_ms=5)] * 2)
    altered = engine.log.alter_topics(other, effects).topics
    assert {topic.error_code for topic in (*grown, *deleted, *altered)} == {codes.INVALID_REQUEST}
    assert effects == Effects()


def test_a_topic_that_is_made_again_has_another_id_and_other_logs() -> None:
    engine = Engine()
    first = engine.create(partitions=2)
    old_logs = {partition.log_id for partition in engine.log.partitions()}
    assert engine.delete().topic_id == first.topic_id
    assert set(engine.writes[-1].dropped) == old_logs
    assert engine.log.partition(TOPIC, 0) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert engine.log.partition(TOPIC, 0, first.topic_id) == codes.UNKNOWN_TOPIC_ID
    second = engine.create(partitions=2)
    assert second.topic_id != first.topic_id
    assert not old_logs & {partition.log_id for partition in engine.log.partitions()}
    assert engine.log.partition(TOPIC, 0, first.topic_id) == codes.UNKNOWN_TOPIC_ID
    assert engine.log.partition(TOPIC, 0, second.topic_id) == engine.partition()
    assert engine.log.topic_id(TOPIC) == second.topic_id
    assert engine.log.topic_id("unknown") is None


def test_the_number_of_a_log_is_not_given_again_after_all_topics_went_and_the_events_were_compacted() -> None:
    engine = Engine()
    engine.create(partitions=3)
    highest = max(partition.log_id for partition in engine.log.partitions())
    engine.delete()
    engine.log = engine.read(engine.log.snapshot())
    engine.create()
    assert engine.partition().log_id > highest


def test_rows_of_a_deleted_topic_that_are_still_in_the_file_mean_nothing() -> None:
    engine = Engine()
    engine.create()
    engine.produce()
    engine.delete()
    engine.create()
    engine.crash()
    assert engine.partition().end == 0


@pytest.mark.parametrize("index", [-1, 1])
def test_there_are_only_partitions_that_were_made(index: int) -> None:
    engine = Engine()
    engine.create()
    assert engine.log.partition(TOPIC, index) == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert engine.delete_records(0, index).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_topics_are_reported_one_by_one() -> None:
    engine = Engine()
    engine.create(partitions=3)
    names = ["unknown", TOPIC]
    described = engine.log.describe_topics(pb.DescribeTopicsRequest(names=names)).topics
    assert [(topic.error_code, topic.partitions) for topic in described] == [
        (codes.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (codes.NONE, 3),
    ]
    assert engine.delete("unknown").error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def test_records_are_deleted_up_to_an_offset_or_to_the_high_watermark() -> None:
    engine = Engine()
    engine.create()
    engine.produce(records=10)
    assert engine.delete_records(4).log_start_offset == 4
    # It does not go back, and that is no error: what should be gone is gone.
    assert engine.delete_records(2).log_start_offset == 4
    assert engine.delete_records(11).error_code == codes.OFFSET_OUT_OF_RANGE
    assert engine.delete_records(-2).error_code == codes.OFFSET_OUT_OF_RANGE
    assert engine.partition().start == 4
    assert engine.delete_records(-1).log_start_offset == 10


def test_records_that_are_not_in_the_file_yet_are_not_deleted() -> None:
    engine = Engine(writes_at_once=False)
    engine.create()
    engine.produce(records=10)
    assert engine.delete_records(5).error_code == codes.OFFSET_OUT_OF_RANGE
    assert engine.delete_records(-1).log_start_offset == 0


def test_records_of_an_open_transaction_and_behind_it_are_not_deleted() -> None:
    engine = Engine()
    engine.create()
    engine.produce(records=3)
    producer = engine.init()
    engine.produce(producer, sequence=0, records=2)
    engine.produce(records=5)
    assert engine.delete_records(4).error_code == codes.OFFSET_OUT_OF_RANGE
    assert engine.delete_records(-1).log_start_offset == 3
    engine.end(producer, commit=True)
    assert engine.delete_records(-1).log_start_offset == 11


def test_an_empty_log_goes_on_where_it_ended() -> None:
    engine = Engine()
    engine.create()
    engine.produce(records=10)
    engine.delete_records(-1)
    # The rows are gone from the file too.
    for effects in engine.writes:
        effects.rows.clear()
    engine.crash()
    assert engine.partition().high_watermark == 10
    assert engine.produce().base_offset == 10
