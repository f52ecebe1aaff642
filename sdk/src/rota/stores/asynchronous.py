"""The store over psycopg's asynchronous connection: the same flows, awaited."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from rota.metadata import GroupMetadata
from rota.stores import flows, keys
from rota.stores.batch import Batch, Tenure, check_member
from rota.stores.connections import as_tuples, check_no_open_transaction, has_open_transaction, rendered
from rota.stores.errors import Partition, StoreError, StoreFenced, TransactionLost
from rota.stores.flows import SAVEPOINT, Flow, Rows, Statement, each
from rota.stores.snapshots import Snapshots
from rota.stores.store import IDLE_TIMEOUT_MS
from rota.stores.tables import Dialect, Tables

T = TypeVar("T")


class AsyncTransaction(Batch):
    """The open transaction of a batch. The application writes its results through its own connection."""

    def __init__(self, store: "AsyncSqlStore", tenure: Tenure) -> None:
        super().__init__(store.tables, tenure)
        self._store = store

    async def set_if_absent(self, key: str, *, expires_in_seconds: float | None = None) -> bool:
        """Claim a key for this group; return whether it was free. It is free again if the transaction is not committed."""
        return bool(await self.set_each_if_absent([key], expires_in_seconds=expires_in_seconds))

    async def set_each_if_absent(
        self, wanted: Iterable[str], *, expires_in_seconds: float | None = None
    ) -> set[str]:
        """Claim many keys at once; return those that were free."""
        self.check_open()
        await self._store.check_same_transaction(self.group_id)
        return await self._store.run(keys.claim(self.tables, self.group_id, wanted, expires_in_seconds))


class AsyncSqlStore:
    """`SqlStore` for `psycopg.AsyncConnection`; see there for the reasons of each step."""

    def __init__(
        self, connection: object, *, prefix: str = "rota_", idle_timeout_ms: int = IDLE_TIMEOUT_MS
    ) -> None:
        self._connection = cast("Any", connection)
        self.tables = Tables(Dialect.POSTGRESQL, prefix)
        self._opening = self.tables.opening(idle_timeout_ms)
        self._current: AsyncTransaction | None = None

    async def create_tables(self) -> None:
        """Create the tables that are missing."""
        await self._in_transaction(each(self.tables.creation()))

    async def assign(self, group: GroupMetadata, partitions: Iterable[Partition]) -> Tenure:
        """Raise the fence for these partitions, then read their positions."""
        check_member(group)
        wanted = [(topic, index) for topic, index in partitions]
        return Tenure(group, await self._in_transaction(flows.raise_fence(self.tables, group, wanted)))

    @asynccontextmanager
    async def transaction(self, tenure: Tenure) -> AsyncIterator[AsyncTransaction]:
        """Open a block whose results and offsets are committed together, or not at all."""
        if self._current is not None:
            raise StoreError(
                f"a transaction of group {self._current.group_id} is open on this connection: leave its block first"
            )
        batch = self._current = AsyncTransaction(self, tenure)
        try:
            await self._begin()
            try:
                await self.run(each([*self._opening, f"SAVEPOINT {SAVEPOINT}"]))
                yield batch
                await self._check_savepoint(batch.group_id)
                await self.run(batch.save_offsets())
                await self._commit()
            except BaseException as error:
                await self._rollback(error)
                await self._check_owner(batch, error)
                raise
        finally:
            batch.is_open = False
            self._current = None
        batch.on_committed()

    async def restore(self, snapshots: Snapshots, tenure: Tenure, partition: Partition) -> dict[bytes, bytes]:
        """Restore the state of a partition as of its last transaction."""
        return await self._in_transaction(snapshots.restored(self.tables, tenure, partition))

    async def stored_offsets(self, group_id: str) -> dict[Partition, int]:
        """Return the stored offsets of a group, for monitoring."""
        return await self._in_transaction(flows.stored_offsets(self.tables, group_id))

    async def prune_keys(self, limit: int = 10_000) -> int:
        """Delete expired keys, at most `limit`; return their number."""
        return await self._in_transaction(keys.prune(self.tables, limit))

    async def run(self, flow: Flow[T]) -> T:
        """Perform a flow in the open transaction."""
        try:
            statement = next(flow)
            while True:
                statement = flow.send(await self._execute(statement))
        except StopIteration as end:
            result: T = end.value
            return result

    async def check_same_transaction(self, group_id: str) -> None:
        """Raise TransactionLost unless the block's own transaction is still open."""
        await self._check_savepoint(group_id)
        await self._execute(Statement(f"SAVEPOINT {SAVEPOINT}"))

    async def _check_savepoint(self, group_id: str) -> None:
        try:
            await self._execute(Statement(f"RELEASE SAVEPOINT {SAVEPOINT}"))
        except Exception as error:
            raise TransactionLost(group_id) from error

    async def _execute(self, statement: Statement) -> Rows:
        cursor = await self._connection.execute(*rendered(statement, "pyformat"))
        return as_tuples(await cursor.fetchall()) if statement.returns_rows else []

    async def _in_transaction(self, flow: Flow[T]) -> T:
        await self._begin()
        try:
            await self.run(each(self._opening))
            result = await self.run(flow)
            await self._commit()
        except BaseException as error:
            await self._rollback(error)
            raise
        return result

    async def _begin(self) -> None:
        check_no_open_transaction(has_open_transaction(self._connection))
        if self._connection.autocommit:
            await self._execute(Statement("BEGIN"))

    async def _commit(self) -> None:
        # Also ends a transaction that the store began itself.
        await self._connection.commit()

    async def _rollback(self, error: BaseException) -> None:
        try:
            await self._connection.rollback()
        except Exception as second:  # noqa: BLE001 - the first error is what happened; a lost connection rolls back
            error.add_note(f"the rollback failed too: {second}")

    async def _check_owner(self, batch: Batch, error: BaseException) -> None:
        if isinstance(error, StoreFenced) or not isinstance(error, Exception):
            return
        try:
            await self._in_transaction(batch.check_owner())
        except StoreFenced as late:
            raise late from error
        except Exception as second:  # noqa: BLE001 - it is the first error that is raised
            error.add_note(f"the owner of the partitions could not be read: {second}")
