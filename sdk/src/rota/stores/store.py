"""
Store of results and offsets in one transaction of the application's own database.

With offsets in the group and results in a database, a crash between the two commits processes a batch twice or never. So the
store keeps the offsets beside the results, and a fence that stops late owners.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rota.metadata import GroupMetadata
from rota.stores import flows, keys
from rota.stores.batch import Batch, Tenure, check_member
from rota.stores.connections import connected, run
from rota.stores.errors import Partition, StoreError, StoreFenced, TransactionLost
from rota.stores.flows import SAVEPOINT, Flow, Statement, each
from rota.stores.snapshots import Snapshots
from rota.stores.tables import Dialect, Tables

if TYPE_CHECKING:
    from rota.consumer.api import Consumer
    from rota.stores.listener import StoreListener

T = TypeVar("T")
# Maximum idle time of a batch between two statements: as long as a record may be in flight.
IDLE_TIMEOUT_MS = 120_000


class Transaction(Batch):
    """The open transaction of a batch. The application writes its results through its own connection."""

    def __init__(self, store: "SqlStore", tenure: Tenure) -> None:
        super().__init__(store.tables, tenure)
        self._store = store

    def set_if_absent(self, key: str, *, expires_in_seconds: float | None = None) -> bool:
        """Claim a key for this group; return whether it was free. It is free again if the transaction is not committed."""
        return bool(self.set_each_if_absent([key], expires_in_seconds=expires_in_seconds))

    def set_each_if_absent(
        self, wanted: Iterable[str], *, expires_in_seconds: float | None = None
    ) -> set[str]:
        """Claim many keys at once; return those that were free."""
        self.check_open()
        self._store.check_same_transaction(self.group_id)
        return self._store.run(keys.claim(self.tables, self.group_id, wanted, expires_in_seconds))


class SqlStore:
    """
    Offsets, de-duplication and snapshots in the database behind one connection.

    It holds nothing but the connection: after an error of the connection, connect again and make another one. Like the
    connection it belongs to one thread at a time. ::

        store = SqlStore(psycopg.connect(dsn))
        store.create_tables()
        tenure = store.assign(consumer.group_metadata(), [("orders", 0)])
        for batch in batches_from(tenure.positions):
            with store.transaction(tenure) as tx:
                connection.execute("INSERT INTO results …")
                tx.save({("orders", 0): batch.next_offset})

    `prefix` begins the names of the tables; on PostgreSQL it may name a schema. `idle_timeout_ms` is how long
    PostgreSQL lets a batch do nothing before it ends it: what an owner that is stopped in the middle of a batch has
    written stays locked as long; 0 leaves the setting alone. `dialect` and `paramstyle` are for drivers that the store
    does not know.
    """

    def __init__(
        self,
        connection: object,
        *,
        prefix: str = "rota_",
        idle_timeout_ms: int = IDLE_TIMEOUT_MS,
        dialect: Dialect | None = None,
        paramstyle: str | None = None,
    ) -> None:
        self._connection = connected(connection, dialect, paramstyle)
        self.tables = Tables(self._connection.dialect, prefix)
        self._opening = self.tables.opening(idle_timeout_ms)
        self._current: Transaction | None = None

    def create_tables(self) -> None:
        """Create the tables that are missing; any number of processes may do so at once."""
        self._in_transaction(each(self.tables.creation()))

    def assign(self, group: GroupMetadata, partitions: Iterable[Partition]) -> Tenure:
        """
        Raise the fence for partitions that this member received, and read their positions; in this order.

        In the other order a late owner could commit between the two, and its records would be processed twice. Call it in every
        generation, for all partitions of the member. Raises `StoreFenced` if a newer owner has raised the fence already.
        """
        check_member(group)
        wanted = [(topic, index) for topic, index in partitions]
        return Tenure(
            group, self._in_transaction(flows.raise_fence(self.tables, group, wanted), self._opening)
        )

    def listener(self, consumer: "Consumer") -> "StoreListener":
        """Create the listener for `consumer.subscribe(…, listener=…)`: it fences assigned partitions and seeks to their stored positions."""
        from rota.stores.listener import StoreListener

        return StoreListener(self, consumer)

    @contextmanager
    def transaction(self, tenure: Tenure) -> Iterator[Transaction]:
        """
        Open a block whose results and offsets are committed together, or not at all.

        When the block ends, the store locks and checks the fence, and raises `StoreFenced` if a newer tenure owns a partition.
        `StoreFenced` takes precedence over an error that ended the block; that error is its cause.
        """
        if self._current is not None:
            raise StoreError(
                f"a transaction of group {self._current.group_id} is open on this connection: leave its block first"
            )
        self._connection.begin()
        batch = self._current = Transaction(self, tenure)
        try:
            self.run(each(self._opening))
            self._execute_sql(f"SAVEPOINT {SAVEPOINT}")
            yield batch
            self._check_savepoint(batch.group_id)
            self.run(batch.save_offsets())
            self._connection.commit()
        except BaseException as error:
            self._rollback(error)
            self._check_owner(batch, error)
            raise
        finally:
            batch.is_open = False
            self._current = None
        batch.on_committed()

    def restore(self, snapshots: Snapshots, tenure: Tenure, partition: Partition) -> dict[bytes, bytes]:
        """Restore the state of a partition as of its last transaction. Assign first: then no other member adds to it."""
        return self._in_transaction(snapshots.restored(self.tables, tenure, partition), self._opening)

    def stored_offsets(self, group_id: str) -> dict[Partition, int]:
        """Return the stored offsets of a group, for monitoring: on SQLite it waits for no batch."""
        return self._in_transaction(flows.stored_offsets(self.tables, group_id), read_only=True)

    def prune_keys(self, limit: int = 10_000) -> int:
        """Delete expired keys, at most `limit`; return their number. Call it until it returns less than `limit`."""
        return self._in_transaction(keys.prune(self.tables, limit), self._opening)

    def run(self, flow: Flow[T]) -> T:
        """Perform a flow in the open transaction."""
        return run(self._connection, flow)

    def check_same_transaction(self, group_id: str) -> None:
        """Raise TransactionLost unless the block's own transaction is still open."""
        self._check_savepoint(group_id)
        self._execute_sql(f"SAVEPOINT {SAVEPOINT}")

    def _check_savepoint(self, group_id: str) -> None:
        # A failed statement whose error was caught leaves PostgreSQL with a transaction of which COMMIT keeps nothing,
        # without a word; SQLite may have rolled it back, and each statement counts alone from then on. In both the
        # savepoint is gone, or cannot be spoken of.
        try:
            self._execute_sql(f"RELEASE SAVEPOINT {SAVEPOINT}")
        except Exception as error:
            raise TransactionLost(group_id) from error

    def _in_transaction(self, flow: Flow[T], opening: Iterable[str] = (), *, read_only: bool = False) -> T:
        """Perform a flow as a transaction of its own."""
        self._connection.begin(read_only=read_only)
        try:
            self.run(each(opening))
            result = self.run(flow)
            self._connection.commit()
        except BaseException as error:
            self._rollback(error)
            raise
        return result

    def _rollback(self, error: BaseException) -> None:
        try:
            self._connection.rollback()
        except Exception as second:  # noqa: BLE001 - the first error is what happened; a lost connection rolls back
            error.add_note(f"the rollback failed too: {second}")

    def _check_owner(self, batch: Batch, error: BaseException) -> None:
        """Raise `StoreFenced` if a newer owner exists, whatever error the batch failed with."""
        if isinstance(error, StoreFenced) or not isinstance(error, Exception):
            return
        try:
            self._in_transaction(batch.check_owner(), self._opening)
        except StoreFenced as late:
            raise late from error
        except Exception as second:  # noqa: BLE001 - it is the first error that is raised
            error.add_note(f"the owner of the partitions could not be read: {second}")

    def _execute_sql(self, sql: str) -> None:
        self._connection.execute(Statement(sql))
