"""Groups for the tests of the command line: with members, or with offsets alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc

from rota import Producer, create_topics
from rota.offsets import by_topic
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.support.processes import wait_for
from tests.support.sidecar import Sidecar, running, settle

WITHIN_S = 40


def commit(address: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit for a group without members, as a tool would: this makes the group."""
    request = pb.CommitOffsetsRequest(group_id=group, generation_id=-1, topics=by_topic(offsets))
    with grpc.insecure_channel(address) as channel:
        answer = CoordinatorStub(channel).CommitOffsets(request, timeout=WITHIN_S)
    assert not answer.error_code
    assert {each.error_code for topic in answer.topics for each in topic.partitions} == {pb.NONE}


def fill(servers: str, topic: str, *counts: int) -> None:
    """Make a topic with a partition for each count, and so many records in it."""
    create_topics(servers, {topic: len(counts)})
    with Producer(servers) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.send(topic, f"{partition}-{number}".encode(), partition=partition)


@contextmanager
def two_members(
    folder: Path, servers: str, group: str, topic: str, *, partitions: int = 3
) -> Iterator[tuple[Sidecar, Sidecar]]:
    """A group of two, whose partitions are given out: all of so many."""
    first = Sidecar(folder, servers, group, [f"--topics={topic}", "--client-id=first"], name="first")
    second = Sidecar(
        folder, servers, group, [f"--topics={topic}", "--group-instance-id=second"], name="second"
    )
    with running(first, second):
        wait_for("both have their share", lambda: have_shares(first, second, partitions), within_s=WITHIN_S)
        settle(first, second)
        yield first, second


def have_shares(first: Sidecar, second: Sidecar, partitions: int) -> bool:
    """Return True if both members are in the group and own about equally many partitions."""
    shares = len(first.partitions), len(second.partitions)
    in_group = first.is_stable_in(0) and second.is_stable_in(0)
    return in_group and sum(shares) == partitions and min(shares) == partitions // 2
