"""Transactions beside their table: epochs, fencing, timeouts, limits, and groups."""

import pytest

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.config import LogConfig
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import COPIER, TIMEOUT_MS, Engine, Producer, batch

MEMBER = pb.AddOffsetsToTransactionRequest(
    group_id="group", generation_id=3, member_id="member", group_instance_id="pod-0"
)


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.create(partitions=3)
    return engine


def test_every_transaction_has_its_own_epoch_and_its_sequences_begin_anew(engine: Engine) -> None:
    producer = engine.init()
    for epoch in range(4):
        assert producer.epoch == epoch
        assert engine.produce(producer, 0).error_code == codes.NONE
        producer = engine.ended(producer, commit=epoch % 2 == 0)


def test_a_word_that_comes_late_does_not_begin_a_transaction(engine: Engine) -> None:
    producer = engine.init()
    # The producer gave up on a batch that is still on its way, and aborts what it may have begun.
    after = engine.ended(producer, commit=False)
    assert engine.produce(producer, 0).error_code == codes.INVALID_PRODUCER_EPOCH
    assert engine.end(producer, commit=False).producer_epoch == after.epoch
    assert engine.headers() == []


def test_an_answer_that_was_lost_is_given_again(engine: Engine) -> None:
    producer = engine.init()
    engine.produce(producer, 0)
    first = engine.end(producer, commit=True)
    written = len(engine.rows), len(engine.events)
    for _ in range(2):
        assert engine.end(producer, commit=True) == first
        engine.crash()
    assert (len(engine.rows), len(engine.events)) == written


def test_a_commit_that_became_an_abort_is_never_called_a_commit(engine: Engine) -> None:
    producer = engine.init()
    engine.produce(producer, 0)
    engine.add_group(producer)
    first = engine.end(producer, commit=True, refused=codes.UNKNOWN_MEMBER_ID)
    again = engine.end(producer, commit=True)
    assert (first.error_code, again.error_code) == (codes.UNKNOWN_MEMBER_ID, codes.INVALID_TXN_STATE)
    # It may go on all the same.
    assert (first.producer_id, first.producer_epoch) == (again.producer_id, again.producer_epoch)
    assert (
        engine.produce(Producer(again.producer_id, again.producer_epoch, COPIER), 0).error_code == codes.NONE
    )
    assert [ending.committed for ending in engine.endings] == [False]


def test_an_abort_needs_no_groups_consent(engine: Engine) -> None:
    producer = engine.init()
    engine.add_group(producer)
    assert engine.end(producer, commit=False, refused=codes.UNKNOWN_MEMBER_ID).error_code == codes.NONE


def test_who_was_replaced_learns_nothing_of_the_next_epoch(engine: Engine) -> None:
    old = engine.init()
    engine.produce(old, 0)
    new = engine.init()
    assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 1)
    for commit in (True, False):
        answer = engine.end(old, commit=commit)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            codes.PRODUCER_FENCED,
            -1,
            -1,
        )
    assert engine.produce(new, 0).error_code == codes.NONE


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    engine = Engine(LogConfig(epoch_max=3))
    engine.create()
    producer = engine.init()
    seen = []
    for number in range(9):
        seen.append(producer[:2])
        assert engine.produce(producer, 0).error_code == codes.NONE
        after = engine.ended(producer, commit=True)
        # The lost answer of the last epoch leads to the new id as well.
        again = engine.end(producer, commit=True)
        assert (again.producer_id, again.producer_epoch) == after[:2]
        if number % 2:
            engine.crash()
        producer = after
    first, second, third = (seen[index][0] for index in (0, 4, 8))
    assert len({first, second, third}) == 3
    assert seen == [(first, n) for n in range(4)] + [(second, n) for n in range(4)] + [(third, 0)]
    assert engine.produce(Producer(first, 3, COPIER), 0).error_code == codes.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("how", ["init", "timeout"])
def test_the_last_epoch_is_fenced_too(how: str) -> None:
    engine = Engine(LogConfig(epoch_max=0))
    engine.create()
    producer = engine.init()
    engine.produce(producer, 0)
    engine.add_group(producer)
    if how == "init":
        assert engine.init().producer_id != producer.producer_id
    else:
        engine.pass_time(TIMEOUT_MS)
    assert [ending[1:] for ending in engine.endings] == [(*producer[:2], False)]
    assert engine.partition().is_aborted(engine.headers()[0])
    assert engine.produce(producer, 1).error_code == codes.INVALID_PRODUCER_ID_MAPPING
    assert engine.end(producer, commit=True).error_code == codes.INVALID_PRODUCER_ID_MAPPING


