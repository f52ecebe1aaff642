"""The core of the fetches: each partition is fetched from its leader, once at a time, and every answer moves it on."""

from collections.abc import Sequence

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.metadata import NO_LEADER, Described, Leader, Metadata
from rota_sidecar.engines.kafka.python_client.fetcher import (
    RECHECK_MS,
    RETRY_MS,
    Fetcher,
    Part,
    PartitionFetch,
    Plan,
)
from rota_sidecar.engines.kafka.python_client.record_set import Decoded
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.kafka.tracks import AHEAD_BYTES_MAX, AHEAD_BYTES_TOTAL_MAX
from rota_sidecar.engines.records import FetchRequest

P0, P1, OTHER = Partition("orders", 0), Partition("orders", 1), Partition("bills", 0)
IDS = {"orders": b"o" * 16, "bills": b"b" * 16}
NOT_LEADER_OR_FOLLOWER = 6
ADDRESSES = {node: Address(f"kafka-{node}", 9092) for node in (1, 2)}
BYTES = 1 << 20


def described(
    leaders: Sequence[int] = (1, 2),
    name: str = "orders",
    *,
    error: int = 0,
    epoch: int = 5,
    topic_id: bytes = b"",
) -> Described:
    topic = Topic(len(leaders), (), topic_id or IDS[name])
    return Described(
        name, error, is_internal=False, topic=topic, leaders=[Leader(node, epoch) for node in leaders]
    )


def batch(first: int, count: int = 1, size: int = 100) -> Batch:
    return Batch(first, count, size, None)


def decoded(*batches: Batch, end: int | None = None, problem: str = "", leader_epoch: int = 5) -> Decoded:
    return Decoded(list(batches), batches[-1].end if end is None else end, leader_epoch, problem)


class Driven:
    """A fetcher with the time, and the requests in flight."""

    def __init__(self) -> None:
        self.fetcher = Fetcher()
        self.now_ms = 1_000
        self.epochs = 0

    def request(
        self, partition: Partition = P0, offset: int = 0, *, epoch: int = 0, size: int = BYTES
    ) -> int:
        if not epoch:
            self.epochs += 1
            epoch = self.epochs
        self.fetcher.set_request(FetchRequest(epoch, partition, offset, size))
        return epoch

    def describe(self, *topics: Described) -> None:
        """Answer the descriptions that are due."""
        names = self.fetcher.topics_to_describe(self.now_ms)
        assert names
        self.fetcher.described(names, Metadata(topics, "", ADDRESSES), self.now_ms)

    def plans(self) -> dict[int, Plan]:
        """Send what is ready, by broker."""
        ready = self.fetcher.ready(self.now_ms)
        return {node: self.fetcher.begin(node, fetches) for node, fetches in ready.items()}

    def plan(self, node: int = 1) -> Plan:
        """Send the only request, which is for this broker."""
        plans = self.plans()
        assert list(plans) == [node]
        return plans[node]

    def answer(self, plan: Plan, *parts: Part) -> list[Read | ReadFailed]:
        keys = [(fetch.topic_id, fetch.partition.number) for fetch in plan.fetches]
        self.fetcher.fetched(plan, dict(zip(keys, parts, strict=True)), self.now_ms)
        return self.results()

    def results(self) -> list[Read | ReadFailed]:
        return list(self.fetcher.results())

    def started(self, offset: int = 0) -> Plan:
        """Request a partition, and return the request that is sent for it."""
        self.request(P0, offset)
        self.describe(described())
        return self.plan()


def partitions(plan: Plan) -> list[Partition]:
    return [fetch.partition for fetch in plan.fetches]


def test_partitions_are_fetched_from_their_leaders() -> None:
    driven = Driven()
    for each in (P0, P1, OTHER):
        driven.request(each, 7)
    assert driven.plans() == {}
    driven.describe(described(), described([1], "bills"))
    plans = driven.plans()
    assert {node: partitions(plan) for node, plan in plans.items()} == {1: [P0, OTHER], 2: [P1]}
    assert list(plans[1].offsets) == [7, 7]
    assert driven.plans() == {}, "each of them is in flight"
    assert driven.fetcher.topics_to_describe(driven.now_ms) == []


def test_records_answer_the_request_and_the_next_ones_are_prefetched() -> None:
    driven = Driven()
    plan = driven.started()
    assert plan.is_urgent
    (read,) = driven.answer(plan, Part(0, 0, 9, decoded=decoded(batch(0, 3))))
    assert isinstance(read, Read)
    assert (read.next_offset, read.bounds, len(read.batches)) == (3, Bounds(0, 9), 1)
    plan = driven.plan()
    assert (list(plan.offsets), plan.is_urgent) == ([3], False)
    assert driven.answer(plan, Part(0, 0, 9, decoded=decoded(batch(3, 3)))) == []
    driven.request(P0, 3, epoch=1)
    (read,) = driven.results()
    assert isinstance(read, Read)
    assert read.next_offset == 6


