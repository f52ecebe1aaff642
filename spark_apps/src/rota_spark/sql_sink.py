"""
Results and offsets in one transaction of a SQL database: exactly once, on SQLite and PostgreSQL.

Executors insert the results of a batch into a staging table. One transaction of the driver merges them into the user's tables,
deletes them there, and stores the batch's end offsets, fenced by (incarnation, generation). The store is the truth: on assignment
the member's positions are set to the stored ones, and the group's offsets follow for its lag.
"""

import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from typing_extensions import override

from rota import GroupMetadata
from rota.clocks import system_clocks
from rota.stores import Dialect, NotAssigned, PositionMoved, SqlStore, StoreError, StoreFenced, Tenure
from rota.stores.connections import connected
from rota.stores.flows import Statement
from rota.stores.tables import CREATION_LOCK
from rota_spark.core.plan import Partition, ends
from rota_spark.membership import Batch, Member
from rota_spark.query import Sink
from rota_spark.sidecar_calls import NotCommitted

log = logging.getLogger("rota.spark")
# Returns a connection of a DB-API driver that `rota.stores` knows; called in the driver and in each task.
Connect = Callable[[], Any]
NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")
STAGED = "{staged}"
# Values of one statement: older SQLite takes 999.
VALUES_MAX = 900
# Age at which rows that a killed driver has left in the staging table are deleted.
LEFT_BEHIND_MS = 86_400_000


class SinkFailed(Exception):
    """The sink cannot store a batch; the message has the remedy."""


class CutOff(SinkFailed):
    """The database has closed the connection in mid-batch, such as that of a driver that slept in its transaction."""


