"""Two owners meet in the middle of their work: whatever comes first, each record counts once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota.metadata import GroupMetadata
from rota.stores import Dialect, SqlStore, StoreError, StoreFenced, Tenure
from tests.sdk.databases import GROUP, P0, P1, REPORTING_KINDS, SQLITE_KINDS, Database, Owner, member, sqlite

WITHIN_S = 60
WAITING = (
    "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def wait_for(database: Database, question: str) -> None:
    """Ask until the answer is 1."""
    for _ in range(10_000):
        if database.ask(question) == [(1,)]:
            return
    raise AssertionError(f"never so: {question}")


@pytest.mark.process
def test_an_owner_that_thinks_in_its_batch_does_not_hold_up_its_successor(on_postgres: Database) -> None:
    stopped, successor = on_postgres.owner(), on_postgres.owner()
    late = stopped.store.assign(member(1), [P0])

    def come_late() -> None:
        with stopped.store.transaction(late) as tx:
            stopped.do(on_postgres.put("late", 1))
            tx.save({P0: 10})
            # Here it is stopped, for as long as all of this takes.
            tenure = successor.store.assign(member(2), [P0])
            assert tenure.positions == {P0: None}
            successor.batch(tenure, {P0: 5}, on_postgres.put("a", 1))

    with pytest.raises(StoreFenced):
        come_late()

    assert (on_postgres.results, on_postgres.offsets) == ({"a": 1}, {P0: 5})


class Pausing:
    """A connection that waits behind a statement, with all locks held that it has by then."""

    def __init__(self, connection: "psycopg.Connection[Any]", behind: str) -> None:
        self._connection = connection
        self._cursor: psycopg.Cursor[Any] | None = None
        self._behind = behind
        self.arrived = threading.Event()
        self.go_on = threading.Event()

    def cursor(self) -> "Pausing":
        self._cursor = self._connection.cursor()
        return self

    def execute(self, sql: str, values: dict[str, Any] | None = None) -> None:
        assert self._cursor is not None
        self._cursor.execute(sql.encode(), values)
        self._pass(sql)

    def fetchall(self) -> list[Any]:
        assert self._cursor is not None
        return self._cursor.fetchall()

    def close(self) -> None:
        assert self._cursor is not None
        self._cursor.close()

    def commit(self) -> None:
        self._pass("COMMIT")
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def _pass(self, point: str) -> None:
        if point.startswith(self._behind):
            self.arrived.set()
            assert self.go_on.wait(WITHIN_S)


@pytest.mark.process
@pytest.mark.parametrize("behind", ["SELECT topic, partition", "INSERT INTO t", "COMMIT"])
def test_an_owner_stopped_behind_its_check_commits_before_its_successor_reads(
    on_postgres: Database, behind: str
) -> None:
    before = on_postgres.owner()
    tenure = before.store.assign(member(1), [P0])
    pausing = Pausing(before.connection, behind)
    store = SqlStore(pausing, prefix=on_postgres.prefix, dialect=Dialect.POSTGRESQL, paramstyle="pyformat")
    successor = on_postgres.owner()

    with ThreadPoolExecutor(2) as pool:
        batch = pool.submit(Owner(pausing, store).batch, tenure, {P0: 10})
        assert pausing.arrived.wait(WITHIN_S)
        assigned = pool.submit(successor.store.assign, member(2), [P0])
        wait_for(on_postgres, WAITING)
        assert not assigned.done()
        pausing.go_on.set()
        batch.result(WITHIN_S)
        assert assigned.result(WITHIN_S).positions == {P0: 10}

    assert on_postgres.offsets == {P0: 10}


@pytest.mark.process
@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
def test_a_late_owner_is_fenced_at_every_isolation_level(
    on_postgres: Database, level: psycopg.IsolationLevel
) -> None:
    stopped = on_postgres.owner()
    stopped.connection.isolation_level = level
    late = stopped.store.assign(member(1), [P0])

    def come_late() -> None:
        with stopped.store.transaction(late) as tx:
            stopped.do(on_postgres.put("late", 1))
            on_postgres.owner().store.assign(member(2), [P0])
            tx.save({P0: 10})

    with pytest.raises(StoreFenced):
        come_late()

    assert on_postgres.results == {}


@pytest.mark.process
def test_what_a_stopped_owner_has_written_is_not_locked_for_ever(on_postgres: Database) -> None:
    stopped = on_postgres.owner(idle_timeout_ms=200)
    late = stopped.store.assign(member(1), [P0])
    successor = on_postgres.owner()

    def come_late() -> None:
        with stopped.store.transaction(late) as tx:
            stopped.do(on_postgres.put("a", 1))
            tx.save({P0: 10})
            tenure = successor.store.assign(member(2), [P0])
            # The same row: this waits until the database has ended the stopped one.
            successor.batch(tenure, {P0: 5}, on_postgres.put("a", 2))

    with pytest.raises(StoreError) as lost:
        come_late()

    assert "idle-in-transaction timeout" in str(lost.value.__cause__)
    assert (on_postgres.results, on_postgres.offsets) == ({"a": 2}, {P0: 5})


@pytest.mark.process
def test_tables_can_be_created_by_everybody_at_once(on_postgres: Database) -> None:
    owners = [on_postgres.owner() for _ in range(6)]
    stores = [SqlStore(owner.connection, prefix=on_postgres.prefix + "more_") for owner in owners]
    together = threading.Barrier(len(stores), timeout=WITHIN_S)

    def create(store: SqlStore) -> None:
        together.wait()
        store.create_tables()

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(create, stores))

    assert stores[0].stored_offsets(GROUP) == {}


@pytest.mark.process
def test_owners_with_the_same_partitions_never_wait_for_each_other_for_ever(on_postgres: Database) -> None:
    partitions = [("orders", number) for number in range(150)]
    owners = [on_postgres.owner() for _ in range(4)]

    def fight(number: int) -> int:
        won = 0
        order = partitions if number % 2 else partitions[::-1]
        for generation in range(1, 9):
            try:
                tenure = owners[number].store.assign(member(generation, name=f"m{number}"), order)
                owners[number].batch(tenure, dict.fromkeys(order, generation))
                won += 1
            except StoreError:
                continue
        return won

    with ThreadPoolExecutor(len(owners)) as pool:
        assert sum(pool.map(fight, range(len(owners)))) >= 1

    assert len(set(on_postgres.offsets.values())) == 1


@pytest.mark.parametrize("kind", SQLITE_KINDS)
def test_on_sqlite_one_batch_holds_the_file_from_its_beginning(tmp_path: Path, kind: str) -> None:
    # Without patience, and through the same library: locks belong to the process.
    impatient = sqlite(tmp_path, "apsw" if kind == "apsw" else "sqlite3-impatient")
    first = sqlite(tmp_path, kind)
    owner, second = first.prepare(), impatient.owner()
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx:
        with pytest.raises(Exception, match="database is locked"):
            second.store.assign(member(2), [P0])
        assert second.store.stored_offsets(GROUP) == {}  # who only looks on is not kept waiting
        tx.save({P0: 10})

    assert second.store.assign(member(2), [P0]).positions == {P0: 10}
    first.close()
    impatient.close()


@pytest.mark.parametrize("application", REPORTING_KINDS, indirect=True)
def test_a_transaction_that_is_open_already_is_left_alone(application: Database) -> None:
    owner = application.owner()
    tenure = owner.store.assign(member(1), [P0])
    if application.settings or not hasattr(owner.connection, "execute"):
        owner.do("BEGIN")
    else:
        owner.connection.execute(
            "SELECT 1"
            if application.dialect is Dialect.POSTGRESQL and not owner.connection.autocommit
            else "BEGIN"
        )
    owner.do(application.put("mine", 1))

    def both(*ways: Callable[[], object]) -> None:
        for way in ways:
            with pytest.raises(StoreError, match="is already open on this connection"):
                way()

    both(
        lambda: owner.batch(tenure, {P0: 10}),
        lambda: owner.store.assign(member(2), [P1]),
        owner.store.prune_keys,
    )
    owner.do("COMMIT")

    assert application.results == {"mine": 1}


def test_a_transaction_that_the_driver_does_not_report_is_kept_with_the_batch(tmp_path: Path) -> None:
    database = sqlite(tmp_path, "sqlite3-always")
    database.prepare()
    owner = database.owner()
    tenure = owner.store.assign(member(1), [P0])
    owner.do(database.put("mine", 1))
    owner.batch(tenure, {P0: 10}, database.put("a", 2))

    assert database.results == {"mine": 1, "a": 2}
    database.close()


class Fight:
    """Owners who take the partition from each other at any moment, and add up what its records hold."""

    OWNERS = 3
    RECORDS = 120
    STEP = 5

    def __init__(self, database: Database) -> None:
        self.database = database
        self._lock = threading.Lock()
        self._generation = 0
        # Behind their first assignment all but one of them are late.
        self._together = threading.Barrier(self.OWNERS, timeout=WITHIN_S)
        self.fenced = 0
        database.ask(database.put("total", 0))

    def next_generation(self) -> GroupMetadata:
        with self._lock:
            self._generation += 1
            return member(self._generation)

    def own(self, owner: Owner) -> None:
        """Assign, do some batches, whether they are refused or not, and assign again, until all is done."""
        tenure = self.assign(owner)
        self._together.wait()
        while tenure is None or (tenure.positions[P0] or 0) < self.RECORDS:
            try:
                for _ in range(3):
                    self.do_batch(owner, tenure)
            except StoreFenced:
                self.count_fenced()
            tenure = self.assign(owner)

    def assign(self, owner: Owner) -> Tenure | None:
        """None for who is late even for that."""
        try:
            return owner.store.assign(self.next_generation(), [P0])
        except StoreFenced:
            self.count_fenced()
            return None

    def count_fenced(self) -> None:
        with self._lock:
            self.fenced += 1

    def do_batch(self, owner: Owner, tenure: Tenure | None) -> None:
        start = self.RECORDS if tenure is None else tenure.positions[P0] or 0
        if tenure is None or start >= self.RECORDS:
            return
        added = sum(value_at(offset) for offset in range(start, start + self.STEP))
        owner.batch(
            tenure,
            {P0: start + self.STEP},
            f"UPDATE {self.database.prefix}results SET value = value + {added} WHERE name = 'total'",
        )


def value_at(offset: int) -> int:
    """Content of the record."""
    return offset * offset % 97


def fight(database: Database) -> None:
    """Three owners; each record must count once."""
    fight = Fight(database)
    owners = [database.owner() for _ in range(Fight.OWNERS)]
    with ThreadPoolExecutor(len(owners)) as pool:
        for each in [pool.submit(fight.own, owner) for owner in owners]:
            each.result(60)
    assert database.offsets == {P0: Fight.RECORDS}
    assert database.results == {"total": sum(value_at(offset) for offset in range(Fight.RECORDS))}
    assert fight.fenced >= Fight.OWNERS - 1


@pytest.mark.process
def test_each_record_counts_once_however_owners_fight(on_postgres: Database) -> None:
    fight(on_postgres)


def test_each_record_counts_once_however_owners_of_a_file_fight(tmp_path: Path) -> None:
    database = sqlite(tmp_path, "sqlite3-autocommit")
    database.prepare()
    fight(database)
    database.close()
