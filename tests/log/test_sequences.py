"""Idempotent producers: the rules of Kafka's broker, one by one."""

import pytest

from rota_coordinator.core.log.config import LogConfig
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from tests.log.engine import Engine, Producer, batch

LAST_SEQUENCE = 2**31 - 1


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.create(partitions=2)
    return engine


@pytest.fixture
def producer(engine: Engine) -> Producer:
    return engine.init("")


def test_sequences_follow_each_other(engine: Engine, producer: Producer) -> None:
    assert engine.produce(producer, 0, records=3).base_offset == 0
    assert engine.produce(producer, 3, records=2).base_offset == 3
    # Each partition counts by itself.
    assert engine.produce(producer, 0, index=1).base_offset == 0


def test_a_gap_is_refused(engine: Engine, producer: Producer) -> None:
    engine.produce(producer, 0, records=3)
    refused = engine.produce(producer, 4)
    assert (refused.error_code, refused.base_offset) == (codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert engine.partition().end == 3


def test_the_last_five_batches_are_answered_with_their_old_offsets(
    engine: Engine, producer: Producer
) -> None:
    for sequence in range(0, 14, 2):
        engine.produce(producer, sequence, records=2)
    for sequence in range(4, 14, 2):
        reply = engine.produce(producer, sequence, records=2)
        assert (reply.error_code, reply.base_offset) == (codes.NONE, sequence)
        assert engine.writes[-1].rows == []
    assert engine.produce(producer, 2, records=2).error_code == codes.DUPLICATE_SEQUENCE_NUMBER
    assert engine.produce(producer, 0, records=2).error_code == codes.DUPLICATE_SEQUENCE_NUMBER
    assert engine.partition().end == 14


@pytest.mark.parametrize(("sequence", "records"), [(3, 4), (4, 3), (2, 1)])
def test_what_is_partly_there_is_out_of_order_or_old(
    engine: Engine, producer: Producer, sequence: int, records: int
) -> None:
    engine.produce(producer, 0, records=2)
    engine.produce(producer, 2, records=3)
    error = codes.DUPLICATE_SEQUENCE_NUMBER if records == 1 else codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert engine.produce(producer, sequence, records=records).error_code == error
    assert engine.partition().end == 5


def test_an_unknown_producer_begins_where_it_wants(engine: Engine, producer: Producer) -> None:
    assert engine.produce(producer, 40, records=2).base_offset == 0
    assert engine.produce(producer, 42).base_offset == 2
    # Whether what came before was ever written is not known: its producer must not believe so.
    assert engine.produce(producer, 38, records=2).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_behind_the_last_sequence_comes_the_first(engine: Engine, producer: Producer) -> None:
    engine.produce(producer, LAST_SEQUENCE - 1, records=2)
    assert engine.produce(producer, 0).base_offset == 2
    assert engine.produce(producer, LAST_SEQUENCE - 1, records=2).base_offset == 0


def test_a_batch_may_reach_over_the_last_sequence(engine: Engine, producer: Producer) -> None:
    engine.produce(producer, LAST_SEQUENCE, records=3)
    assert engine.produce(producer, 2).base_offset == 3
    assert engine.produce(producer, 1).error_code == codes.DUPLICATE_SEQUENCE_NUMBER
    assert engine.produce(producer, LAST_SEQUENCE - 1).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_with_the_first_sequence(engine: Engine, producer: Producer) -> None:
    engine.produce(producer, 0, records=3)
    raised = producer._replace(epoch=1)
    assert engine.produce(raised, 3).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert engine.produce(raised, 0).base_offset == 3
    # Of the old one nothing is heard any more, not even of what is there.
    assert engine.produce(producer, 0, records=3).error_code == codes.INVALID_PRODUCER_EPOCH
    assert engine.produce(raised, 1).base_offset == 4


def test_batches_of_one_request_follow_each_other_or_none_is_taken(
    engine: Engine, producer: Producer
) -> None:
    first, second, gap = batch(producer, 0, 2), batch(producer, 2, 2), batch(producer, 5, 2)
    refused = engine.send(first, second, gap, producer=producer)
    assert refused.error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert engine.writes[-1].rows == []
    assert engine.send(first, producer=producer).base_offset == 0
    # One that is there, and one that is new.
    assert engine.send(first, second, producer=producer).base_offset == 0
    assert [header.base_offset for header in engine.headers()] == [0, 2]
    assert engine.send(second, batch(producer, 4, 1), producer=producer).base_offset == 2
    assert engine.partition().end == 5


def test_a_restart_forgets_nothing(engine: Engine, producer: Producer) -> None:
    for sequence in range(7):
        engine.produce(producer, sequence)
    engine.crash()
    assert engine.produce(producer, 4).base_offset == 4
    assert engine.produce(producer, 1).error_code == codes.DUPLICATE_SEQUENCE_NUMBER
    assert engine.produce(producer, 8).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert engine.produce(producer, 7).base_offset == 7


def test_of_deleted_batches_as_much_is_known_as_after_a_restart(engine: Engine, producer: Producer) -> None:
    for sequence in range(7):
        engine.produce(producer, sequence)
    engine.delete_records(4)
    for _ in range(2):
        assert engine.produce(producer, 3).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert engine.produce(producer, 4).base_offset == 4
        engine.crash()
    engine.delete_records(-1)
    # Nothing is left: it may begin anew.
    assert engine.produce(producer, 40).base_offset == 7


def test_who_has_been_silent_for_longest_is_forgotten_first() -> None:
    engine = Engine(LogConfig(partition_producers_max=2))
    engine.create()
    first, second, third = (engine.init("") for _ in range(3))
    engine.produce(first, 0)
    engine.produce(second, 0)
    engine.produce(first, 1)
    engine.produce(third, 0)
    for _ in range(2):
        known = [producer_id for producer_id, _ in engine.partition().sequences]
        assert known == [first.producer_id, third.producer_id]
        engine.crash()
    assert engine.produce(first, 9).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert engine.produce(second, 9).error_code == codes.NONE


def test_a_producer_that_was_never_made_is_refused(engine: Engine) -> None:
    # Somebody will be given that id, and the two would be taken for one.
    assert engine.produce(Producer(5, 0), 0).error_code == codes.UNKNOWN_PRODUCER_ID
    # What a client sends that leaves the field out.
    engine.init("")
    assert engine.init("").producer_id > 0


def test_ids_of_producers_are_never_given_twice() -> None:
    engine = Engine()
    ids = []
    for _ in range(3):
        ids += [engine.init("").producer_id for _ in range(700)]
        engine.crash()
    assert len(set(ids)) == len(ids)
    # Most of them cost no write.
    assert len(engine.events) == 3
