"""Batches are numbered without a gap under one identity, and every answer has one meaning."""

import pytest

from rota import errors
from rota.producer.accumulator import Queue
from rota.producer.sequences import NOBODY, Identity, Sequences, Verdict, verdict

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


def test_another_identity_begins_anew_and_late_words_of_the_old_one_change_nothing() -> None:
    sequences = Sequences()
    sequences.first(HERE, FIRST)
    sequences.written(HERE, FIRST, 0, 5)
    assert sequences.first(HERE, SECOND) == 0
    sequences.written(HERE, FIRST, 5, 5)
    assert sequences.first(HERE, SECOND) == 0


@pytest.mark.parametrize(
    ("error", "identity", "meaning"),
    [
        (None, FIRST, Verdict.WRITTEN),
        (errors.DuplicateSequenceNumber(), FIRST, Verdict.WRITTEN_BEFORE),
        (errors.DuplicateSequenceNumber(), TRANSACTIONAL, Verdict.WRITTEN_BEFORE),
        (errors.Disconnected("away"), NOBODY, Verdict.AGAIN),
        (errors.KafkaStorageError(), TRANSACTIONAL, Verdict.AGAIN),
        (errors.OutOfOrderSequenceNumber(), FIRST, Verdict.AGAIN_AS_ANOTHER),
        (errors.UnknownProducerId(), FIRST, Verdict.AGAIN_AS_ANOTHER),
        (errors.InvalidProducerEpoch(), FIRST, Verdict.AGAIN_AS_ANOTHER),
        (errors.OutOfOrderSequenceNumber(), TRANSACTIONAL, Verdict.FAILED),
        (errors.InvalidProducerEpoch(), TRANSACTIONAL, Verdict.FAILED),
        (errors.OutOfOrderSequenceNumber(), NOBODY, Verdict.FAILED),
        (errors.RecordTooLarge(), FIRST, Verdict.FAILED),
        (errors.UnknownTopicOrPartition(), FIRST, Verdict.FAILED),
        (errors.ProducerFenced(), TRANSACTIONAL, Verdict.FAILED),
    ],
)
def test_every_answer_has_one_meaning(
    error: errors.RotaError | None, identity: Identity, meaning: Verdict
) -> None:
    assert verdict(error, identity) is meaning
