"""Kafka's description of topics, read by hand: the same as kafka-python writes, and nothing but errors from less."""

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse

from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.engines.kafka.connection import UNREADABLE
from rota_sidecar.engines.kafka.metadata import VERSION, Described, Leader, Metadata
from rota_sidecar.engines.kafka.settings import Address

Replicas = list[int]
HEADER = b"\x00\x00\x00\x07\x00"
NODES = [1, 2, 3, 4]
RACKS = {1: "a", 2: "b", 3: "", 4: "a"}
TOPIC_ID = uuid.UUID(int=7)

described = st.lists(
    st.tuples(
        st.text(max_size=200),
        st.sampled_from([0, 3, 29]),
        st.booleans(),
        st.lists(st.lists(st.sampled_from(NODES), max_size=4), max_size=9),
    ),
    max_size=4,
)


def written(topics: list[tuple[str, int, bool, list[Replicas]]], racks: dict[int, str]) -> bytes:
    """Encode a broker's response."""
    answer = MetadataResponse(
        throttle_time_ms=3,
        brokers=[(node, f"kafka-{node}", 9092, racks.get(node) or None) for node in NODES],
        cluster_id="mkuRotaQ",
        controller_id=1,
        topics=[
            (error, name, TOPIC_ID, internal, list(partitions(replicas)), set())
            for name, error, internal, replicas in topics
        ],
    )
    data: bytes = answer.encode(version=VERSION)
    return HEADER + data


def partitions(replicas: list[Replicas]) -> list[tuple[int, int, int, int, Replicas, Replicas, Replicas]]:
    """Not in the order of their numbers: no broker has promised that."""
    return [
        (0, number, number % 3, 5 + number, nodes, nodes[:1], nodes[1:])
        for number, nodes in enumerate(replicas)
    ][::-1]


@given(described, st.booleans())
def test_what_kafka_writes_is_read(
    topics: list[tuple[str, int, bool, list[Replicas]]], with_racks: bool
) -> None:
    racks = RACKS if with_racks else {}
    expected = [
        Described(
            name,
            error,
            internal,
            Topic(
                partitions=len(replicas),
                racks=tuple(frozenset(racks[node] for node in nodes if racks[node]) for nodes in replicas)
                if with_racks
                else (),
                topic_id=TOPIC_ID.bytes,
            ),
            [Leader(number % 3, 5 + number) for number in range(len(replicas))],
        )
        for name, error, internal, replicas in topics
    ]
    found = Metadata.decode(written(topics, racks))
    assert list(found.topics) == expected
    assert found.cluster_id == "mkuRotaQ"
    assert found.brokers == {node: Address(f"kafka-{node}", 9092) for node in NODES}


def test_many_replicas_and_null_lists_are_read_too() -> None:
    many = [4] * 200
    data = written([("t", 0, False, [many, [1, 2]])], RACKS)
    racks = Metadata.decode(data).topics[0].topic.racks
    assert racks == (frozenset("a"), frozenset("ab"))
    # The list of offline replicas of the second partition, which comes first: from one entry to null.
    offline = b"\x02" + (2).to_bytes(4, "big")
    assert data.count(offline + b"\x00") == 1
    assert Metadata.decode(data.replace(offline + b"\x00", b"\x00\x00")).topics[0].topic.racks == racks


def test_tags_of_newer_brokers_are_passed_by() -> None:
    data = written([("t", 0, False, [[1]])], RACKS)
    newer = data[:-1] + b"\x02" + b"\x05\x03abc" + b"\x81\x01\x00"
    assert Metadata.decode(newer) == Metadata.decode(data)


def test_a_topic_without_an_id_has_none() -> None:
    data = written([("t", 0, False, [[1]])], RACKS).replace(TOPIC_ID.bytes, bytes(16))
    assert Metadata.decode(data).topics[0].topic.topic_id == b""


def test_every_answer_that_ends_too_soon_is_noticed() -> None:
    data = written([("orders", 0, False, [[1, 2], [2]]), ("other", 3, False, [])], RACKS)
    for end in range(len(data) - 1):
        with pytest.raises(UNREADABLE):
            Metadata.decode(data[:end])


@given(st.binary(max_size=300))
def test_garbage_is_an_error_or_an_answer_and_never_a_hang(data: bytes) -> None:
    with suppress(*UNREADABLE):
        Metadata.decode(HEADER + data)
