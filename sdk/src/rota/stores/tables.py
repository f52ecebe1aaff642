"""
Tables in the application's database, and the differences between its two SQL dialects.

All other SQL of this package is valid in PostgreSQL (from 9.6) and SQLite (from 3.35).
"""

import enum
import re
from dataclasses import dataclass

from rota.stores.errors import StoreError

PREFIX = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")
# Advisory lock: an arbitrary number, the same in all processes that create these tables.
CREATION_LOCK = 7_064_001


class Dialect(enum.Enum):
    """Supported databases."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


@dataclass(frozen=True, slots=True)
class Tables:
    """Names of the tables in one database."""

    dialect: Dialect
    prefix: str

    def __post_init__(self) -> None:
        if not PREFIX.fullmatch(self.prefix):
            raise StoreError(
                f"{self.prefix!r} is not a valid prefix of table names: use letters, digits and underscores, and at most "
                "one dot after the schema"
            )

    @property
    def offsets(self) -> str:
        return f"{self.prefix}offsets"

    @property
    def keys(self) -> str:
        return f"{self.prefix}keys"

    @property
    def snapshots(self) -> str:
        return f"{self.prefix}snapshots"

    @property
    def now_ms(self) -> str:
        """SQL of the database's clock in ms: the clocks of the owners may differ from each other."""
        if self.dialect is Dialect.SQLITE:
            return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
        return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"

    @property
    def for_update(self) -> str:
        """SQL of row locks. SQLite has none: a writer locks the whole file from the beginning."""
        return "" if self.dialect is Dialect.SQLITE else " FOR UPDATE"

    def creation(self) -> list[str]:
        """Return the statements that create missing tables."""
        blob = "BLOB" if self.dialect is Dialect.SQLITE else "BYTEA"
        # Of two concurrent CREATE TABLE IF NOT EXISTS, PostgreSQL lets one fail.
        alone = [f"SELECT pg_advisory_xact_lock({CREATION_LOCK})"]
        offsets = (
            "group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "
            "next_offset BIGINT, metadata TEXT NOT NULL, "
            "incarnation BIGINT NOT NULL, generation BIGINT NOT NULL, member_id TEXT NOT NULL, "
            "PRIMARY KEY (group_id, topic, partition)"
        )
        snapshots = (
            "group_id TEXT NOT NULL, name TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, "
            f"sequence BIGINT NOT NULL, chunk INTEGER NOT NULL, is_full INTEGER NOT NULL, content {blob} NOT NULL, "
            "PRIMARY KEY (group_id, name, topic, partition, sequence, chunk)"
        )
        keys = "group_id TEXT NOT NULL, key TEXT NOT NULL, expires_at_ms BIGINT, PRIMARY KEY (group_id, key)"
        # An index is in its table's schema, and is named without one.
        by_expiry = f"{self.prefix.rpartition('.')[2]}keys_by_expiry"
        return [
            *(alone if self.dialect is Dialect.POSTGRESQL else ()),
            f"CREATE TABLE IF NOT EXISTS {self.offsets} ({offsets})",
            f"CREATE TABLE IF NOT EXISTS {self.snapshots} ({snapshots})",
            f"CREATE TABLE IF NOT EXISTS {self.keys} ({keys})",
            f"CREATE INDEX IF NOT EXISTS {by_expiry} ON {self.keys} (expires_at_ms)",
        ]

    def opening(self, idle_timeout_ms: int) -> list[str]:
        """Return the statements that every transaction begins with."""
        if self.dialect is Dialect.SQLITE:
            # Writes nothing, and locks the file like BEGIN IMMEDIATE: some drivers begin transactions themselves, and
            # would lock it with the first result only, when what was read before may be old.
            return [f"UPDATE {self.offsets} SET generation = generation WHERE 1 = 0"]
        return (
            [f"SET LOCAL idle_in_transaction_session_timeout = {idle_timeout_ms}"] if idle_timeout_ms else []
        )
