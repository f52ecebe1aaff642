"""A partition moves while the transaction of its previous owner is open: the next owner waits for its end, and nothing counts twice."""

from collections import Counter
from collections.abc import Iterator

import pytest

import rota
from rota import errors
from tests.support.coordinator import serving

pytestmark = pytest.mark.process

PAYMENTS = 20
POLL_MS = 300
POLLS_MAX = 200
OPEN_MS = 2_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield f"rota://{coordinator.address}"


class Biller:
    """Writes a receipt for each payment, as examples/exactly-once does."""

    def __init__(self, server: str, topic: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._receipts = f"receipts-{topic}"
        self.producer = rota.Producer(
            server, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self.consumer = rota.Consumer(
            topic, group_id=topic, bootstrap_servers=server, enable_auto_commit=False
        )
        self.producer.init_transactions()

    def own_without_records(self) -> None:
        """Poll until the partition is assigned, and further; no poll returns a record."""
        for _ in range(POLLS_MAX):
            is_assigned = bool(self.consumer.assignment())
            assert self.consumer.poll(timeout_ms=POLL_MS) == {}
            if is_assigned:
                return
        raise AssertionError("the partition was not assigned")

    def poll(self) -> dict[rota.TopicPartition, list[rota.Record]]:
        """Return the payments, all at once: they are in one batch."""
        for _ in range(POLLS_MAX):
            if polled := self.consumer.poll(timeout_ms=POLL_MS):
                return polled
        raise AssertionError("no payments came")

    def begin_to_bill(self, polled: dict[rota.TopicPartition, list[rota.Record]]) -> None:
        """Write receipts and offsets into a transaction, and leave it open."""
        self.producer.begin_transaction()
        for records in polled.values():
            for record in records:
                self.producer.send(self._receipts, record.value)
        self.producer.send_offsets_to_transaction(
            {partition: records[-1].offset + 1 for partition, records in polled.items()},
            self.consumer.group_metadata(),
        )

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


@pytest.mark.timeout(400)
def test_the_next_owner_gets_no_record_before_the_open_transaction_has_ended_and_a_late_commit_is_refused(
    server: str, unique_name: str
) -> None:
    previous, following = moved(server, unique_name, ids=("biller-0", "biller-1"))
    following.own_without_records()
    with pytest.raises(errors.RotaError) as raised:
        previous.producer.commit_transaction()
    assert not raised.value.retriable
    previous.producer.abort_transaction()
    bill_all(server, unique_name, previous, following)


@pytest.mark.timeout(400)
def test_a_transaction_whose_producer_is_silent_is_ended_by_its_timeout(
    server: str, unique_name: str
) -> None:
    ids = ("biller-2", "biller-3")
    previous, following = moved(server, unique_name, ids=ids, timeout_ms=OPEN_MS)
    bill_all(server, unique_name, previous, following)


@pytest.mark.timeout(400)
def test_a_producer_with_the_same_id_ends_the_open_transaction_at_once(server: str, unique_name: str) -> None:
    of_partition = f"{unique_name}-0"
    previous, following = moved(server, unique_name, ids=(of_partition, of_partition))
    with pytest.raises(errors.ProducerFenced):
        previous.producer.commit_transaction()
    bill_all(server, unique_name, previous, following)


def moved(server: str, topic: str, ids: tuple[str, str], timeout_ms: int = 60_000) -> tuple[Biller, Biller]:
    """A biller that left its group with an open transaction, and its follower."""
    rota.create_topics(server, {topic: 1, f"receipts-{topic}": 1})
    with rota.Producer(server) as producer:
        producer.send_many(topic, [b"%d" % number for number in range(PAYMENTS)]).result(30)
    previous = Biller(server, topic, ids[0], timeout_ms)
    previous.begin_to_bill(previous.poll())
    previous.consumer.close()
    return previous, Biller(server, topic, ids[1])


def bill_all(server: str, topic: str, previous: Biller, following: Biller) -> None:
    """The follower bills what is left; each payment then has one receipt that counts."""
    following.begin_to_bill(following.poll())
    following.producer.commit_transaction()
    for biller in (previous, following):
        biller.close()
    with rota.LogReader(server, read_committed=True) as reader:
        receipts = Counter(value for batch in reader.read(f"receipts-{topic}", 0) for value in batch.values)
    assert receipts == Counter(b"%d" % number for number in range(PAYMENTS))