class SqlSink(Sink):
    """
    The sink of a database.

    >>> SqlSink(                                                                          # doctest: +SKIP
    ...     connect,
    ...     lambda records: records.groupBy("key").count(),
    ...     {"key": "BYTEA", "count": "BIGINT"},
    ...     "INSERT INTO totals AS t SELECT key, count FROM {staged} "
    ...     "ON CONFLICT (key) DO UPDATE SET count = t.count + excluded.count",
    ... )

    `results` computes rows of a batch's records, `columns` are their columns with SQL types, `merge` the statements that merge
    `{staged}`, the batch's rows, into the user's tables. `connect` is pickled to the executors: let it read passwords from a
    file or a variable there. `prefix` begins the names of `rota.stores`' tables and of the staging table.
    """

    def __init__(
        self,
        connect: Connect,
        results: Callable[[DataFrame], DataFrame],
        columns: Mapping[str, str],
        merge: str | Sequence[str],
        *,
        prefix: str = "rota_",
    ) -> None:
        self._connect = connect
        self._results = results
        self._columns = dict(columns)
        self._merge = [merge] if isinstance(merge, str) else list(merge)
        self._prefix = prefix
        self._staging = f"{prefix}staging_{'_'.join(sorted(self._columns))}"[:60]
        # The fence that this member raised last.
        self._tenure: Tenure | None = None
        self._is_prepared = False
        # The database closed the connection of the batch before.
        self._was_cut_off = False
        for name in (*self._columns, self._staging):
            if not NAME.fullmatch(name):
                raise SinkFailed(f"{name!r} is not a valid SQL name: use letters, digits and underscores")
        if not any(STAGED in each for each in self._merge):
            raise SinkFailed(f"no statement of merge reads {STAGED}: select the batch's rows from it")

    @override
    def assigned(self, partitions: Collection[Partition], group: GroupMetadata, member: Member) -> None:
        with closing(self._connect()) as connection:
            store = self._store(connection)
            try:
                tenure = store.assign(group, partitions)
            except StoreFenced as late:
                # The partitions are another member's by now, and their LOST or REVOKING comes next.
                log.warning("%s", late)
                return
        stored = {each: at for each, at in tenure.positions.items() if at is not None}
        if stored:
            _seek(member, stored)

    @override
    def write(self, records: DataFrame, batch: Batch, member: Member) -> bool:
        with closing(self._connect()) as connection:
            store = self._store(connection)
            try:
                tenure = self._fenced(store, batch, member)
                return tenure is not None and self._stored(records, batch, store, connection, tenure)
            except (StoreFenced, NotAssigned, PositionMoved) as late:
                log.warning("the batch is abandoned: %s", late)
            except CutOff as cut:
                if self._was_cut_off:
                    raise
                self._was_cut_off = True
                log.warning("the batch is abandoned, and the next one begins where the store is: %s", cut)
            self._tenure = None
            return False

    def _store(self, connection: object) -> SqlStore:
        store = SqlStore(connection, prefix=self._prefix)
        if not self._is_prepared:
            store.create_tables()
            is_postgresql = store.tables.dialect is Dialect.POSTGRESQL
            columns = ", ".join(f"{name} {kind}" for name, kind in self._columns.items())
            before_ms = system_clocks().wall_ms() - LEFT_BEHIND_MS
            _transaction(
                connection,
                [
                    # Of two concurrent CREATE TABLE IF NOT EXISTS, PostgreSQL lets one fail.
                    *([Statement(f"SELECT pg_advisory_xact_lock({CREATION_LOCK})")] if is_postgresql else ()),
                    Statement(
                        f"CREATE TABLE IF NOT EXISTS {self._staging} "
                        f"(rota_batch TEXT NOT NULL, rota_attempt BIGINT NOT NULL, rota_staged_ms BIGINT NOT NULL, {columns})"
                    ),
                    Statement(f"DELETE FROM {self._staging} WHERE rota_staged_ms < ?", (before_ms,)),
                ],
            )
            self._is_prepared = True
        return store

    def _fenced(self, store: SqlStore, batch: Batch, member: Member) -> Tenure | None:
        """
        Return the fence for a batch; None if the store is elsewhere, or a partition is not this member's.

        Only partitions that the sidecar names in a generation are fenced with that generation: a driver that slept would else
        raise the fence of its successor.
        """
        wanted = {each.of for each in batch.ranges}
        owned, tenure = member.calls.assignment()
        if not wanted <= owned:
            return None
        group = member.group(tenure)
        known = self._tenure
        if known is None or known.group != group or not wanted <= known.positions.keys():
            known = self._tenure = store.assign(group, owned)
        stored = {each: at for each, at in known.positions.items() if at is not None and each in wanted}
        # A partition without a stored position begins where the group is.
        if any(stored.get(each.of, each.start) != each.start for each in batch.ranges):
            log.warning("the batch is abandoned: the store is at %s, where the next one begins", stored)
            _seek(member, stored)
            return None
        return known

    def _stored(
        self, records: DataFrame, batch: Batch, store: SqlStore, connection: object, tenure: Tenure
    ) -> bool:
        token = uuid.uuid4().hex
        attempts = self._stage(records, token)
        rows = f"SELECT {', '.join(self._columns)} FROM {self._staging} WHERE rota_batch = '{token}'"
        # Of a task that ran twice the rows of one attempt count.
        chosen = ", ".join(str(attempt) for attempt, _ in attempts) or "NULL"
        staged = f"({rows} AND rota_attempt IN ({chosen})) AS staged"
        database = connected(connection, None, None)
        clean = Statement(f"DELETE FROM {self._staging} WHERE rota_batch = ?", (token,))
        try:
            with store.transaction(tenure) as tx:
                ((found,),) = database.execute(
                    Statement(f"SELECT count(*) FROM {staged}", (), returns_rows=True)
                )
                if found != sum(count for _, count in attempts):
                    raise SinkFailed(
                        f"the executors staged {sum(count for _, count in attempts)} rows, and the driver's database has {found} of "
                        "them: connect() must reach the same database in the driver and on every executor"
                    )
                for statement in self._merge:
                    _execute(connection, statement.replace(STAGED, staged))
                database.execute(clean)
                tx.save(ends(batch.ranges))
        except Exception as error:
            try:
                _transaction(connection, [clean])
            except Exception as second:  # noqa: BLE001 - the first error is what happened; the rows are deleted a day later
                error.add_note(f"the staged rows could not be deleted: {second}")
            if isinstance(error, StoreError | SinkFailed):
                raise
            if _is_closed(connection):
                raise CutOff(
                    f"the database has closed the connection of the batch ({_described(error)}): its log has the reason"
                ) from error
            raise SinkFailed(
                f"the database cannot store the batch ({_described(error)}): check the tables and columns that merge names, and the "
                "room of the database; nothing of the batch is stored or committed"
            ) from error
        self._was_cut_off = False
        return True

    def _stage(self, records: DataFrame, token: str) -> list[tuple[int, int]]:
        """Insert the rows on the executors; return the attempt and the number of rows of each task."""
        connect, staging, columns = self._connect, self._staging, list(self._columns)
        staged_ms = system_clocks().wall_ms()

        def stage(rows: Iterable[Row]) -> list[tuple[int, int]]:
            return [_inserted(rows, connect, staging, columns, (token, staged_ms))]

        # Not `mapInArrow`, which needs pandas.
        return self._results(records).select(*columns).rdd.mapPartitions(stage).collect()