def test_the_markers_are_in_every_partition_that_was_written_to(engine: Engine) -> None:
    producer = engine.init()
    engine.produce(producer, 0, index=2)
    engine.produce(producer, 0, index=0)
    engine.end(producer, commit=True)
    assert [row.header.control for row in engine.writes[-1].rows] == [1, 1]
    assert [engine.partition(index).end for index in range(3)] == [2, 0, 2]
    # The next transaction's are its own.
    engine.end(engine.init(), commit=False)
    assert engine.writes[-1].rows == []


def test_a_topic_that_goes_takes_its_part_of_the_transaction_along(engine: Engine) -> None:
    producer = engine.init()
    engine.produce(producer, 0)
    engine.delete()
    engine.create()
    assert engine.end(producer, commit=True).error_code == codes.NONE
    assert engine.writes[-1].rows == []
    assert engine.partition().end == 0


def test_the_timeout_counts_from_the_beginning(engine: Engine) -> None:
    producer = engine.init()
    engine.pass_time(TIMEOUT_MS)
    engine.produce(producer, 0)
    assert engine.log.wake_at_ms() == engine.now_ms + TIMEOUT_MS
    engine.pass_time(TIMEOUT_MS - 1)
    assert engine.produce(producer, 1).error_code == codes.NONE
    engine.pass_time(1)
    assert engine.produce(producer, 2).error_code == codes.INVALID_PRODUCER_EPOCH
    assert engine.end(producer, commit=False).error_code == codes.PRODUCER_FENCED
    assert engine.init().epoch == producer.epoch + 2


def test_the_timeout_is_what_the_producer_asked_for_last(engine: Engine) -> None:
    engine.init(timeout_ms=500)
    producer = engine.init(timeout_ms=700)
    engine.produce(producer, 0)
    assert engine.log.wake_at_ms() == engine.now_ms + 700


def test_an_epoch_that_was_never_given_out_is_refused(engine: Engine) -> None:
    ahead = engine.init()._replace(epoch=1)
    assert engine.produce(ahead, 0).error_code == codes.INVALID_PRODUCER_EPOCH
    assert engine.add_group(ahead) == codes.PRODUCER_FENCED
    assert engine.end(ahead, commit=False).error_code == codes.PRODUCER_FENCED


def test_while_nobody_served_no_time_passed(engine: Engine) -> None:
    producer = engine.init()
    engine.produce(producer, 0)
    engine.now_ms += 10 * TIMEOUT_MS
    engine.crash()
    assert engine.log.wake_at_ms() == engine.now_ms + TIMEOUT_MS
    assert engine.end(producer, commit=True).error_code == codes.NONE


def test_only_what_is_due_is_done(engine: Engine) -> None:
    quick, slow = engine.init("quick", timeout_ms=10), engine.init("slow", timeout_ms=20)
    engine.produce(quick, 0)
    engine.produce(slow, 0)
    engine.pass_time(10)
    assert engine.end(quick, commit=True).error_code == codes.PRODUCER_FENCED
    assert engine.end(slow, commit=True).error_code == codes.NONE


def test_ids_that_nobody_uses_are_forgotten_the_others_stay() -> None:
    engine = Engine(LogConfig(producers_expire_ms=1000))
    engine.create()
    unused, used, open_ = engine.init("unused"), engine.init("used"), engine.init("open", 900_000)
    engine.produce(open_, 0)
    engine.pass_time(600)
    used = engine.ended(used, commit=False)
    assert engine.log.wake_at_ms() == engine.now_ms + 400
    engine.crash()
    engine.pass_time(400)
    assert engine.end(unused, commit=False).error_code == codes.INVALID_PRODUCER_ID_MAPPING
    assert engine.produce(used, 0, index=0).error_code == codes.NONE
    assert engine.end(open_, commit=True).error_code == codes.NONE
    # Who comes back is somebody new.
    assert engine.init("unused").producer_id not in {each.producer_id for each in (unused, used, open_)}


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [
        (COPIER, 1, codes.NONE),
        (COPIER, 900_000, codes.NONE),
        (COPIER, 0, codes.INVALID_TRANSACTION_TIMEOUT),
        (COPIER, 900_001, codes.INVALID_TRANSACTION_TIMEOUT),
        ("a" * 250, 1, codes.INVALID_REQUEST),
        ("", 0, codes.NONE),
    ],
)
def test_what_a_producer_may_ask_for(
    transactional_id: str, timeout_ms: int, error: codes.ErrorCode.ValueType
) -> None:
    answer = Engine().ask_init(transactional_id, timeout_ms)
    assert answer.error_code == error
    assert (answer.producer_id < 0, answer.producer_epoch) == ((True, -1) if error else (False, 0))


