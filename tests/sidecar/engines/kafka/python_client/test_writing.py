"""Dead letters are sent in batches that the broker takes, each partition's in order."""

from collections import deque

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.python_client.writing import BATCH_BYTES_MAX, Queue, _advance, _batches
from rota_sidecar.engines.port import Refused
from rota_sidecar.engines.records import DeadLetter

HERE = Partition("dead", 0)


def of_size(size: int) -> DeadLetter:
    return DeadLetter("dead", None, bytes(size), (), 0)


def queues(*sizes: int) -> dict[Partition, Queue]:
    return {HERE: deque([[of_size(each) for each in sizes], [of_size(9)]])}


def test_batches_are_within_the_limit_or_have_one_record() -> None:
    half = BATCH_BYTES_MAX // 2
    sizes = [10, half, half, 3 * half, 10, 10, half]
    batches = list(_batches([of_size(size) for size in sizes]))
    assert [[len(each.value or b"") for each in batch] for batch in batches] == [
        [10, half],
        [half],
        [3 * half],
        [10, 10, half],
    ]


def test_an_acknowledged_batch_is_followed_by_the_next_one() -> None:
    left = queues(1, 2)
    assert _advance(left, HERE, 0)
    assert [len(batch) for batch in left[HERE]] == [1]
    assert _advance(left, HERE, 0)
    assert left == {}


def test_a_batch_that_is_too_large_is_sent_in_halves_in_order() -> None:
    left = queues(1, 2, 3)
    assert _advance(left, HERE, pb.MESSAGE_TOO_LARGE)
    sizes = [[len(each.value or b"") for each in batch] for batch in left[HERE]]
    assert sizes == [[1], [2, 3], [9]]
    with pytest.raises(
        Refused, match=r"^Kafka rejected dead letters for 'dead' \(a record is too large\); check"
    ):
        _advance(left, HERE, pb.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize(
    "error", [6, pb.REQUEST_TIMED_OUT, pb.KAFKA_STORAGE_ERROR, pb.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_after_an_error_of_the_broker_the_batch_is_sent_again(error: int) -> None:
    left = queues(1)
    assert not _advance(left, HERE, error)
    assert [len(batch) for batch in left[HERE]] == [1, 1]


def test_a_refused_batch_says_why() -> None:
    with pytest.raises(Refused, match="not authorized to write to it"):
        _advance(queues(1), HERE, pb.TOPIC_AUTHORIZATION_FAILED)
