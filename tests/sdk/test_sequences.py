"""Batches are numbered without a gap under one identity, and every answer has one meaning."""

import pytest

from rota import errors
from rota.producer.accumulator import Queue
from rota.producer.sequences import NO_IDENTITY, AttemptResult, Identity, Sequences, attempt_result

HERE, THERE = Queue("t", 0), Queue("t", 1)
FIRST, SECOND = Identity(7, 0), Identity(8, 0)
TRANSACTIONAL = Identity(9, 3, "copy")


def test_numbers_go_on_in_each_partition_by_itself() -> None:
    sequences = Sequences()
    assert sequences.first(HERE, FIRST) == 0
    sequences.written(HERE, FIRST, 0, 5)
    assert (sequences.first(HERE, FIRST), sequences.first(THERE, FIRST)) == (5, 0)


def test_what_was_not_written_leaves_no_gap() -> None:
    sequences = Sequences()
    sequences.first(HERE, FIRST)
    assert sequences.first(HERE, FIRST) == 0


def test_behind_the_last_number_comes_the_first() -> None:
    sequences = Sequences()
    sequences.first(HERE, FIRST)
    sequences.written(HERE, FIRST, 2**31 - 3, 5)
    assert sequences.first(HERE, FIRST) == 2


def test_another_identity_begins_anew_and_late_answers_to_the_old_one_change_nothing() -> None:
    sequences = Sequences()
    sequences.first(HERE, FIRST)
    sequences.written(HERE, FIRST, 0, 5)
    assert sequences.first(HERE, SECOND) == 0
    sequences.written(HERE, FIRST, 5, 5)
    assert sequences.first(HERE, SECOND) == 0


@pytest.mark.parametrize(
    ("error", "identity", "meaning"),
    [
        (None, FIRST, AttemptResult.WRITTEN),
        (errors.DuplicateSequenceNumber(), FIRST, AttemptResult.ALREADY_WRITTEN),
        (errors.DuplicateSequenceNumber(), TRANSACTIONAL, AttemptResult.ALREADY_WRITTEN),
        (errors.Disconnected("away"), NO_IDENTITY, AttemptResult.RETRY),
        (errors.KafkaStorageError(), TRANSACTIONAL, AttemptResult.RETRY),
        (errors.OutOfOrderSequenceNumber(), FIRST, AttemptResult.RETRY_WITH_NEW_IDENTITY),
        (errors.UnknownProducerId(), FIRST, AttemptResult.RETRY_WITH_NEW_IDENTITY),
        (errors.InvalidProducerEpoch(), FIRST, AttemptResult.RETRY_WITH_NEW_IDENTITY),
        (errors.OutOfOrderSequenceNumber(), TRANSACTIONAL, AttemptResult.FAILED),
        (errors.InvalidProducerEpoch(), TRANSACTIONAL, AttemptResult.FAILED),
        (errors.OutOfOrderSequenceNumber(), NO_IDENTITY, AttemptResult.FAILED),
        (errors.RecordTooLarge(), FIRST, AttemptResult.FAILED),
        (errors.UnknownTopicOrPartition(), FIRST, AttemptResult.FAILED),
        (errors.ProducerFenced(), TRANSACTIONAL, AttemptResult.FAILED),
    ],
)
def test_every_answer_has_one_meaning(
    error: errors.RotaError | None, identity: Identity, meaning: AttemptResult
) -> None:
    assert attempt_result(error, identity) is meaning
