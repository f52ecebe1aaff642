"""Serializers and deserializers of the object alone, as Kafka's clients for Python take them, and with the topic."""

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.producer.options import Options
from rota.producer.pipeline import SendPipeline
from rota.records import OutgoingRecord
from rota.serializers import INTEGER, JSON, STRING, with_topic
from rota.testing import Group


class Doubling:
    def __call__(self, data: bytes) -> bytes:
        return data * 2

    def named(self, topic: str, data: bytes) -> bytes:
        return topic.encode() + data


@pytest.mark.parametrize(
    ("function", "given", "made"),
    [
        (json.loads, b"[1]", [1]),
        (bytes.decode, b"a", "a"),
        (str.encode, "a", b"a"),
        (int, b"7", 7),
        (lambda data: data + b"!", b"a", b"a!"),
        (lambda data=b"": data, b"a", b"a"),
        (functools.partial(json.loads, parse_int=float), b"1", 1.0),
        (Doubling(), b"a", b"aa"),
        (Doubling().named, b"a", b"ordersa"),
        (lambda topic, data: (topic, data), b"a", ("orders", b"a")),
        (lambda *given: given, b"a", ("orders", b"a")),
        (lambda topic="", data=b"": (topic, data), b"a", ("orders", b"a")),
        (STRING.deserialize, b"a", "a"),
        (INTEGER.serialize, 1, bytes(7) + b"\x01"),
        (JSON.deserialize, None, None),
    ],
)
def test_a_function_gets_the_topic_if_it_takes_it(
    function: Callable[..., Any], given: object, made: object
) -> None:
    assert with_topic(function)("orders", given) == made


def test_a_consumer_and_a_handler_take_functions_of_the_bytes_alone() -> None:
    seen: list[object] = []

    @rota.handler("bills", value_deserializer=json.loads)
    def bill(record: rota.Record[Any, Any]) -> None:
        seen.append(record.value)

    with Group() as group:
        group.send("orders", b'{"price": 1}', key=b"k", partition=0)
        consumer = group.consumer("orders", key_deserializer=bytes.decode, value_deserializer=json.loads)
        record = next(consumer)
        assert (record.key, record.value) == ("k", {"price": 1})
        consumer.close()
    with Group() as group:
        group.send("bills", b"[2]")
        group.run(bill)
    assert seen == [[2]]


def test_a_producer_takes_functions_of_the_object_alone() -> None:
    options = Options(key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode())
    prepared = SendPipeline(options).prepare(OutgoingRecord("orders", {"price": 1}, "k"), lambda _: 1)
    assert (prepared.key, prepared.value) == (b"k", b'{"price": 1}')
