"""
Coordinators, a disk and a network in virtual time, from one seed.

What is said and written goes into the histories, which check it; a watch looks into each coordinator after its turns.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence

from google.protobuf.message import Message

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.group.offsets import Offsets
from rota_coordinator.core.slots.table import SLOTS
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.claims import group_named
from tests.simulation.disk import Disk
from tests.simulation.history import History
from tests.simulation.host import Coordinator, Host
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.network import Network
from tests.simulation.plan import COMMIT_TIMEOUT_MS, DeliveryPlan, Plan
from tests.simulation.shared_disk import Leases
from tests.simulation.situations import Situations
from tests.simulation.transactions import TOPIC_OF_PRODUCERS, TransactionalHistory
from tests.simulation.watch import Mirror


class World:
    """Everything of a run."""

    def __init__(
        self, loop: VirtualLoop, plan: Plan, chance: random.Random, deliveries: DeliveryPlan | None = None
    ) -> None:
        self.loop = loop
        self.plan = plan
        # None: applications read and commit by themselves.
        self.deliveries = deliveries
        self.chance = chance
        self.fired: Counter[str] = Counter()
        self.situations = Situations()
        only_members_send = not plan.copy_rate and not (plan.statics and "double" in plan.acts)
        self.histories = {group_id: History(only_members_send=only_members_send) for group_id in plan.groups}
        self.transactions = {
            group_id: TransactionalHistory(met=self.situations.met) for group_id in plan.groups
        }
        self.config = GroupConfig(
            session_timeout_ms_min=100,
            initial_rebalance_delay_ms=plan.initial_delay_ms,
            rebalance_coalesce_ms=plan.coalesce_ms,
            members_max=plan.members_max,
            offsets_retention_ms=plan.retention_ms,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
        )
        slots = sorted({slot_of(group_id, SLOTS) for group_id in plan.groups})
        self.mirrors = {slot: Mirror(self.config) for slot in slots}
        self.disk = Disk(loop, plan, chance, self.fired, reader=self, slots=frozenset(slots))
        self.leases = Leases(self.disk)
        self.network = Network(loop, plan, chance, self.fired, self.step)
        self.hosts = [Host(self, f"coordinator-{number}:7070") for number in range(plan.hosts)]
        self.steps = 0
        self.calm = False
        # Of the topic of each group; members look at it from the first time that it grows.
        self.partitions = plan.partitions
        self.has_grown = False
        # Called once, by the next member that has to give something up.
        self.on_revoke: Callable[[object], object] | None = None
        self._trace = hashlib.blake2b(digest_size=16)
        self._ids = 0
        loop.after_turn = self._after_turn

    def host_at(self, address: str) -> Host:
        """The host that members are sent to."""
        return next(host for host in self.hosts if host.address == address)

    def new_uuid(self) -> str:
        """Return an unused part of an id."""
        self._ids += 1
        return f"#{self._ids}"

    def step(self, kind: str, message: Message | None = None) -> None:
        """Something happened: it is counted, and part of the trace."""
        self.steps += 1
        said = b"" if message is None else message.SerializeToString(deterministic=True)
        self._trace.update(f"{self.loop.now_s:.6f} {kind} ".encode() + said)

    def fault(self, name: str) -> None:
        """The nemesis has done something."""
        self.fired[name] += 1
        self.step(name)

    @property
    def trace(self) -> str:
        """Two runs with the same trace did the same, at the same times."""
        return f"{self._trace.hexdigest()} after {self.steps} steps, {self.loop.now_s:.6f} s"

    def heal(self) -> None:
        """No more faults from here on; who is down comes back."""
        self.calm = self.network.calm = self.disk.calm = True
        self.network.cuts.clear()
        self.disk.cut.clear()
        for host in self.hosts:
            host.heal()

    def grow(self) -> None:
        """Add a partition to the topic."""
        self.partitions += 1
        self.has_grown = True
        self.step("the topic grows")

    def wrote(self, slot: int, epoch: int, records: Sequence[Record]) -> None:
        """Of the disk: records are durable."""
        transactional: dict[str, None] = {}
        for record in records:
            self.step("write", record)
            group_id = group_named(record)
            if self.transactions[group_id].wrote(record):
                transactional[group_id] = None
            else:
                self.histories[group_id].wrote(record, self.loop.now_s)
        self.mirrors[slot].wrote(epoch, records)
        for group_id in transactional:
            self._check_transactions(group_id, self.mirrors[slot].groups)

    def compacted(self, slot: int) -> None:
        """Of the disk: the log is another one."""
        self.step("compaction")
        self.situations.compacted(self.mirrors[slot].groups)
        self.mirrors[slot].compacted(self.disk.logs[slot])

    def check_log(self) -> None:
        """At the end: what a restart reads is what was written."""
        read = Groups(self.config)
        for slot in self.mirrors:
            for record in self.disk.logs.get(slot, []):
                read.replay(record)
        for group_id, history in self.histories.items():
            offsets = read.offsets.get(group_id, Offsets())
            history.check_log(
                stored.offset
                for where, stored in offsets.committed.items()
                if where.topic != TOPIC_OF_PRODUCERS
            )
            self._check_transactions(group_id, read)

    def _check_transactions(self, group_id: str, read: Groups) -> None:
        self.transactions[group_id].check(read.offsets.get(group_id, Offsets()))

    def _after_turn(self, process: Process, by_timer: bool) -> None:
        if isinstance(process.owner, Coordinator):
            process.owner.turn(by_timer=by_timer)
