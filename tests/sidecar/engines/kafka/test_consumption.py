"""
When the thread that reads Kafka waits, and for what: a broker cannot show that, so its client is a fake here.

What it reads is tested with a broker, in `tests/kafka/test_sidecar_reading.py`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from rota_sidecar.core.delivery.events import Read
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka import consumption
from rota_sidecar.engines.kafka.consumption import ConsumerEvent, Consumption, readable
from rota_sidecar.engines.records import FetchRequest

PARTITION = Partition("orders", 0)
WITHIN_S = 60
# What a look at the client does: gives a message, or does something and finds nothing.
Look = Message | Callable[[], None]


class Notes:
    """Calls of the client and results, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def add(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def wait_for(self, line: str) -> list[str]:
        """All up to this one."""
        with self._changed:
            assert self._changed.wait_for(lambda: line in self.lines, WITHIN_S), self.lines
            return self.lines[: self.lines.index(line) + 1]


class FakeClient:
    """Finds what it is told to, look by look; afterwards nothing."""

    def __init__(self, looks: Sequence[Look], notes: Notes) -> None:
        self._looks = deque(looks)
        self._notes = notes
        self._ended = threading.Event()

    def poll(self, timeout: float) -> Message | None:
        if timeout:
            self._notes.add("waits for messages")
            self._ended.wait(timeout)
            return None
        look = self._looks.popleft() if self._looks else None
        if isinstance(look, Message) or look is None:
            return look
        look()
        return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        return []

    def get_watermark_offsets(self, partition: TopicPartition, *, cached: bool) -> tuple[int, int]:
        return 0, 100

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def close(self) -> None:
        self._ended.set()


class Reader:
    """A consumption with a fake client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: Sequence[Look]) -> None:
        self.notes = Notes()
        client = FakeClient(looks, self.notes)
        monkeypatch.setattr(consumption, "Consumer", lambda config: client)
        self.consumption = Consumption(dict, self._post, with_keys=False)

    def request(self, offset: int) -> None:
        self.notes.add(f"wish for {offset}")
        self.consumption.set_request(PARTITION, FetchRequest(1, PARTITION, offset, 1_000))

    def _post(self, events: Sequence[ConsumerEvent]) -> None:
        for each in events:
            if isinstance(each, Read):
                self.notes.add(f"gives {each.batches[0].first}")


@pytest.fixture
def make_reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def make(*looks: Look) -> Reader:
        readers.append(Reader(monkeypatch, looks))
        return readers[-1]

    yield make
    for reader in readers:
        reader.consumption.close()


def message(offset: int) -> Message:
    return Message(topic="orders", partition=0, offset=offset, value=b"v", timestamp=(1, 1_000))


def test_of_a_partition_nothing_behind_a_damaged_batch_is_taken() -> None:
    """librdkafka says that the batch is damaged, and goes on behind it."""

    def other(offset: int) -> Message:
        return Message(topic="orders", partition=1, offset=offset, value=b"v")

    damaged, end = KafkaError(KafkaError._BAD_MSG), KafkaError(KafkaError._PARTITION_EOF)
    found = [message(0), other(0), message(1), message(2), other(1), message(5)]
    errors = [None, None, end, damaged, None, None]
    assert [(each.partition(), each.offset()) for each in readable(found, errors)] == [(0, 0), (1, 0), (1, 1)]


def test_a_record_read_ahead_is_returned_as_soon_as_it_is_requested(
    make_reader: Callable[..., Reader],
) -> None:
    """The second record comes before the wish for it. No wait of the client's would end with that wish."""

    def request() -> None:
        reader.request(1)

    reader: Reader = make_reader(message(0), message(1), request)
    reader.request(0)
    assert reader.notes.wait_for("gives 1") == ["wish for 0", "gives 0", "wish for 1", "gives 1"]


def test_the_wait_for_the_next_request_is_bounded(make_reader: Callable[..., Reader]) -> None:
    """Other partitions may have something too."""
    reader = make_reader(message(0), message(1))
    reader.request(0)
    assert reader.notes.wait_for("waits for messages") == ["wish for 0", "gives 0", "waits for messages"]
    reader.request(1)
    reader.notes.wait_for("gives 1")