def test_an_empty_partition_tells_its_bounds_once() -> None:
    driven = Driven()
    (read,) = driven.answer(driven.started(4), Part(0, 2, 4, decoded=decoded(end=4)))
    assert read == Read(1, [], 4, Bounds(2, 4))
    driven.request(P0, 4, epoch=1)
    assert driven.answer(driven.plan(), Part(0, 2, 4, decoded=decoded(end=4))) == []
    (read,) = driven.answer(driven.plan(), Part(0, 3, 4, decoded=decoded(end=4)))
    assert read == Read(1, [], 4, Bounds(3, 4))


def test_offsets_without_records_for_readers_are_passed_over() -> None:
    driven = Driven()
    (read,) = driven.answer(driven.started(), Part(0, 0, 20, decoded=decoded(end=8)))
    assert read == Read(1, [], 8, Bounds(0, 20))


def test_a_partition_without_a_request_is_prefetched_up_to_its_limit() -> None:
    driven = Driven()
    driven.answer(driven.started(), Part(0, 0, 99, decoded=decoded(batch(0))))
    driven.answer(driven.plan(), Part(0, 0, 99, decoded=decoded(batch(1, 1, AHEAD_BYTES_MAX))))
    assert driven.plans() == {}
    driven.request(P0, 1, epoch=1)
    assert len(driven.results()) == 1
    assert list(driven.plan().offsets) == [2]


def test_all_partitions_together_are_prefetched_up_to_a_limit() -> None:
    driven = Driven()
    many = [Partition("orders", number) for number in range(40)]
    for each in many:
        driven.request(each)
    driven.describe(described([1] * 40))
    driven.answer(driven.plan(), *[Part(0, 0, 99, decoded=decoded(batch(0))) for _ in many])
    size = AHEAD_BYTES_TOTAL_MAX // 40 + 1
    assert size < AHEAD_BYTES_MAX
    driven.answer(driven.plan(), *[Part(0, 0, 99, decoded=decoded(batch(1, 1, size))) for _ in many])
    assert driven.plans() == {}
    driven.request(many[3], 1, epoch=4)
    assert len(driven.results()) == 1
    assert len(driven.plan().fetches) == 40, "there is room again"


def test_another_offset_begins_anew_and_an_answer_on_its_way_is_ignored() -> None:
    driven = Driven()
    plan = driven.started()
    driven.request(P0, 50, epoch=1)
    driven.describe(described())
    again = driven.plan()
    assert driven.answer(plan, Part(0, 0, 99, decoded=decoded(batch(0)))) == []
    (read,) = driven.answer(again, Part(0, 0, 99, decoded=decoded(batch(50))))
    assert isinstance(read, Read)
    assert read.next_offset == 51


def test_a_stopped_fetch_has_no_result() -> None:
    driven = Driven()
    plan = driven.started()
    driven.fetcher.stop(1)
    driven.fetcher.stop(1)
    assert driven.answer(plan, Part(0, 0, 99, decoded=decoded(batch(0)))) == []
    assert driven.plans() == {}
    assert driven.fetcher.wake_at_ms(driven.now_ms) is None


def test_stopping_a_former_delivery_epoch_leaves_the_present_one() -> None:
    driven = Driven()
    driven.started()
    driven.request(P0, 5)
    driven.fetcher.stop(1)
    driven.describe(described())
    assert list(driven.plan().offsets) == [5]


# Leaders


@pytest.mark.parametrize(
    "error",
    [NOT_LEADER_OR_FOLLOWER, pb.FENCED_LEADER_EPOCH, pb.UNKNOWN_LEADER_EPOCH, pb.OFFSET_NOT_AVAILABLE, -1],
)
def test_after_an_error_of_the_leader_it_is_looked_up_again(error: int) -> None:
    driven = Driven()
    assert driven.answer(driven.started(), Part(error, -1, -1)) == []
    assert driven.plans() == {}
    assert driven.fetcher.topics_to_describe(driven.now_ms) == []
    assert driven.fetcher.wake_at_ms(driven.now_ms) == driven.now_ms + RETRY_MS
    driven.now_ms += RETRY_MS
    driven.describe(described([2, 2], epoch=6))
    plan = driven.plan(2)
    assert (list(plan.offsets), plan.fetches[0].leader_epoch) == ([0], 6)


