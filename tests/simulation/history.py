"""
Requests, responses and records of one group, and the invariants over them. A violation fails at the step that causes
it.

Every commit carries its number as metadata, so that the log itself shows which commit was applied, and when.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.core.group.consumer_protocol import assigned_partitions
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import GroupRecord, OffsetCommitted, Record
from tests.simulation.invariants import Violation
from tests.simulation.plan import SESSION_S
from tests.simulation.topic import is_record

# A timer comes a little after its time.
WAKES_WITHIN_S = 0.1
# Between the number of a commit and what its sender has to say.
SEPARATOR = "|"
# (incarnation, generation): rises as long as the group's name is used.
Token = tuple[int, int]


@dataclass(slots=True)
class Commit:
    """A commit that a member or another client sent."""

    number: int
    member_id: str
    # -1: of somebody who is in no group, as are administrators who set offsets.
    generation: int
    offsets: dict[int, int]
    # The process that sent it, and how often that had lost everything and come back, maybe in the same generation.
    sender: object = None
    arrivals: int = 0
    # Whether a member's own core let it go out.
    is_honest: bool = True
    # By partition: how often it was applied.
    applied: "Counter[int]" = field(default_factory=Counter)


class Stored(NamedTuple):
    """The last commit of a partition in the log."""

    commit: Commit
    incarnation: int
    offset: int
    position: int


class Ticket(NamedTuple):
    """State at the time at which a request was decided."""

    incarnation: int
    # By partition: the place in the log of the last commit that was acknowledged then.
    acknowledged: dict[int, int]
    wrote: bool


class Done:
    """Which records of a partition were worked through, or passed over on purpose."""

    def __init__(self) -> None:
        # All before it.
        self.end = 0
        self._later: set[int] = set()

    def add(self, begin: int, end: int) -> None:
        """Add the records from `begin` to `end`, exclusive, and the gaps behind them."""
        if begin <= self.end:
            self.end = max(self.end, end)
        else:
            self._later.update(range(begin, end))
        while self.end in self._later or not is_record(self.end):
            self._later.discard(self.end)
            self.end += 1


@dataclass(slots=True)
class History:
    """Facts in the order in which they came to be."""

    # True if each request comes from its member, once. A late copy of a join gives up what its sender has anew by then, and
    # so does a second process of the same instance; only fencing helps against those.
    only_members_send: bool = True
    # By member's process: when a heartbeat was last believed without a look, because the log was being read.
    unseen: dict[object, float] = field(default_factory=dict)
    # What members were told: who leads, who is in, who owns, and whose each id is.
    leaders: dict[Token, str] = field(default_factory=dict)
    newest: Token = (0, 0)
    let_in: dict[Token, set[str]] = field(default_factory=dict)
    owners: dict[tuple[Token, int], str] = field(default_factory=dict)
    ids: dict[str, object] = field(default_factory=dict)
    commits: dict[int, Commit] = field(default_factory=dict)
    # By partition: the place in the log that the last acknowledged commit has; how many were.
    acknowledged: dict[int, int] = field(default_factory=dict)
    acknowledgements: "Counter[int]" = field(default_factory=Counter)
    # By partition and member's process: until when it owns it, by its own clock.
    holders: dict[int, dict[object, tuple[str, float]]] = field(default_factory=dict)
    # Members that a full group has sent away: their partitions are given to others, though they learn of it later.
    sent_away: set[str] = field(default_factory=set)
    # By partition: which of its records were worked through, and where its last owner stopped in good order.
    done: dict[int, Done] = field(default_factory=dict)
    releases: dict[int, int] = field(default_factory=dict)
    # The newest fencing token that a member was told, by the coordinator's own.
    fences: tuple[Token, Token] = ((0, 0), (0, 0))
    # What is written.
    group: GroupRecord = field(default_factory=GroupRecord)
    members: frozenset[str] = frozenset()
    assigned: dict[int, str] = field(default_factory=dict)
    parts: dict[tuple[Token, str], bytes] = field(default_factory=dict)
    reserved: Token = (0, 0)
    stored: dict[int, Stored] = field(default_factory=dict)
    position: int = 0
    # Where in the log a commit of a partition is, by number and partition; and where a partition was forgotten.
    indices: dict[tuple[int, int], int] = field(default_factory=dict)
    forgotten: dict[int, int] = field(default_factory=dict)

    # What members do.

    def committing(self, member_id: str, generation: int, offsets: dict[int, int]) -> Commit:
        """A commit is about to be sent."""
        commit = Commit(len(self.commits) + 1, member_id, generation, offsets)
        self.commits[commit.number] = commit
        return commit

    def holds(self, holder: object, member_id: str, partition: int, now_s: float, until_s: float) -> None:
        """A member takes it that it owns a partition for so long, because its heartbeat was answered."""
        if until_s < now_s or not self.only_members_send or self.unseen.get(holder, -1) > until_s - SESSION_S:
            return
        self.holders.setdefault(partition, {})[holder] = (member_id, until_s)
        self._check_holders(partition, now_s)

    def _check_holders(self, partition: int, now_s: float) -> None:
        """Check that the owner of a partition by the records and by its own clock is the same member."""
        owner = self.assigned.get(partition)
        for member_id, until_s in self.holders.get(partition, {}).values():
            # Who takes a static member's place has its partitions at once; the old one is fenced at its next word.
            same = owner is None or instance_of(owner) == instance_of(member_id)
            if not same and until_s > now_s and member_id not in self.sent_away:
                raise Violation(
                    "S2", f"{partition} is {owner}'s at {now_s}, and {member_id}'s until {until_s}"
                )

    def gives_up(self, holder: object) -> None:
        """A member owns nothing any more."""
        for others in self.holders.values():
            others.pop(holder, None)

    def gives_up_one(self, holder: object, partition: int) -> None:
        """A member owns this partition no more."""
        self.holders.get(partition, {}).pop(holder, None)

    def works(self, holder: object, partition: int, now_s: float, round_ended_s: float = 0) -> None:
        """A member works on a partition, outside of a round: its last heartbeat still counts, or the round has just ended."""
        member_id, until_s = self.holders.get(partition, {}).get(holder, ("", now_s))
        owner = self.assigned.get(partition)
        others = owner is not None and instance_of(owner) != instance_of(member_id)
        if self.only_members_send and others and now_s > max(until_s, round_ended_s) + WAKES_WITHIN_S:
            raise Violation(
                "S2", f"{member_id} works on {partition} at {now_s}, and it was its until {until_s}"
            )

    def begins(self, partition: int, start: int) -> None:
        """A tenure begins at this offset: not beyond what is done, and not below what was handed over."""
        if start > self.done_to(partition):
            raise Violation("S8", f"{partition} begins at {start}, and {self.done_to(partition)} is not done")
        left = self.releases.pop(partition, 0)
        if self.only_members_send and start < left:
            raise Violation("S9", f"{partition} begins at {start}, and was handed over at {left}")

    def did(self, partition: int, begin: int, end: int) -> None:
        """Records were worked through."""
        self.done.setdefault(partition, Done()).add(begin, end)
        self.releases.pop(partition, None)

    def done_to(self, partition: int) -> int:
        """Return the offset of the first record that is not processed."""
        return self.done[partition].end if partition in self.done else 0

    def check_done(self, commit: Commit) -> None:
        """A member commits nothing that is not done."""
        for partition, offset in commit.offsets.items():
            if offset > self.done_to(partition):
                raise Violation(
                    "S8", f"{partition}@{offset} is sent, and {self.done_to(partition)} is not done"
                )

    def _set_from_outside(self, partition: int, offset: int) -> None:
        """Set the position by another client's commit."""
        self.done.setdefault(partition, Done()).add(0, offset)
        self.releases.pop(partition, None)

    def late_verdict(self, errors: Iterable[int]) -> None:
        """A verdict of a tenure that is over was told to the member's core."""
        if pb.NONE in errors:
            raise Violation("S4", "a verdict of a tenure that was over has been committed")

    def check_incarnation(self, generation: int, incarnation: int) -> None:
        """A member is told a fencing token: it rises as the group's generations do."""
        if generation != self.group.generation_id:
            return
        own, received = (self.group.incarnation, generation), (incarnation, generation)
        newest, fence = self.fences
        if own > newest:
            if received <= fence:
                raise Violation("S3", f"fence {received} is told for {own}, after {fence} for {newest}")
            self.fences = (own, received)

    # What the coordinator says, at the moment when it leaves.

    def joined(self, ticket: Ticket, reply: pb.JoinGroupResponse) -> None:
        """A member is told a generation: a new one comes after all earlier ones, and has one leader."""
        token = (ticket.incarnation, reply.generation_id)
        if token > self.reserved:
            raise Violation("S12", f"generation {token} is told, and written is {self.reserved}")
        if token < self.newest and token not in self.leaders:
            raise Violation("S3", f"generation {token} is told first after {self.newest} was")
        self.newest = max(self.newest, token)
        self.let_in.setdefault(token, set()).add(reply.member_id)
        leader = instance_of(reply.leader)
        known = self.leaders.setdefault(token, leader)
        if known != leader:
            raise Violation("S3", f"generation {token} was {known}'s and is {leader}'s now")

    def sends_away(self, member_id: str) -> None:
        """A group that is full sends a member away, as Kafka's does the last of too many that join again."""
        self.sent_away.add(member_id)

    def identified(self, member_id: str, whose: object) -> None:
        """A member id is told."""
        if self.ids.setdefault(member_id, whose) is not whose:
            raise Violation("S3", f"{member_id} is given to two")

    def synced(self, ticket: Ticket, request: pb.SyncGroupRequest, reply: pb.SyncGroupResponse) -> None:
        """A member is told what it owns."""
        token = (ticket.incarnation, request.generation_id)
        member_id = request.member_id
        if self.parts.get((token, member_id)) != reply.assignment:
            raise Violation(
                "S12", f"{member_id} is told another part of generation {token} than what is written"
            )
        for partition in partitions_of(reply.assignment):
            owner = self.owners.setdefault((token, partition), member_id)
            if instance_of(owner) != instance_of(member_id):
                raise Violation(
                    "S1", f"{owner} and {member_id} are both told {partition} of generation {token}"
                )

    def acknowledges(self, commit: Commit, partition: int) -> None:
        """A commit is acknowledged: it is written by now."""
        if not commit.applied[partition]:
            raise Violation("S12", f"{partition}@{commit.offsets[partition]} is acknowledged and not written")
        self.acknowledgements[partition] += 1
        self.acknowledged[partition] = max(
            self.acknowledged.get(partition, 0), self.indices[commit.number, partition]
        )

    def refused(self, ticket: Ticket, what: str) -> None:
        """A request was refused as a whole."""
        if ticket.wrote:
            raise Violation("S4", f"{what} was refused, and something was written for it")

    def fetched(self, ticket: Ticket, found: pb.FetchedPartition) -> None:
        """A committed offset is read: a durable one, and none that is older than what was acknowledged before."""
        number = number_in(found.metadata)
        index = self.indices.get((number, found.index), self.forgotten.get(found.index, 0))
        if number and (number, found.index) not in self.indices:
            raise Violation("S12", f"{found.index}@{found.offset} is read and not written")
        if index < ticket.acknowledged.get(found.index, 0):
            raise Violation("S6", f"{found.index}@{found.offset} is read, and a later one was acknowledged")

    # What is written, in the order of the log.

    def wrote(self, record: Record, now_s: float = 0) -> None:
        """A record became durable."""
        self.position += 1
        match record.WhichOneof("record"):
            case "group":
                self._wrote_group(record.group)
                for partition in self.assigned:
                    self._check_holders(partition, now_s)
            case "generation_reserved":
                self._wrote_generation((self.reserved[0], record.generation_reserved.generation_id))
            case "offset_committed":
                self._wrote_offset(record.offset_committed, now_s)
            case "offset_removed":
                self._removed(record.offset_removed.partition)
            case "group_removed":
                for partition in list(self.stored):
                    self._removed(partition)
            case _:
                pass

    def _wrote_group(self, group: GroupRecord) -> None:
        token = (group.incarnation, group.generation_id)
        if token < (self.group.incarnation, self.group.generation_id):
            raise Violation("S3", f"generation {token} is written after {self.reserved}")
        self.group = group
        self.reserved = max(self.reserved, token)
        self.members = frozenset(member.member_id for member in group.members)
        self.assigned = {}
        for member in group.members:
            self.parts[token, member.member_id] = member.assignment
            for partition in partitions_of(member.assignment):
                other = self.assigned.setdefault(partition, member.member_id)
                if other != member.member_id:
                    raise Violation("S1", f"{other} and {member.member_id} both have {partition} in {token}")

    def _wrote_generation(self, token: Token) -> None:
        if token <= self.reserved:
            raise Violation("S3", f"generation {token} is issued after {self.reserved}")
        self.reserved = token

    def _wrote_offset(self, written: OffsetCommitted, now_s: float) -> None:
        partition, offset = written.partition, written.offset
        commit = self.commits.get(number_in(written.metadata))
        if commit is None or commit.offsets.get(partition) != offset:
            raise Violation("S7", f"nobody sent {partition}@{offset}")
        commit.applied[partition] += 1
        if commit.applied[partition] > commit.arrivals:
            raise Violation(
                "S7", f"{partition}@{offset} came {commit.arrivals} times and was applied more often"
            )
        if commit.generation < 0 or not commit.is_honest:
            self._set_from_outside(partition, offset)
        self._check_right(commit, partition)
        self._check_nobody_else_has(commit, partition, now_s)
        self._check_order(commit, partition, offset)
        self.stored[partition] = Stored(commit, self.group.incarnation, offset, self.position)
        self.indices[commit.number, partition] = self.position

    def _check_right(self, commit: Commit, partition: int) -> None:
        """Check that the member may commit."""
        if commit.generation < 0:
            if self.members:
                raise Violation("S4", f"{partition} is set from outside while the group has members")
            return
        owner = self.assigned.get(partition)
        is_member = commit.generation == self.group.generation_id and commit.member_id in self.members
        # Whoever is in a generation that was begun, and in which nobody was given anything, commits what nobody has.
        token = (self.group.incarnation, commit.generation)
        is_let_in = token == self.reserved and commit.member_id in self.let_in.get(token, ())
        if not (is_member or is_let_in) or owner not in (None, commit.member_id):
            raise Violation(
                "S4",
                f"{commit.member_id} commits {partition} in generation {commit.generation}; "
                f"in {self.group.generation_id} it is {owner}'s",
            )

    def _check_nobody_else_has(self, commit: Commit, partition: int, now_s: float) -> None:
        """
        Check that no other member commits for a partition, also while it is assigned to none and its owner has yet to
        revoke it.
        """
        for member_id, until_s in self.holders.get(partition, {}).values():
            others = instance_of(member_id) != instance_of(commit.member_id)
            if others and until_s > now_s and commit.generation >= 0:
                raise Violation("S4", f"{commit.member_id} commits {partition}, and {member_id} still has it")

    def _check_order(self, commit: Commit, partition: int, offset: int) -> None:
        """Check that the commit may follow the last one."""
        last = self.stored.get(partition)
        if last is None or commit.generation < 0:
            return
        later = (last.incarnation, last.commit.generation)
        if (self.group.incarnation, commit.generation) < later:
            raise Violation("S5", f"{partition} is committed in generation {commit.generation} after {later}")
        # The coordinator takes what a member says of its own partition: that it does not fall is up to the member's core.
        own = last.commit.member_id == commit.member_id and (
            commit.number < last.commit.number or commit.sender != last.commit.sender or not commit.is_honest
        )
        if offset < last.offset and not own:
            raise Violation("S5", f"{partition} falls from {last.offset} to {offset}")

    def _removed(self, partition: int) -> None:
        """Check that an offset is only removed while the group is empty."""
        if self.members:
            raise Violation("S5", f"{partition} is forgotten while the group has members")
        self.stored.pop(partition, None)
        self.releases.pop(partition, None)
        self.forgotten[partition] = self.position

    def check_log(self, records: Iterable[OffsetCommitted]) -> None:
        """Check that a restart reads the offsets that were written last."""
        read = {each.partition: each.offset for each in records}
        known = {partition: stored.offset for partition, stored in self.stored.items()}
        if read != known:
            raise Violation("S6", f"the log says {read}, and {known} was written")


def number_in(metadata: str) -> int:
    """The number of the commit; what its sender itself has to say stands behind it."""
    return int(metadata.partition(SEPARATOR)[0] or 0)


def instance_of(member_id: str) -> str:
    """A static member's id begins with its instance; any other one is its own."""
    return member_id.split("#")[0] if member_id.startswith("instance-") else member_id


def partitions_of(assignment: bytes) -> Sequence[int]:
    """The partitions that an assignment names."""
    return sorted(each.partition for each in assigned_partitions(assignment) or ())
