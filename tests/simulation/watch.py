"""
Looks into a running coordinator after each of its turns: the invariants over what only the core knows.

What members are told, and what is written, is checked in history.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.offsets import Offsets
from rota_coordinator.core.group.state import Group, State
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.slot import Slot
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.disk import DiskStore
from tests.simulation.history import partitions_of
from tests.simulation.invariants import Violation
from tests.simulation.plan import SESSION_S
from tests.simulation.situations import Look, Situations

# What one turn may make of a group: Kafka's table, with what may happen at once (a round opens and closes).
NEXT = {
    State.EMPTY: {State.EMPTY, State.PREPARING},
    State.PREPARING: {State.PREPARING, State.COMPLETING, State.EMPTY},
    State.COMPLETING: set(State),
    State.STABLE: set(State),
}
# Ids that were handed out and not used yet: members try again, and copies of their requests come late.
PENDING_MAX = 60
WHOLE_EVERY = 100
# Stalls that are so short are not noticed.
UNNOTICED_S = 0.3


class Mirror:
    """A slot as a restart would read it from the disk, kept up to date."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self.groups = Groups(config)
        self.version = 0
        self._epoch = 0

    def wrote(self, epoch: int, records: Sequence[Record]) -> None:
        """More was written, by the owner of that epoch."""
        if epoch < self._epoch:
            raise Violation("S11", f"epoch {epoch} writes after epoch {self._epoch}")
        self._epoch = epoch
        for record in records:
            self.groups.replay(record)
        self.version += 1

    def compacted(self, records: Sequence[Record]) -> None:
        """Everything was written anew, and must say the same in few words."""
        anew = Groups(self._config)
        for record in records:
            anew.replay(record)
        if anew.snapshot() != self.groups.snapshot():
            raise Violation("S10", "the compacted log says something else than the whole one")
        values = sum(len(offsets_of(offsets)) for offsets in anew.offsets.values())
        if len(records) > 1 + 2 * len(anew.groups) + values:
            raise Violation("S14", f"a compacted log of {len(records)} records for {values} offsets")
        self.groups = anew
        self.version += 1


class LastContact(NamedTuple):
    """When a member was last heard, and for how long the process had been stopped until then."""

    at_s: float
    stopped_s: float


def check_patience(last_contact: LastContact, now: LastContact) -> None:
    """L2: a member that is given up for its silence was listened to for a session. One session is forgiven, no more."""
    stopped_s = now.stopped_s - last_contact.stopped_s
    listened_s = now.at_s - last_contact.at_s - stopped_s
    if stopped_s <= SESSION_S and listened_s < SESSION_S - UNNOTICED_S:
        raise Violation("L2", f"a member was given up after {listened_s:.1f} s in which it could be heard")


@dataclass(slots=True)
class Watch:
    """On one slot in one process."""

    slot: Slot
    store: DiskStore
    mirror: Mirror
    situations: Situations
    # Something was decided since the last look.
    touched: bool = False
    looks: dict[str, Look] = field(default_factory=dict)
    last_contact: dict[str, LastContact] = field(default_factory=dict)
    _ready: bool = False
    _compared: int = -1
    _comparisons: int = 0

    def turn(self, *, by_timer: bool) -> None:
        """The process has done something."""
        ready = self.slot.state is SlotState.READY
        if ready != self._ready:
            self._ready = ready
            self._changed()
        if not ready:
            return
        if self.touched:
            self.touched = False
            for group in self.slot.groups.groups.values():
                self._look(group, by_timer=by_timer)
        if self._compared != self.mirror.version and self.store.is_settled(self.slot.number, self.slot.epoch):
            self._compare()

    def now(self) -> LastContact:
        """For who is heard now."""
        process = self.store.process
        return LastContact(process.loop.now_s, process.stopped_s)

    def _changed(self) -> None:
        if self._ready:
            self.looks.clear()
            self.last_contact.clear()
            self.situations.loaded(self.slot.groups)
            self.touched = True
        else:
            self.situations.dropped(self.looks)

    def _look(self, group: Group, *, by_timer: bool) -> None:
        check_shape(group)
        look = Look.at(group)
        before = self.looks.get(group.group_id)
        if before == look:
            return
        check_bounds(group)
        if before is not None:
            check_change(group, before, look)
            if by_timer and before.state is State.STABLE:
                for member_id in (before.members - look.members - before.unsynced) & self.last_contact.keys():
                    check_patience(self.last_contact[member_id], self.now())
            self.situations.changed(before, look, by_timer=by_timer)
        self.looks[group.group_id] = look

    def _compare(self) -> None:
        """S10, as far as what was written since the last time could break it; from time to time as a whole."""
        live, written = self.slot.groups, self.mirror.groups
        self._compared = self.mirror.version
        self._comparisons += 1
        same = live.incarnation == written.incarnation and live.groups.keys() == written.groups.keys()
        for group_id, group in live.groups.items() if same else ():
            same &= is_same(group, written.groups[group_id])
            same &= offsets_of(live.offsets[group_id]) == offsets_of(written.offsets[group_id])
        if same and self._comparisons % WHOLE_EVERY == 0:
            same = live.snapshot() == written.snapshot()
        if not same:
            raise Violation("S10", "the disk and the coordinator say different things")