def test_an_older_description_of_the_leader_is_ignored() -> None:
    driven = Driven()
    driven.answer(driven.started(), Part(NOT_LEADER_OR_FOLLOWER, -1, -1))
    driven.now_ms += RETRY_MS
    driven.describe(described([2, 2], epoch=4))
    assert driven.plans() == {}
    driven.now_ms += RETRY_MS
    driven.describe(described([2, 2], epoch=5))
    assert driven.plan(2).fetches


@pytest.mark.parametrize("node", [NO_LEADER, 9])
def test_a_partition_without_a_leader_that_has_an_address_waits_for_one(node: int) -> None:
    driven = Driven()
    driven.request()
    driven.describe(described([node]))
    assert driven.plans() == {}
    driven.now_ms += RETRY_MS
    driven.describe(described([1]))
    assert driven.plan().fetches


def test_a_broker_that_does_not_answer_is_asked_again_when_the_shell_says() -> None:
    driven = Driven()
    plan = driven.started()
    driven.fetcher.fetch_failed(plan, driven.now_ms + 700)
    assert driven.fetcher.wake_at_ms(driven.now_ms) == driven.now_ms + 700
    driven.now_ms += 700
    names = driven.fetcher.topics_to_describe(driven.now_ms)
    driven.fetcher.describe_failed(names, driven.now_ms + 900)
    assert driven.fetcher.wake_at_ms(driven.now_ms) == driven.now_ms + 900
    driven.now_ms += 900
    driven.describe(described())
    assert driven.plan().fetches


def test_a_topic_is_described_once_at_a_time_and_again_for_partitions_that_come_meanwhile() -> None:
    driven = Driven()
    driven.request()
    names = driven.fetcher.topics_to_describe(driven.now_ms)
    driven.request(P1)
    assert driven.fetcher.topics_to_describe(driven.now_ms) == []
    driven.fetcher.described(names, Metadata((described(),), "", ADDRESSES), driven.now_ms)
    assert set(driven.plans()) == {1, 2}


def test_a_leader_whose_log_was_truncated_is_out_of_range() -> None:
    driven = Driven()
    driven.answer(driven.started(), Part(0, 0, 9, decoded=decoded(batch(0, 3), leader_epoch=4)))
    plan = driven.plan()
    assert plan.fetches[0].fetched_epoch == 4
    driven.request(P0, 3, epoch=1)
    (failed,) = driven.answer(plan, Part(0, 0, 2, is_truncated=True))
    assert isinstance(failed, ReadFailed)
    assert failed.fetch_error is FetchError.OUT_OF_RANGE


# Failures


def failure(driven: Driven, plan: Plan, part: Part) -> ReadFailed:
    (failed,) = driven.answer(plan, part)
    assert isinstance(failed, ReadFailed)
    return failed


@pytest.mark.parametrize(
    ("error", "fetch_error"),
    [
        (pb.OFFSET_OUT_OF_RANGE, FetchError.OUT_OF_RANGE),
        (pb.CORRUPT_MESSAGE, FetchError.CORRUPT),
        (pb.TOPIC_AUTHORIZATION_FAILED, FetchError.DENIED),
    ],
)
def test_an_error_for_the_user_ends_the_request_and_the_next_one_fetches_again(
    error: int, fetch_error: FetchError
) -> None:
    driven = Driven()
    failed = failure(driven, driven.started(7), Part(error, -1, -1))
    assert (failed.delivery_epoch, failed.fetch_error) == (1, fetch_error)
    assert driven.plans() == {}
    assert driven.fetcher.topics_to_describe(driven.now_ms) == []
    assert driven.results() == []
    driven.request(P0, 7, epoch=1)
    driven.describe(described())
    assert list(driven.plan().offsets) == [7]


def test_a_failure_while_prefetching_waits_until_its_records_are_wanted() -> None:
    driven = Driven()
    driven.answer(driven.started(), Part(0, 0, 9, decoded=decoded(batch(0, 3))))
    assert driven.answer(driven.plan(), Part(0, 0, 9, decoded=decoded(end=3, problem="it is damaged"))) == []
    assert driven.plans() == {}
    driven.request(P0, 3, epoch=1)
    assert driven.results() == []
    driven.describe(described())
    failed = failure(driven, driven.plan(), Part(0, 0, 9, decoded=decoded(end=3, problem="it is damaged")))
    assert failed.fetch_error is FetchError.CORRUPT
    assert failed.message.startswith(
        "the batch at offset 3 cannot be read (it is damaged); check the broker's disk"
    )


