"""
Logs as each version of Rota wrote them, kept for ever: what was written once must be read by all later versions.

    .venv/bin/python -m tests.coordinator.core.group.golden_logs 0.2.0     # adds the logs of a version about to be released

A log has one line for each batch: its checksum and its bytes, in hexadecimal. Beside it stands what it says.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import text_format

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.instants import MonotonicMs
from rota_coordinator.store import batches
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import ProducerEnded, Record, RecordBatch

FOLDER = Path(__file__).parent / "golden"
CONFIG = GroupConfig(initial_rebalance_delay_ms=0, rebalance_coalesce_ms=0)
START_MS = 1_790_000_000_000


def state_of(groups: Groups) -> str:
    """All that is durable, for people to read and for tests to compare."""
    return text_format.MessageToString(RecordBatch(records=groups.snapshot()), as_utf8=True)


def read(path: Path) -> Iterator[tuple[bytes, int]]:
    """The batches of a golden log."""
    for line in path.read_text().splitlines():
        checksum, data = line.split()
        yield bytes.fromhex(data), int(checksum, 16)


def replayed(log: Iterator[tuple[bytes, int]]) -> Groups:
    """Return the state after replaying a log with this version."""
    groups = Groups(CONFIG)
    for data, checksum in log:
        for record in batches.decode(data, checksum, "a golden log"):
            groups.replay(record)
    return groups


class Story:
    """Everything that a log can say, told through the coordinator's own core."""

    def __init__(self) -> None:
        self.groups = Groups(CONFIG)
        self.log: list[list[Record]] = []
        self._calls = 0
        self._now_ms = START_MS

    def keep(self, effects: Effects) -> list[object]:
        """Note what is to be written; the replies."""
        if effects.records:
            self.log.append(list(effects.records))
        return [reply for _, reply in effects.replies]

    def call(self) -> Call:
        self._calls += 1
        self._now_ms += 1_000
        return Call(self._calls)

    def join(self, group: str, instance: str) -> pb.JoinGroupResponse:
        request = pb.JoinGroupRequest(
            group_id=group,
            group_instance_id=instance,
            client_id=f"client of {instance}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[pb.Protocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
        )
        joining = Joining(self.call(), request, "/127.0.0.1", f"fresh-{self._calls}")
        replies = self.keep(self.groups.join(joining, MonotonicMs(self._now_ms)))
        replies += self.keep(self.groups.pass_time(group, MonotonicMs(self._now_ms)))
        (reply,) = replies
        assert isinstance(reply, pb.JoinGroupResponse)
        return reply

    def sync(self, group: str, instance: str, joined: pb.JoinGroupResponse) -> None:
        request = pb.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[pb.Assignment(member_id=joined.member_id, assignment=b"\0\0\0\0\0\0\0\0\0\0")],
        )
        self.keep(self.groups.handle(self.call(), request, MonotonicMs(self._now_ms)))

    def commit(self, request: pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest) -> None:
        self.keep(self.groups.commit(self.call(), request, MonotonicMs(self._now_ms)))

    def administer(self, request: admin.DeleteGroupsRequest | admin.DeleteOffsetsRequest) -> None:
        self.keep(self.groups.administer(self.call(), request, MonotonicMs(self._now_ms)))

    def write(self, record: Record) -> None:
        self.log.append([record])
        self.groups.replay(record)


def write_story() -> Story:
    """A stable group, one in the middle of a round, one that only keeps offsets, and one that is gone."""
    story = Story()
    joined = story.join("stable", "pod-0")
    story.sync("stable", "pod-0", joined)
    generation, member = joined.generation_id, joined.member_id
    topics = [
        pb.TopicOffsets(
            name="orders",
            topic_id=b"0123456789abcdef",
            partitions=[
                pb.PartitionOffset(index=0, offset=42, leader_epoch=3, metadata="až sem"),
                pb.PartitionOffset(index=1, offset=2**40, leader_epoch=-1),
            ],
        )
    ]
    story.commit(
        pb.CommitOffsetsRequest(
            group_id="stable",
            group_instance_id="pod-0",
            topics=topics,
            generation_id=generation,
            member_id=member,
        )
    )
    for producer in (7, 8, 9):
        story.commit(
            pb.TxnCommitOffsetsRequest(
                group_id="stable",
                group_instance_id="pod-0",
                transactional_id=f"copier-{producer}",
                producer_id=producer,
                producer_epoch=1,
                topics=[
                    pb.TopicOffsets(name="copies", partitions=[pb.PartitionOffset(index=producer, offset=5)])
                ],
                generation_id=generation,
                member_id=member,
            )
        )
    story.write(Record(producer_ended=ProducerEnded(producer_id=7, committed=True, group_id="stable")))
    story.write(Record(producer_ended=ProducerEnded(producer_id=8, committed=False, group_id="stable")))

    story.join("in mid-round", "pod-0")

    kept = pb.TopicOffsets(
        name="clicks", partitions=[pb.PartitionOffset(index=number, offset=1) for number in (0, 1)]
    )
    story.commit(pb.CommitOffsetsRequest(group_id="offsets only", generation_id=-1, topics=[kept]))
    forget = admin.DeleteOffsetsRequest(group_id="offsets only")
    forget.topics.add(name="clicks", partitions=[1])
    story.administer(forget)

    story.commit(pb.CommitOffsetsRequest(group_id="gone", generation_id=-1, topics=[kept]))
    story.administer(admin.DeleteGroupsRequest(group_ids=["gone"]))
    return story


def add(version: str) -> None:
    """Write the log of this version; one that is there stays as it is."""
    story = write_story()
    encoded = [batches.encode(records) for records in story.log]
    with (FOLDER / f"{version}.log").open("x") as log:
        log.writelines(f"{checksum:08x} {data.hex()}\n" for data, checksum in encoded)
    with (FOLDER / f"{version}.state").open("x") as state:
        state.write(state_of(story.groups))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Keep the log that this version writes.")
    parser.add_argument("version")
    add(parser.parse_args().version)
