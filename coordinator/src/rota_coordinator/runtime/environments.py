"""The dependencies of the two shells, `slot` and `topic_log`; `program` builds them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.instants import MonotonicMs, WallClock, WallMs
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.quotas import Quotas
from rota_coordinator.runtime.failpoints import Failpoints
from rota_coordinator.runtime.observer import Observers
from rota_coordinator.runtime.overload import Stalls
from rota_coordinator.runtime.replicated_state import Replica
from rota_coordinator.store.port import LOG_SLOT, LogStore, Store
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# The event log is compacted when more than this many events, and most of all events, are obsolete.
LOG_COMPACT_ABOVE = 10_000


@dataclass(frozen=True, slots=True)
class SlotEnvironment:
    """The dependencies of a slot: store, clocks, callbacks and limits."""

    store: Store
    config: GroupConfig
    now_ms: Callable[[], MonotonicMs]
    new_uuid: Callable[[], str]  # returns a new UUID
    notify: Callable[[pb.RebalanceNotice], None]
    group_changed: Callable[[str], None]  # called with a group id after its description may have changed
    report: Callable[[str], None]
    report_exception: Callable[[Exception], None]  # an unexpected exception in the core
    # Returns True while the lease of this process is valid; always True on SQLite, which locks the file.
    may_serve: Callable[[], bool] = lambda: True
    failpoints: Failpoints = field(default_factory=Failpoints)
    observers: Observers = field(default_factory=Observers)
    stalls: Stalls = field(default_factory=Stalls)
    quotas: Quotas = field(default_factory=Quotas)
    # Called with group id and member id after a member was removed.
    member_removed: Callable[[str, str], None] = lambda group_id, member_id: None
    # Called with a slot's number after this process has begun or ended to serve it.
    slot_changed: Callable[[int], None] = lambda number: None
    # On loading, a log is compacted when it exceeds its snapshot twofold and by more than this many records.
    compact_above: int = 1_000
    # The same while the slot is served; higher, because requests wait for the snapshot.
    compact_running_above: int = 10_000
    # Difference of the clocks at the last call of `now_ms`.
    wall: WallClock = field(default_factory=WallClock)

    def replica(self, number: int) -> Replica:
        """Return the log of a slot, for its runtime."""
        return Replica(
            self.store,
            number,
            f"slot {number}",
            self.report,
            self.report_exception,
            self.compact_above,
            self.compact_running_above,
            self.observers.appended,
            self._may_act,
            self.may_serve,
        )

    def _may_act(self) -> bool:
        """Return whether the process responds at all; a stall has been compensated for then."""
        if self.failpoints.held:
            return False
        self.stalls.settle()
        return True


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The dependencies of the log: store, clocks, callbacks and quotas."""

    store: LogStore
    config: LogConfig
    now_ms: Callable[[], WallMs]
    new_uuid: Callable[[], bytes]  # a topic id that no topic has had
    report: Callable[[str], None]
    report_exception: Callable[[Exception], None]  # an unexpected exception in the core
    # Difference of the clocks at the last call of `now_ms`.
    wall: WallClock = field(default_factory=WallClock)
    quotas: Quotas = field(default_factory=Quotas)

    def replica(self) -> Replica:
        """Return the event log, for its runtime."""
        above = LOG_COMPACT_ABOVE
        return Replica(self.store, LOG_SLOT, "the log", self.report, self.report_exception, above, above)
