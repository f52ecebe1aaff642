"""What was said and done in a run, and the invariants over it. A broken one fails at the step that broke it."""

from collections import Counter
from dataclasses import dataclass, field

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record


class Violation(AssertionError):
    """An invariant was broken; the message begins with its name."""


@dataclass(slots=True)
class History:
    """Facts as the members learn them."""

    # By generation: who leads it, and who owns which partition in it.
    leaders: dict[int, str] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    sent: set[tuple[int, int]] = field(default_factory=set)
    # By partition, as the disk has it; and how many of its records were read.
    stored: dict[int, int] = field(default_factory=dict)
    looked_at: int = 0
    situations: "Counter[str]" = field(default_factory=Counter)

    def told(self, reply: pb.JoinGroupResponse) -> None:
        """The coordinator tells a member a generation: a new one comes after all earlier ones, and is told once."""
        newest = max(self.leaders, default=0)
        known = self.leaders.get(reply.generation_id)
        leader = instance_of(reply.leader)
        if known is None and reply.generation_id <= newest:
            raise Violation(f"S3: generation {reply.generation_id} is told first after {newest} was")
        if known not in (None, leader):
            raise Violation(f"S3: generation {reply.generation_id} was {known}'s and is {leader}'s now")
        self.leaders[reply.generation_id] = leader

    def assigned(self, generation: int, member_id: str, partitions: set[int]) -> None:
        """A member was told what it owns. A static member keeps what it owns under a new id."""
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            if owner != member_id and instance_of(owner) != instance_of(member_id):
                raise Violation(
                    f"S1: {owner} and {member_id} both own {partition} in generation {generation}"
                )

    def committing(self, partition: int, offset: int) -> None:
        """A commit is sent."""
        self.sent.add((partition, offset))

    def committed(self, partition: int, offset: int, written: list[Record]) -> None:
        """A commit was acknowledged: it must be written by now, and stay."""
        self.read(written)
        if offset > self.stored.get(partition, -1):
            raise Violation(f"S12: {partition}@{offset} is acknowledged and not written")
        self.acknowledged[partition] = max(self.acknowledged.get(partition, -1), offset)

    def read(self, written: list[Record]) -> None:
        """What was written since the last look contradicts nothing that was said."""
        for record in written[self.looked_at :]:
            self.looked_at += 1
            if record.WhichOneof("record") != "offset_committed":
                continue
            partition, offset = record.offset_committed.partition, record.offset_committed.offset
            if (partition, offset) not in self.sent:
                raise Violation(f"S7: nobody sent {partition}@{offset}")
            if offset < self.stored.get(partition, -1):
                raise Violation(f"S5: {partition} falls from {self.stored[partition]} to {offset}")
            self.stored[partition] = offset

    def compacted(self) -> None:
        """The log begins anew; the commits in it are the last ones."""
        self.looked_at = 0

    def check_end(self, written: list[Record]) -> None:
        """Read from the start, as a restart would: nothing that was acknowledged is lost."""
        self.looked_at = 0
        self.stored.clear()
        self.read(written)
        for partition, acknowledged in self.acknowledged.items():
            if self.stored.get(partition, -1) < acknowledged:
                raise Violation(f"S6: {partition}@{acknowledged} was acknowledged and is lost")


def instance_of(member_id: str) -> str:
    """A static member's id begins with its instance; any other one is its own."""
    return member_id.split("#")[0] if member_id.startswith("instance-") else member_id
