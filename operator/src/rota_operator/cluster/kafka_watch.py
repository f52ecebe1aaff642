"""
Reads a group at its Kafka cluster while no member of it reports, with credentials of the operator's own.

`groups` runs one `KafkaWatch` for each group that the operator has credentials for. As long as sidecars report members, they say
everything, and nothing is asked; without them brokers are asked every few seconds for the group's members and the offsets of all
its partitions. Clients are opened for that and closed again: librdkafka has threads and connections for each.
"""

import asyncio
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from rota_operator.cluster.kafka_access import KafkaAccess
from rota_operator.cluster.shared_records import SharedRecords
from rota_operator.engines.port import Groups, Unavailable
from rota_operator.engines.watch import OffsetWatch, Subscription, repeat
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import Description
from rota_operator.overview.offsets import PartitionOffsets

if TYPE_CHECKING:
    from rota_operator.engines.kafka import KafkaGroups, KafkaRecords

POLL_INTERVAL_S = 3.0
# Groups with open clients at a time: each takes 9 threads and 0.8 MiB.
OPEN_MAX = 100
NOT_READ_NOW = "the group is not read at its Kafka cluster now"


class Subject(NamedTuple):
    """The group that is read."""

    group_id: str
    subscription: Subscription
    read_committed: bool
    access: KafkaAccess
    # Of a group on Rota's coordinator, whose records alone are in Kafka; None: Kafka coordinates it.
    coordinator: Groups | None


class KafkaCallbacks(NamedTuple):
    """Callbacks of the watch, called on its event loop."""

    # Whether sidecars report members.
    has_members: Callable[[], bool]
    owned: Callable[[], Collection[Partition]]
    described: Callable[[Description], None]
    # Offsets of all partitions of the group.
    listed: Callable[[Mapping[Partition, PartitionOffsets]], None]
    # Sidecars report members again: the description is outdated.
    paused: Callable[[], None]
    # Brokers do not answer: why.
    unknown: Callable[[str], None]


class SharedKafkaRecords:
    """
    Readers of Kafka clusters' topics, one for each access and isolation level.

    Invariant: a reader is open while it is taken, and no more than OPEN_MAX groups have taken one.
    """

    def __init__(self) -> None:
        self._users = 0
        # A group found no room since the last one made some.
        self._is_wanted = False
        self._open: dict[tuple[KafkaAccess, bool], tuple[KafkaRecords, SharedRecords, int]] = {}

    def has_room(self) -> bool:
        """Return whether another group may take a reader; if not, one that has been read soon gives its own back."""
        self._is_wanted = self._users >= OPEN_MAX
        return not self._is_wanted

    def is_wanted(self) -> bool:
        """Return whether a group that has been read makes room for another one; only one of them does for each that wants it."""
        is_wanted, self._is_wanted = self._is_wanted, False
        return is_wanted

    def take(self, access: KafkaAccess, *, read_committed: bool) -> SharedRecords:
        """Return the reader of an access; each is given back by `release`."""
        from rota_operator.engines.kafka import KafkaRecords

        key = access, read_committed
        if key not in self._open:
            records = KafkaRecords(dict(access.properties), read_committed=read_committed)
            self._open[key] = records, SharedRecords(records), 0
        records, shared, users = self._open[key]
        self._open[key] = records, shared, users + 1
        self._users += 1
        return shared

    async def release(self, access: KafkaAccess, *, read_committed: bool) -> None:
        """Give a reader back; the last user's is closed."""
        key = access, read_committed
        records, shared, users = self._open[key]
        self._users -= 1
        if users > 1:
            self._open[key] = records, shared, users - 1
            return
        del self._open[key]
        await records.close()


class KafkaWatch:
    """
    Reads one group. Invariant: clients are open only while no member reports, and closed when `run` has ended.

    Where more groups have no members than may have clients, they take turns, each reading for one poll.
    """

    def __init__(self, subject: Subject, records: SharedKafkaRecords, callbacks: KafkaCallbacks) -> None:
        self._subject = subject
        self._records = records
        self._callbacks = callbacks
        self._groups: KafkaGroups | None = None
        self._offsets: OffsetWatch | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        # The library is slow to import.
        await asyncio.to_thread(importlib.import_module, "rota_operator.engines.kafka")
        try:
            await repeat(self._poll, self._callbacks.unknown, POLL_INTERVAL_S)
        finally:
            await self._close()

    @property
    def groups(self) -> "KafkaGroups":
        """The group at its brokers. Raises Unavailable while it is not read."""
        if self._groups is None:
            raise Unavailable(NOT_READ_NOW)
        return self._groups

    async def _poll(self) -> None:
        if self._callbacks.has_members():
            await self._close()
            self._callbacks.paused()
            return
        if self._offsets is None and not self._records.has_room():
            # At one of the next polls.
            return
        try:
            await self._read(self._opened())
        finally:
            if self._records.is_wanted():
                await self._close()

    async def _read(self, offsets: OffsetWatch) -> None:
        if self._subject.coordinator is None:
            self._callbacks.described(await self.groups.describe())
        self._callbacks.listed(await offsets.poll())

    def _opened(self) -> OffsetWatch:
        if self._offsets is None:
            from rota_operator.engines.kafka import KafkaGroups

            subject = self._subject
            self._groups = KafkaGroups(subject.group_id, dict(subject.access.properties))
            self._offsets = OffsetWatch(
                subject.group_id,
                subject.subscription,
                subject.coordinator or self._groups,
                self._records.take(subject.access, read_committed=subject.read_committed),
                self._callbacks.owned,
            )
        return self._offsets

    async def _close(self) -> None:
        if self._offsets is None or self._groups is None:
            return
        groups, self._groups, self._offsets = self._groups, None, None
        await groups.close()
        await self._records.release(self._subject.access, read_committed=self._subject.read_committed)