def test_records_before_a_damaged_batch_are_returned_first() -> None:
    driven = Driven()
    found = decoded(batch(0, 2), end=2, problem="it is damaged")
    (read,) = driven.answer(driven.started(), Part(0, 0, 9, decoded=found))
    assert isinstance(read, Read)
    assert read.next_offset == 2
    driven.request(P0, 2, epoch=1)
    failed = failure(driven, driven.plan(), Part(0, 0, 9, decoded=decoded(end=2, problem="it is damaged")))
    assert failed.fetch_error is FetchError.CORRUPT


def test_a_missing_topic_is_described_twice_before_it_is_unknown() -> None:
    driven = Driven()
    driven.request()
    driven.request(OTHER)
    driven.describe(described([1], "bills", error=pb.UNKNOWN_TOPIC_OR_PARTITION))
    assert driven.results() == []
    driven.now_ms += RECHECK_MS
    driven.describe(described([1], "bills"))
    (failed,) = driven.results()
    assert isinstance(failed, ReadFailed)
    assert (failed.delivery_epoch, failed.fetch_error) == (1, FetchError.UNKNOWN_TOPIC)
    assert partitions(driven.plan()) == [OTHER]


def test_a_partition_that_the_topic_does_not_have_is_unknown() -> None:
    driven = Driven()
    driven.request(P1)
    for _ in range(2):
        driven.describe(described([1]))
        driven.now_ms += RECHECK_MS
    (failed,) = driven.results()
    assert isinstance(failed, ReadFailed)
    assert failed.fetch_error is FetchError.UNKNOWN_TOPIC


@pytest.mark.parametrize(
    ("now", "fetch_error"),
    [
        (described(error=pb.UNKNOWN_TOPIC_OR_PARTITION), FetchError.UNKNOWN_TOPIC),
        (described(topic_id=b"n" * 16), FetchError.OTHER_TOPIC),
        (described(error=pb.TOPIC_AUTHORIZATION_FAILED), FetchError.DENIED),
        (described(), None),
    ],
)
def test_an_unknown_topic_id_is_decided_by_one_description(
    now: Described, fetch_error: FetchError | None
) -> None:
    driven = Driven()
    driven.answer(driven.started(), Part(pb.UNKNOWN_TOPIC_ID, -1, -1))
    driven.now_ms += RETRY_MS
    driven.describe(now)
    errors = [each.fetch_error for each in driven.results() if isinstance(each, ReadFailed)]
    assert errors == ([] if fetch_error is None else [fetch_error])
    assert bool(driven.plans()) == (fetch_error is None)


def test_a_recreated_topic_stays_another_one_within_the_delivery_epoch() -> None:
    driven = Driven()
    driven.started()
    for offset in (0, 3):
        driven.request(P0, offset, epoch=1)
    driven.describe(described(topic_id=b"n" * 16))
    (failed,) = driven.results()
    assert isinstance(failed, ReadFailed)
    assert failed.fetch_error is FetchError.OTHER_TOPIC
    driven.request(P0, 3)
    driven.describe(described(topic_id=b"n" * 16))
    assert driven.plan().fetches[0].topic_id == b"n" * 16


def test_partitions_without_records_come_first_in_the_next_request() -> None:
    driven = Driven()
    for each in (P0, P1):
        driven.request(each)
    driven.describe(described([1, 1]))
    plan = driven.plan()
    assert partitions(plan) == [P0, P1]
    driven.answer(plan, Part(0, 0, 9, decoded=decoded(batch(0))), Part(0, 0, 9, decoded=decoded(end=0)))
    assert partitions(driven.plan()) == [P1, P0]


def test_a_result_whose_fetch_is_stopped_by_the_callback_before_is_not_given() -> None:
    driven = Driven()
    driven.request(P0)
    driven.request(P1)
    driven.describe(described([1, 1]))
    plan = driven.plan()
    keys = [(fetch.topic_id, fetch.partition.number) for fetch in plan.fetches]
    parts = [Part(0, 0, 9, decoded=decoded(batch(0))) for _ in keys]
    driven.fetcher.fetched(plan, dict(zip(keys, parts, strict=True)), driven.now_ms)
    found = []
    for result in driven.fetcher.results():
        found.append(result.delivery_epoch)
        driven.fetcher.stop(2)
    assert found == [1]


def test_a_part_that_was_not_decoded_or_is_missing_is_fetched_again() -> None:
    driven = Driven()
    plan = driven.started()
    assert driven.answer(plan, Part(0, 0, 9)) == []
    plan = driven.plan()
    driven.fetcher.fetched(plan, {}, driven.now_ms)
    assert driven.plans() == {}
    driven.now_ms += RETRY_MS
    driven.describe(described())
    fetch: PartitionFetch = driven.plan().fetches[0]
    assert fetch.track.position == 0