def _seek(member: Member, stored: Mapping[Partition, int]) -> None:
    """Set the member's positions to the stored ones."""
    try:
        member.calls.seek(stored)
    except NotCommitted as late:
        # Of the partitions that are another member's by now, whose LOST or REVOKED comes next, alone.
        log.warning("%s", late)


def _inserted(
    rows: Iterable[Row],
    connect: Connect,
    staging: str,
    columns: Sequence[str],
    stamp: tuple[str, int],
) -> tuple[int, int]:
    """Insert a task's rows in one transaction; return its attempt and their number."""
    context = TaskContext.get()
    assert context is not None
    attempt, count = context.taskAttemptId(), 0
    remaining = iter(rows)
    with closing(connect()) as connection:
        database = connected(connection, None, None)
        database.begin()
        # What computes the rows fails with its own error.
        while part := list(islice(remaining, VALUES_MAX // (len(columns) + 3))):
            try:
                database.execute(_insertion(part, staging, columns, (stamp[0], attempt, stamp[1])))
            except Exception as error:
                raise SinkFailed(
                    f"rows cannot be inserted into {staging} ({_described(error)}): if the types of columns have changed, drop that "
                    "table, which has rows of batches in flight only; check the room of the database"
                ) from error
            count += len(part)
        database.commit()
    return attempt, count


def _insertion(
    rows: Sequence[Row], staging: str, columns: Sequence[str], stamp: tuple[str, int, int]
) -> Statement:
    head = f"INSERT INTO {staging} (rota_batch, rota_attempt, rota_staged_ms, {', '.join(columns)}) VALUES "
    marks = f"({', '.join('?' * (len(columns) + 3))})"
    return Statement(
        head + ", ".join([marks] * len(rows)), [value for row in rows for value in (*stamp, *row)]
    )


def _described(error: Exception) -> str:
    """Return the first line of a database's error; the others show the statement."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _is_closed(connection: object) -> bool:
    """Return whether the server has closed it, as psycopg, psycopg2 and SQLAlchemy say."""
    return bool(getattr(connection, "closed", False) or getattr(connection, "invalidated", False))


def _execute(connection: Any, sql: str) -> None:  # noqa: ANN401 - of any DB-API driver
    """Execute the user's SQL as it is: `Statement` would replace its question marks."""
    with closing(connection.cursor()) as cursor:
        cursor.execute(sql)


def _transaction(connection: object, statements: Iterable[Statement]) -> None:
    database = connected(connection, None, None)
    database.begin()
    try:
        for each in statements:
            database.execute(each)
        database.commit()
    except BaseException:
        database.rollback()
        raise