def is_same(live: Group, written: Group) -> bool:
    """Return whether the durable state of two groups is equal; between rounds that includes all of the members."""
    same = live.durable == written.durable and live.reserved_generation == written.reserved_generation
    if same and live.state is State.STABLE:
        same = identities(live) == identities(written) and live.owners == written.owners
    return same


def identities(group: Group) -> tuple[object, ...]:
    """Return each member's identity, assignment, and metadata for the chosen strategy."""
    parts = {
        member.member_id: (member.assignment, member.metadata(group.protocol_name))
        for member in group.members
    }
    return group.generation, group.members.leader, parts, group.members.instances


def offsets_of(offsets: Offsets) -> dict[object, object]:
    """Return committed offsets and those of transactions, without positions in a log that may have been compacted."""
    held = {
        (producer_id, partition): (each.offset, each.producer_epoch)
        for producer_id, pending in offsets.pending.items()
        for partition, each in pending.items()
    }
    return held | {partition: stored.offset for partition, stored in offsets.committed.items()}


def check_shape(group: Group) -> None:
    """S17: what a group holds fits its state."""
    members, state = group.members, group.state
    fits = {
        "a barrier": (group.barrier is not None) == (state is State.PREPARING),
        # A first round that everybody left goes on to its end.
        "its members": state is State.PREPARING or bool(members.by_id) == (state is not State.EMPTY),
        "joins": state is State.PREPARING or all(member.joining is None for member in members),
        "syncs": state is State.COMPLETING or all(member.syncing is None for member in members),
        "an end of its syncs": group.sync_deadline_ms is None or state in (State.COMPLETING, State.STABLE),
        "members that have not synced": group.unsynced <= members.by_id.keys(),
        "its leader": members.leader in members.by_id or not members.by_id,
        "its instances": members.instances
        == {
            member.instance_id: member_id for member_id, member in members.by_id.items() if member.instance_id
        },
        "its generation": group.generation <= group.reserved_generation,
    }
    wrong = [name for name, fit in fits.items() if not fit]
    if wrong:
        raise Violation("S17", f"the group is {state.value}, which does not fit {', '.join(wrong)}")


def check_bounds(group: Group) -> None:
    """S14 and S1: the state is bounded, and no partition has two owners in it."""
    waiting = sum(member.joining is not None for member in group.members)
    if waiting > group.config.members_max or len(group.pending) > PENDING_MAX:
        raise Violation("S14", f"{waiting} members wait, {len(group.pending)} ids are handed out")
    if group.state is State.STABLE:
        owned = [part for member in group.members for part in partitions_of(member.assignment)]
        if len(owned) != len(set(owned)):
            raise Violation("S1", f"in generation {group.generation} partitions are owned twice: {owned}")


def check_change(group: Group, before: Look, now: Look) -> None:
    """S17 and S3: where a group may go from where it was."""
    if now.state not in NEXT[before.state]:
        raise Violation("S17", f"from {before.state.value} to {now.state.value}")
    same_group = now.incarnation == before.incarnation
    if same_group and now.generation < before.generation:
        raise Violation("S3", f"generation {now.generation} after {before.generation}")
    begun = now.generation != before.generation
    if same_group and begun and now.state not in (State.COMPLETING, State.EMPTY):
        raise Violation("S17", f"generation {now.generation} of {group.group_id} began as {now.state.value}")
