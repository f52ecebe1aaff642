"""The states of the exhaustive search: a core, three clients, what is written and what was told; copied and compared."""

import copy
import hashlib
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.members import Member, Members
from rota_coordinator.core.group.state import Group, State
from rota_proto.coordinator.v1.records_pb2 import Record

MEMBERS = 3
GENERATIONS = 2
SESSION_MS, REBALANCE_MS = 10_000, 20_000
GROUP = "g"
# Ids that a client may have, one after the other.
LIVES = 2


@dataclass(frozen=True, slots=True)
class Case:
    """Case of a search, and the number of faults of each member."""

    statics: int = 0
    coalesce_ms: int = 0
    crashes: int = 0
    leaves: int = 0
    commits: int = 0
    repeats: int = 0


class Phase(IntEnum):
    """Phase of a client."""

    OUT = 0  # it has no id
    KNOWN = 1  # it has one, and has to join
    JOINING = 2
    JOINED = 3  # it has to sync
    SYNCING = 4
    STABLE = 5
    GONE = 6


class Client(NamedTuple):
    """One member as it sees itself."""

    phase: Phase = Phase.OUT
    member_id: str = ""
    generation: int = -1
    # Of whom it is the leader.
    leads: tuple[str, ...] = ()
    owns: tuple[int, ...] = ()
    lives: int = 0  # how many ids it has had


@dataclass(slots=True)
class World:
    """A state."""

    case: Case
    core: Groups
    clients: list[Client] = field(default_factory=lambda: [Client()] * MEMBERS)
    now_ms: int = 0
    log: tuple[Record, ...] = ()
    # What was told: who leads a generation, who owns a partition in it, and what was acknowledged.
    leaders: dict[int, str] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    acknowledged: int = 0
    crashes: int = 0
    leaves: int = 0
    commits: int = 0
    repeats: int = 0

    def twin(self) -> "World":
        """The same state, to be changed."""
        return replace(
            self,
            core=clone(self.core),
            clients=list(self.clients),
            leaders=dict(self.leaders),
            owners=dict(self.owners),
        )

    @property
    def group(self) -> Group | None:
        return self.core.groups.get(GROUP)

    def key(self) -> bytes:
        """The state without its past: equal keys have equal futures. Times count from now."""
        spent = (self.crashes, self.leaves, self.commits, self.repeats)
        notified = (
            tuple(sorted(self.leaders.items())),
            tuple(sorted(self.owners.items())),
            self.acknowledged,
        )
        clients = tuple((int(client.phase), *client[1:]) for client in self.clients)
        state = (key_of(self.group, self.now_ms), durable_key(self.core), clients, notified, spent)
        return hashlib.blake2b(repr(state).encode(), digest_size=12).digest()

    def is_final(self) -> bool:
        """Return whether the last generation is complete, or no client is left to complete it."""
        group = self.group
        if group is None:
            return False
        if all(client.phase is Phase.GONE for client in self.clients):
            return True
        synced = group.state is State.STABLE and not group.unsynced
        return group.generation > GENERATIONS or (group.generation == GENERATIONS and synced)


def clone(core: Groups) -> Groups:
    """A copy that shares nothing which changes."""
    groups = {}
    for group_id, group in core.groups.items():
        twin = copy.copy(group)
        by_id = {member_id: copy.copy(member) for member_id, member in group.members.by_id.items()}
        members = group.members
        sizes = replace(members.sizes, names=members.sizes.names.copy())
        twin.members = Members(by_id, dict(members.instances), members.leader, sizes)
        twin.owners, twin.pending, twin.unsynced = (
            dict(group.owners),
            dict(group.pending),
            set(group.unsynced),
        )
        twin.barrier = copy.copy(group.barrier)
        groups[group_id] = twin
    offsets = {}
    for group_id, held in core.offsets.items():
        offsets[group_id] = copy.copy(held)
        offsets[group_id].committed = dict(held.committed)
    return Groups(core.config, groups, offsets, core.incarnation)


def key_of(group: Group | None, now_ms: int) -> tuple[object, ...]:
    """Return the part of a running group's state that determines its next steps."""
    if group is None:
        return ()
    barrier = group.barrier
    round_key = (
        ()
        if barrier is None
        else (
            barrier.deadline_ms - now_ms,
            max(barrier.open_until_ms - now_ms, 0),
            barrier.is_initial,
            barrier.extended,
        )
    )
    members = tuple(member_key(member, now_ms) for member in group.members)
    return (
        group.state.value,
        group.generation,
        group.reserved_generation,
        group.members.leader,
        members,
        tuple(sorted((member_id, until_ms - now_ms) for member_id, until_ms in group.pending.items())),
        tuple(sorted(group.unsynced)),
        None if group.sync_deadline_ms is None else group.sync_deadline_ms - now_ms,
        round_key,
    )


def member_key(member: Member, now_ms: int) -> tuple[object, ...]:
    """The same of a member."""
    return (
        member.member_id,
        member.joining is not None,
        member.syncing is not None,
        member.is_new,
        member.assignment,
        member.session_deadline_ms - now_ms,
        None if member.grace_until_ms is None else member.grace_until_ms - now_ms,
    )


def durable_key(core: Groups) -> tuple[object, ...]:
    """Return the state that a crash leaves."""
    offsets = core.offsets.get(GROUP)
    committed = [] if offsets is None else [stored.offset.offset for stored in offsets.committed.values()]
    group = core.groups.get(GROUP)
    if group is None or group.durable is None:
        return (tuple(committed),)
    members = tuple((each.member_id, each.assignment) for each in group.durable.members)
    return group.durable.generation_id, members, tuple(committed)


def config(case: Case) -> GroupConfig:
    """The settings of a case."""
    return GroupConfig(initial_rebalance_delay_ms=0, rebalance_coalesce_ms=case.coalesce_ms)
