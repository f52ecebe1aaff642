"""
State of one group. `write` changes durable state; the modules of this package change the rest.

`replay` alone changes durable state, for live requests as well as on loading. State that is not durable (parked calls,
session deadlines) is lost with the process, as in Kafka.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.consumer_protocol import (
    TopicPartition,
    assigned_partitions,
    claimed_partitions,
    subscribed_topics,
)
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.members import Member, Members, instance_of
from rota_coordinator.core.instants import MonotonicMs, WallClock, WallMs
from rota_proto.consumer_protocol import PROTOCOL_TYPE
from rota_proto.coordinator.v1.records_pb2 import GenerationReserved, GroupMember, GroupRecord, Record

# The wall-clock time of a group without records.
NEVER = WallMs(0)


class State(enum.Enum):
    """Kafka's states of a classic group, except Dead: dead groups are removed."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class Barrier:
    """The open round of joins. Invariant: a group has one in state PREPARING, and only then."""

    deadline_ms: int
    # The round stays open until this time, although members are notified at once; later it closes when all have joined.
    open_until_ms: int
    # True for the first round of an empty group: it ends at its deadline only, which new members extend.
    is_initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0
    extended: bool = False
    # Milliseconds by which stalls of the coordinator extended the round.
    compensated_ms: int = 0


@dataclass(slots=True)
class Group:
    """The state of one group."""

    group_id: str
    config: GroupConfig
    incarnation: int
    # The last written record; snapshots contain it even while a round is open. None: nothing written yet.
    durable: GroupRecord | None = None
    written_bytes: int = 0
    # The principal whose quota is charged; empty: created by a version without quotas.
    created_by: str = ""
    state: State = State.EMPTY
    state_since_ms: WallMs = NEVER
    generation: int = 0
    # The highest generation ever issued; after a failover during a round it exceeds the present generation.
    reserved_generation: int = 0
    protocol_type: str = ""
    protocol_name: str = ""
    members: Members = field(default_factory=Members)
    # Partition -> its owner by the last assignment; empty if assignments do not use Kafka's consumer protocol.
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    # Unassigned partition -> the member that claims to own it; None: not decoded yet.
    _claimants: dict[TopicPartition, str] | None = None
    # Topics to which members of the last round subscribe; None: unknown, which counts as all topics.
    subscribed: frozenset[str] | None = frozenset()
    # Member ids assigned with MEMBER_ID_REQUIRED and not used yet -> the time at which each expires.
    pending: dict[str, int] = field(default_factory=dict)
    # Set in state PREPARING only.
    barrier: Barrier | None = None
    # Members of this generation that have not synced yet; at `sync_deadline_ms` they are removed.
    unsynced: set[str] = field(default_factory=set)
    sync_deadline_ms: int | None = None
    sync_compensated_ms: int = 0
    # Reason of the last round, for descriptions; empty: it opened before this process served the group.
    opened_by: str = ""
    # Start of the running rebalance: the first round since the last assignment. None: no rebalance is running.
    unsettled_since_ms: int | None = None
    # Wall clock of `state_since_ms` and of records; all other times are on the monotonic clock.
    wall: WallClock = field(default_factory=WallClock)

    def enter(self, state: State, since_ms: WallMs) -> None:
        """Change the state; the caller sets or removes the barrier first."""
        assert (state is State.PREPARING) == (self.barrier is not None)
        self.state = state
        self.state_since_ms = since_ms

    def write(self, record: Record, effects: Effects) -> None:
        """Change durable state: add the record to the effects to be written, and replay it."""
        effects.records.append(record)
        self.replay(record)

    def replay(self, record: Record) -> None:
        """Apply a record, live or on loading."""
        match record.WhichOneof("record"):
            case "group":
                self._replay_group(record.group)
            case "generation_reserved":
                self._replay_generation(record.generation_reserved)
            case _:
                pass  # `Offsets.replay` applies records of offsets; a record of a later version is skipped

    def _replay_generation(self, reserved: GenerationReserved) -> None:
        assert reserved.generation_id > self.reserved_generation
        self.reserved_generation = reserved.generation_id

    def _replay_group(self, record: GroupRecord) -> None:
        self.durable = record
        self.written_bytes = record.ByteSize()
        self.created_by = record.created_by
        self.incarnation = record.incarnation
        self.generation = record.generation_id
        self.reserved_generation = max(self.reserved_generation, self.generation)
        self.protocol_type = record.protocol_type
        self.protocol_name = record.protocol_name
        # Remove members before adding: a returning static member holds its instance id under a new member id.
        for gone in self.members.by_id.keys() - {written.member_id for written in record.members}:
            self.members.remove(self.members.by_id[gone])
        for written in record.members:
            if written.member_id not in self.members.by_id:
                self.members.add(restored(written, record.protocol_name))
            self.members.apply_record(written, record.protocol_name)
        self.members.leader = record.leader
        self.owners = owners_by(self.protocol_type, record.members)
        self._claimants = None
        self.subscribed = subscribed_by(self.protocol_type, [each.metadata for each in record.members])
        self.barrier = None
        self.enter(State.STABLE if record.members else State.EMPTY, WallMs(record.state_since_ms))

    def owner_of(self, partition: TopicPartition) -> str | None:
        """
        Return the only member that may commit for the partition, or None.

        A cooperative rebalance assigns a partition that moves to no member at first: until the next rebalance its
        previous owner processes it and commits its offsets. Claims are decoded at the first such commit only.
        """
        owner = self.owners.get(partition)
        if owner is not None:
            return owner
        if self._claimants is None:
            members = self.durable.members if self.durable is not None else ()
            self._claimants = claimants_by(self.protocol_type, members)
        return self._claimants.get(partition)

    def record(self, assignments: dict[str, bytes], since_ms: WallMs) -> Record:
        """Return the record of the group with these assignments."""
        return Record(
            group=GroupRecord(
                group_id=self.group_id,
                incarnation=self.incarnation,
                generation_id=self.generation,
                protocol_type=self.protocol_type,
                protocol_name=self.protocol_name,
                leader=self.members.leader,
                state_since_ms=since_ms,
                created_by=self.created_by,
                members=[
                    described(member, self.protocol_name, assignments.get(member.member_id, b""))
                    for member in self.members
                ],
            )
        )

    def drop(self, member: Member, effects: Effects) -> None:
        """Remove a member and all its state."""
        self.members.remove(member)
        effects.removed_members.append((self.group_id, member.member_id))

    def touch(self, member: Member, now_ms: MonotonicMs) -> None:
        """Restart the member's session; called on each of its requests. A grace period ends."""
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        member.grace_until_ms = None
        member.compensated_ms = 0

    def all_joined(self) -> bool:
        """
        Return whether every member waits in the barrier, and no assigned member id is still unused.

        Called at every join. Members mostly join in their order, so the check starts with the last member.
        """
        newest_first = reversed(self.members.by_id.values())
        return not self.pending and all(member.joining is not None for member in newest_first)


