"""
Store of local state and offsets in a compacted topic, on Rota's log and on Kafka.

Each partition of a group has a transactional producer of its own, whose id names group and partition. `assign` initializes it,
which fences the former owner at the server: whatever that one sends later is rejected, so no record of it can replace a later one
when the topic is compacted. Then it reads the partition's records to the end, compares the owner there with its own (incarnation,
generation), and writes its own. A late member that initializes its producer after the present owner finds a higher one, and stops.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, Unpack

from rota import errors
from rota.addresses import address_of, is_rota
from rota.clocks import system_clocks
from rota.metadata import GroupMetadata
from rota.producer.api import Producer
from rota.producer.futures import SendFuture
from rota.producer.options import Settings, options_of
from rota.records import Headers
from rota.stores import state_records
from rota.stores.batch import Tenure, check_member
from rota.stores.errors import (
    NotAssigned,
    OffsetWentBack,
    OwnerReplaced,
    Partition,
    StoreError,
    StoreFenced,
    named,
)
from rota.stores.state_readers import StateReader, reader_of
from rota.stores.state_records import Entry, Fence, Name, PartitionState

if TYPE_CHECKING:
    from types import TracebackType

    from rota.consumer.api import Consumer
    from rota.stores.listener import StoreListener

STATE = "state"
CHUNK_BYTES = 512 << 10
TIMEOUT_S = 60.0
FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch)


@dataclass(slots=True)
class Ownership:
    """A partition that this store has fenced, with its producer."""

    group: GroupMetadata
    producer: Producer
    scope: bytes
    next_offset: int | None
    # What was read when the partition was fenced; None once it was restored.
    restored: Mapping[str, dict[bytes, bytes]] | None
    # Number of chunks of each entry, as far as committed.
    counts: dict[Name, int]


class TopicTransaction:
    """The open transaction of a batch of one partition: results, state and position, committed together or not at all."""

    def __init__(self, ownership: Ownership, topic: str, partition: Partition, chunk_bytes: int) -> None:
        self._ownership = ownership
        self._topic = topic
        self._partition = partition
        self._chunk_bytes = chunk_bytes
        self.counts: dict[Name, int] = {}
        self.next_offset: int | None = None

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> SendFuture:
        """Send a result to another topic, in this transaction; its consumers use `read_committed`."""
        return self._ownership.producer.send(topic, value, key, partition, headers=headers)

    def put(self, changes: Mapping[bytes, bytes | None], *, name: str = STATE) -> None:
        """Store changes of the state, None for a deleted key. A value has at most 64 MiB."""
        for key, value in changes.items():
            entry = (name, key)
            before = self.counts.get(entry, self._ownership.counts.get(entry, 0))
            records, self.counts[entry] = state_records.chunks(
                self._ownership.scope, entry, value, self._chunk_bytes, before
            )
            self._write(records)

    def save(self, next_offset: int, *, rewind: bool = False) -> None:
        """Store the next offset to read; one below the stored offset is refused unless `rewind`."""
        stored = self._ownership.next_offset
        if next_offset < 0:
            raise StoreError(f"{next_offset} is not an offset: use the next offset to read, 0 or more")
        if stored is not None and next_offset < stored and not rewind:
            raise OffsetWentBack(self._partition, stored, next_offset)
        self._write([state_records.position(self._ownership.scope, next_offset)])
        self.next_offset = next_offset

    def _write(self, records: Iterable[Entry]) -> None:
        for key, value in records:
            self._ownership.producer.send(self._topic, value, key, self._partition[1])


class TopicStore:
    """
    Local state and offsets of a group in a compacted topic, which has at least as many partitions as the topics that are read.

    It belongs to one thread at a time, and to one group. ::

        store = TopicStore("rota://127.0.0.1:7070", "orders-state")
        store.create_topic(partitions=12)
        tenure = store.assign(consumer.group_metadata(), [("orders", 0)])
        state = store.restore(tenure, ("orders", 0))
        with store.transaction(tenure, ("orders", 0)) as tx:
            tx.put(add_up(batch, state))
            tx.save(batch.next_offset)

    After an error of a block nothing of it is stored, or, after `UndecidedCommit`, all of it may be: assign and restore again.
    `settings` are those of a producer, for its connections.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        timeout_s: float = TIMEOUT_S,
        chunk_bytes: int = CHUNK_BYTES,
        **settings: Unpack[Settings],
    ) -> None:
        self._address = bootstrap_servers
        self._topic = topic
        self._timeout_s = timeout_s
        self._chunk_bytes = chunk_bytes
        self._settings = settings
        self._clock = system_clocks().monotonic_s
        self._owned: dict[Partition, Ownership] = {}
        self._opened: StateReader | None = None

    def create_topic(self, partitions: int) -> None:
        """Create the compacted topic, unless it exists."""
        options = options_of(self._settings)
        address = address_of(self._address)
        if is_rota(address):
            from rota.security import credentials_of
            from rota.topics import Topics

            with Topics(self._address, credentials=credentials_of(options)) as topics:
                topics.create({self._topic: partitions}, cleanup_policy="compact")
            return
        from rota import kafka_topics
        from rota.producer.connections import kafka_client

        config = kafka_client(options, address)
        kafka_topics.create(
            address, {self._topic: partitions}, config, self._timeout_s, {"cleanup.policy": "compact"}
        )

    def assign(self, group: GroupMetadata, partitions: Iterable[Partition]) -> Tenure:
        """
        Fence partitions that this member received, and read their positions and state; in this order.

        Call it in every generation, for all partitions of the member: those that it kept are not read again. Raises `StoreFenced`
        if a newer owner has fenced one already.
        """
        check_member(group)
        wanted = [(topic, index) for topic, index in partitions]
        for partition in [each for each in self._owned if each not in wanted]:
            self._release(partition)
        for partition in wanted:
            if not self._keep(group, partition):
                self._take(group, partition)
        return Tenure(group, {each: self._owned[each].next_offset for each in wanted})

    def listener(self, consumer: "Consumer") -> "StoreListener":
        """Create the listener for `consumer.subscribe(…, listener=…)`: it fences assigned partitions and seeks to their stored positions."""
        from rota.stores.listener import StoreListener

        return StoreListener(self, consumer)

    def restore(self, tenure: Tenure, partition: Partition, *, name: str = STATE) -> dict[bytes, bytes]:
        """Return the state of a partition as its last transaction left it; once after the partition was fenced."""
        ownership = self._ownership(tenure, partition)
        if ownership.restored is None:
            raise StoreError(
                f"the state of partition {named(partition)} has changed since it was read: it is the one that this owner has; "
                "after an error, assign again"
            )
        return dict(ownership.restored.get(name, {}))

    @contextmanager
    def transaction(self, tenure: Tenure, partition: Partition) -> Iterator[TopicTransaction]:
        """
        Open a block whose results, state and position are committed together, or not at all.

        Raises `StoreFenced` if a newer owner has fenced the partition. After any error the partition is given up: assign again.
        """
        ownership = self._ownership(tenure, partition)
        tx = TopicTransaction(ownership, self._topic, partition, self._chunk_bytes)
        try:
            with ownership.producer.transaction():
                yield tx
        except BaseException as error:
            self._release(partition)
            if is_fenced(error):
                raise OwnerReplaced(ownership.group, partition) from error
            raise
        ownership.restored = None
        ownership.counts.update(tx.counts)
        if tx.next_offset is not None:
            ownership.next_offset = tenure.positions[partition] = tx.next_offset

    def _ownership(self, tenure: Tenure, partition: Partition) -> Ownership:
        found = self._owned.get(partition)
        if found is None or partition not in tenure.positions or found.group != tenure.group:
            raise NotAssigned(tenure.group.group_id, partition)
        return found

    def _keep(self, group: GroupMetadata, partition: Partition) -> bool:
        """Write a fence of the new generation for a partition that this store owns already; return whether that succeeded."""
        ownership = self._owned.get(partition)
        if ownership is None or ownership.group.group_id != group.group_id:
            return False
        token = ownership.group.incarnation, ownership.group.generation_id
        if token > (group.incarnation, group.generation_id):
            raise StoreFenced(group, partition, token, ownership.group.member_id)
        try:
            self._write_fence(ownership.producer, ownership.scope, group, partition)
        except errors.RotaError:
            # Fenced, or the outcome is unknown: begin anew, and find out.
            self._release(partition)
            return False
        ownership.group = group
        return True

    def _take(self, group: GroupMetadata, partition: Partition) -> None:
        """Fence the former owner, read the partition, and write this owner's fence."""
        deadline_s = self._clock() + self._timeout_s
        while True:
            settings: Settings = {
                **self._settings,
                "transactional_id": self._transactional_id(group, partition),
            }
            producer = Producer(self._address, **settings)
            try:
                self._owned[partition] = self._taken(producer, group, partition)
            except BaseException as error:
                producer.close()
                # Another member has initialized its producer meanwhile: a late one, or the next owner.
                if is_fenced(error) and self._clock() < deadline_s:
                    continue
                raise
            return

    def _taken(self, producer: Producer, group: GroupMetadata, partition: Partition) -> Ownership:
        index = partition[1]
        if index not in producer.partitions_for(self._topic):
            raise StoreError(
                f"topic {self._topic} has no partition {index} for the state of {named(partition)}: add partitions to it"
            )
        producer.init_transactions()
        scope = state_records.scope_of(group.group_id, partition)
        state = PartitionState(scope, partition)
        for key, value in self._reader().read(index, self._timeout_s):
            state.apply(key, value)
        found = state.fence
        if found is not None and found[:2] > (group.incarnation, group.generation_id):
            raise StoreFenced(group, partition, found[:2], found.member_id)
        restored = state_records.states_of(state)
        self._write_fence(producer, scope, group, partition)
        return Ownership(group, producer, scope, state.next_offset, restored, state.counts())

    def _write_fence(
        self, producer: Producer, scope: bytes, group: GroupMetadata, partition: Partition
    ) -> None:
        owner = Fence(group.incarnation, group.generation_id, group.member_id)
        with producer.transaction():
            key, value = state_records.fence(scope, owner)
            producer.send(self._topic, value, key, partition[1])

    def _transactional_id(self, group: GroupMetadata, partition: Partition) -> str:
        return f"{self._topic}.{group.group_id}.{named(partition)}"

    def _reader(self) -> StateReader:
        if self._opened is None:
            self._opened = reader_of(address_of(self._address), options_of(self._settings), self._topic)
        return self._opened

    def _release(self, partition: Partition) -> None:
        """Close the producer of a partition; its open transaction is aborted."""
        self._owned.pop(partition).producer.close()

    def close(self) -> None:
        """Give up all partitions, and close the connections."""
        for partition in list(self._owned):
            self._release(partition)
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        self.close()


def is_fenced(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, says that another producer has the transactional id by now."""
    while error is not None and not isinstance(error, FENCED):
        error = error.__cause__
    return error is not None
