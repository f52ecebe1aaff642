"""Interceptors of producers: configured, told of each record once, also of one that was never queued, and closed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.connection import background
from rota.records import OutgoingRecord
from tests.sdk.faulty_log import TOPIC, FaultyLog, faulty_log

WITHIN_S = 10


class Watching(rota.ProducerInterceptor):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.settings: list[Mapping[str, object]] = []
        self.sent: list[object] = []
        # Topic, partition, offset and error.
        self.acknowledged: list[tuple[str, int, int, type[Exception] | None]] = []
        self.closed = 0

    @override
    def configure(self, settings: Mapping[str, object]) -> None:
        self.settings.append(settings)

    @override
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        self.sent.append(record.value)
        return record

    @override
    def on_acknowledgement(self, metadata: rota.RecordMetadata, error: errors.RotaError | None) -> None:
        kind = None if error is None else type(error)
        self.acknowledged.append((metadata.topic, metadata.partition, metadata.offset, kind))

    @override
    def close(self) -> None:
        self.closed += 1


@pytest.fixture(name="log")
def _log() -> Iterator[tuple[FaultyLog, str]]:
    with faulty_log() as found:
        yield found


def test_an_interceptor_is_configured_and_closed_once(log: tuple[FaultyLog, str]) -> None:
    watching = Watching()
    with rota.Producer(log[1], interceptors=[watching], client_id="billing", linger_ms=0) as producer:
        (settings,) = watching.settings
        assert (settings["bootstrap_servers"], settings["client_id"], settings["acks"]) == (
            log[1],
            "billing",
            "all",
        )
        producer.send(TOPIC, b"a", partition=1).result(WITHIN_S)
        assert watching.closed == 0
    producer.close()
    assert (watching.sent, watching.acknowledged, watching.closed) == ([b"a"], [(TOPIC, 1, 0, None)], 1)


def test_records_that_wait_at_the_close_are_reported_before_the_interceptor_is_closed(
    log: tuple[FaultyLog, str],
) -> None:
    class Last(Watching):
        @override
        def close(self) -> None:
            super().close()
            assert len(self.acknowledged) == 3

    last = Last()
    with rota.Producer(log[1], interceptors=[last], linger_ms=60_000) as producer:
        producer.send_many(TOPIC, [b"a", b"b", b"c"])
    assert last.closed == 1


def unserializable(value: object) -> bytes:
    if value is None:
        raise ValueError("there is nothing in it")
    return str(value).encode()


Send = Callable[[rota.Producer], object]
FAILURES: list[tuple[dict[str, Any], Send, tuple[str, int, type[Exception]]]] = [
    (
        {"value_serializer": unserializable},
        lambda producer: producer.send(TOPIC),
        (TOPIC, -1, errors.SerializationFailed),
    ),
    ({}, lambda producer: producer.send(TOPIC, "text", partition=2), (TOPIC, 2, errors.InvalidArgument)),
    ({}, lambda producer: producer.send(TOPIC, b"", timestamp_ms=-1), (TOPIC, -1, errors.InvalidArgument)),
    (
        {},
        lambda producer: producer.send("nowhere", b""),
        ("nowhere", -1, errors.UnknownTopicOrPartition),
    ),
    (
        {"max_request_size": 500, "batch_size": 500},
        lambda producer: producer.send(TOPIC, bytes(600)),
        (TOPIC, -1, errors.RecordTooLarge),
    ),
    (
        {"partitioner": lambda topic, key, value, count: 1 // 0},
        lambda producer: producer.send(TOPIC, b""),
        (TOPIC, -1, errors.RotaError),
    ),
    ({"transactional_id": "t"}, lambda producer: producer.send(TOPIC, b""), (TOPIC, -1, errors.IllegalState)),
]


@pytest.mark.parametrize(("settings", "send", "expected"), FAILURES)
def test_a_record_that_fails_before_it_is_queued_is_reported_once(
    log: tuple[FaultyLog, str],
    settings: dict[str, Any],
    send: Send,
    expected: tuple[str, int, type[Exception]],
) -> None:
    watching = Watching()
    with (
        rota.Producer(log[1], interceptors=[watching], **settings) as producer,
        pytest.raises((errors.RotaError, ZeroDivisionError)),
    ):
        send(producer)
    topic, partition, error = expected
    assert watching.acknowledged == [(topic, partition, -1, error)]
    assert len(watching.sent) == 1


def test_of_many_records_each_is_reported_once_if_one_cannot_be_serialized(
    log: tuple[FaultyLog, str],
) -> None:
    watching = Watching()
    with (
        rota.Producer(log[1], interceptors=[watching], value_serializer=unserializable) as producer,
        pytest.raises(errors.SerializationFailed),
    ):
        producer.send_many(TOPIC, [1, 2, None, 4])
    assert watching.sent == [1, 2, None]
    assert [error for *_, error in watching.acknowledged] == [errors.SerializationFailed] * 3


def test_of_many_records_those_that_are_not_queued_are_reported_and_the_others_are_sent(
    log: tuple[FaultyLog, str],
) -> None:
    watching = Watching()
    settings: dict[str, Any] = {"max_request_size": 500, "batch_size": 500, "linger_ms": 60_000}
    with rota.Producer(log[1], interceptors=[watching], **settings) as producer:
        with pytest.raises(errors.RecordTooLarge):
            producer.send_many(TOPIC, [b"a", b"b", bytes(600), b"d"])
        assert [error for *_, error in watching.acknowledged] == [errors.RecordTooLarge] * 2
    assert [error for *_, error in watching.acknowledged[2:]] == [None] * 2
    assert len(watching.sent) == 4


def test_an_interceptor_that_raises_changes_nothing(
    log: tuple[FaultyLog, str], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(rota.ProducerInterceptor):
        @override
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            raise ValueError("broken")

        @override
        def on_acknowledgement(self, metadata: rota.RecordMetadata, error: errors.RotaError | None) -> None:
            raise ValueError("broken")

        @override
        def close(self) -> None:
            raise ValueError("broken")

    watching = Watching()
    with rota.Producer(log[1], interceptors=[Broken(), watching], linger_ms=0) as producer:
        producer.send(TOPIC, b"a", partition=0).result(WITHIN_S)
    assert watching.acknowledged == [(TOPIC, 0, 0, None)]
    assert log[0].values(0) == [b"a"]
    assert len([each for each in caplog.records if each.exc_info]) == 3


def test_an_asynchronous_producer_does_the_same(log: tuple[FaultyLog, str]) -> None:
    watching = Watching()

    async def story() -> None:
        settings: dict[str, Any] = {
            "interceptors": [watching],
            "value_serializer": unserializable,
        }
        async with rota.AsyncProducer(log[1], **settings) as producer:
            await producer.send_and_wait(TOPIC, 1, partition=0)
            with pytest.raises(errors.SerializationFailed):
                await producer.send(TOPIC)
            with pytest.raises(errors.UnknownTopicOrPartition):
                await producer.send_many("nowhere", [2])

    # The loop of the log: gRPC has one loop in a process.
    background().run(story(), WITHIN_S)
    assert [(topic, error) for topic, _, _, error in watching.acknowledged] == [
        (TOPIC, None),
        (TOPIC, errors.SerializationFailed),
        ("nowhere", errors.UnknownTopicOrPartition),
    ]
    assert (len(watching.settings), len(watching.sent), watching.closed) == (1, 3, 1)


def test_an_object_that_is_no_interceptor_is_refused() -> None:
    given: dict[str, Any] = {"interceptors": [object()]}
    for make, base in (
        (lambda: rota.Producer("rota://127.0.0.1:1", **given), "ProducerInterceptor"),
        (lambda: rota.Consumer("orders", sidecar="127.0.0.1:1", **given), "ConsumerInterceptor"),
    ):
        with pytest.raises(
            errors.InvalidArgument, match=f"interceptors has <object .*: use a subclass of rota.{base}"
        ):
            make()