def owners_by(protocol_type: str, members: Iterable[GroupMember]) -> dict[TopicPartition, str]:
    """Return the owner of each partition; malformed assignments are skipped."""
    if protocol_type != PROTOCOL_TYPE:
        return {}
    return {
        partition: member.member_id
        for member in members
        for partition in assigned_partitions(member.assignment) or ()
    }


def claimants_by(protocol_type: str, members: Iterable[GroupMember]) -> dict[TopicPartition, str]:
    """Return the member that claims each partition in the newest generation; partitions that two members claim are omitted."""
    if protocol_type != PROTOCOL_TYPE:
        return {}
    newest: dict[TopicPartition, tuple[int, set[str]]] = {}
    for member in members:
        claim = claimed_partitions(member.metadata)
        for partition in claim.partitions:
            generation, claimants = newest.get(partition, (claim.generation, set()))
            if claim.generation > generation:
                claimants = set()
            if claim.generation >= generation:
                newest[partition] = (claim.generation, claimants | {member.member_id})
    return {partition: min(who) for partition, (_, who) in newest.items() if len(who) == 1}


def subscribed_by(protocol_type: str, metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics to which these members subscribe; None: one subscription is malformed, or of another protocol."""
    topics: frozenset[str] = frozenset()
    for each in metadata:
        found = subscribed_topics(each)
        if found is None or protocol_type != PROTOCOL_TYPE:
            return None
        topics |= found
    return topics


def restored(written: GroupMember, protocol_name: str) -> Member:
    """Return the member that a record describes; it offers the elected protocol only."""
    return Member(
        member_id=written.member_id,
        instance_id=instance_of(written),
        client_id=written.client_id,
        client_host=written.client_host,
        session_timeout_ms=written.session_timeout_ms,
        rebalance_timeout_ms=written.rebalance_timeout_ms,
        protocols=((protocol_name, written.metadata),),
        is_new=False,
    )


def described(member: Member, protocol_name: str, assignment: bytes) -> GroupMember:
    """Return the member's part of the group's record."""
    return GroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        metadata=member.metadata(protocol_name),
        assignment=assignment,
    )


def answer(effects: Effects, call: Call | None, reply: Message) -> None:
    """Add the response to the effects; does nothing without a call."""
    if call is not None:
        effects.replies.append((call, reply))