def test_there_is_a_limit_to_transactional_ids() -> None:
    engine = Engine(LogConfig(transactional_ids_max=2))
    engine.init("a")
    engine.init("b")
    assert engine.ask_init("c").error_code == codes.POLICY_VIOLATION
    assert engine.ask_init("a").error_code == codes.NONE
    assert engine.ask_init("").error_code == codes.NONE


def test_there_is_a_limit_to_what_a_transaction_touches() -> None:
    engine = Engine(LogConfig(transaction_partitions_max=2, transaction_groups_max=1))
    engine.create(partitions=3)
    producer = engine.init()
    assert [engine.produce(producer, 0, index=index).error_code for index in (0, 1, 2)] == [
        codes.NONE,
        codes.NONE,
        codes.TRANSACTION_ABORTABLE,
    ]
    assert engine.produce(producer, 1, index=1).error_code == codes.NONE
    assert engine.add_group(producer, "one") == codes.NONE
    assert engine.add_group(producer, "two") == codes.TRANSACTION_ABORTABLE
    assert engine.add_group(producer, "one") == codes.NONE
    producer = engine.ended(producer, commit=True)
    assert engine.produce(producer, 0, index=2).error_code == codes.NONE
    assert engine.add_group(producer, "two") == codes.NONE


def test_partitions_that_are_gone_do_not_count_for_the_limit() -> None:
    engine = Engine(LogConfig(transaction_partitions_max=1))
    engine.create()
    producer = engine.init()
    engine.produce(producer, 0)
    engine.delete()
    engine.create()
    assert engine.produce(producer, 0).error_code == codes.NONE


@pytest.mark.parametrize("group_id", ["", "g" * 250])
def test_a_group_must_have_a_name(engine: Engine, group_id: str) -> None:
    producer = engine.init()
    assert engine.add_group(producer, group_id) == codes.INVALID_GROUP_ID
    assert engine.end(producer, commit=True).error_code == codes.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("generation", "member", "error"),
    [
        (3, "member", codes.NONE),
        (4, "member", codes.ILLEGAL_GENERATION),
        (3, "another", codes.UNKNOWN_MEMBER_ID),
        (-1, "", codes.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_transaction_is_of_one_member_in_one_generation(
    engine: Engine, generation: int, member: str, error: codes.ErrorCode.ValueType
) -> None:
    producer = engine.init()
    assert engine.offsets_error(producer) == codes.INVALID_TXN_STATE
    engine.add_group(producer, generation=3, member="member")
    assert engine.offsets_error(producer, generation=generation, member=member) == error
    assert engine.add_group(producer, generation=generation, member=member) == error
    assert engine.offsets_error(producer, "another group") == codes.INVALID_TXN_STATE
    (added,) = engine.log.memberships(COPIER)
    assert (added.group_id, added.generation_id, added.member_id) == ("group", 3, "member")
    assert not added.HasField("group_instance_id")


def test_an_instance_is_part_of_the_membership(engine: Engine) -> None:
    producer = engine.init()
    request = pb.AddOffsetsToTransactionRequest()
    request.CopyFrom(MEMBER)
    request.transactional_id, request.producer_id, request.producer_epoch = COPIER, *producer[:2]
    engine.decide(lambda effects: engine.log.add_offsets(request, WallMs(engine.now_ms), effects))
    (added,) = engine.log.memberships(COPIER)
    assert added.group_instance_id == "pod-0"
    assert engine.add_group(producer) == codes.FENCED_INSTANCE_ID
    assert engine.log.memberships("unknown") == []


def test_a_batch_is_in_the_transaction_of_its_request_or_in_none(engine: Engine) -> None:
    producer = engine.init()
    plain = Producer(producer.producer_id, producer.epoch)
    without_id = engine.send(batch(producer, 0), producer=plain)
    without_transaction = engine.send(batch(plain, 0), producer=producer)
    mixed = engine.send(batch(producer, 0), batch(), producer=producer)
    for refused in (without_id, without_transaction, mixed):
        assert refused.error_code == codes.INVALID_TXN_STATE
    assert engine.headers() == []


def test_calls_without_a_transactional_id_are_refused(engine: Engine) -> None:
    nobody = engine.init("")
    assert engine.end(nobody, commit=True).error_code == codes.INVALID_REQUEST
    assert engine.add_group(nobody) == codes.INVALID_REQUEST
    assert engine.offsets_error(nobody) == codes.INVALID_REQUEST
