"""
De-duplication by unique key: a key that one transaction has claimed cannot be claimed by a later one.

For duplicates that offsets do not detect, such as a producer that sent the same order twice.
"""

from collections.abc import Iterable

from rota.stores.errors import StoreError
from rota.stores.flows import ROWS_MAX, Flow, Statement
from rota.stores.tables import Tables

# With the group id it must fit into an index row of PostgreSQL.
KEY_BYTES_MAX = 1_024


def claim(
    tables: Tables, group_id: str, keys: Iterable[str], expires_in_seconds: float | None
) -> Flow[set[str]]:
    """Set the keys that are absent or expired; return those. Sorted, so that two claims never deadlock."""
    wanted = sorted(set(keys))
    for key in wanted:
        if len(key.encode()) > KEY_BYTES_MAX:
            raise StoreError(
                f"the key {key[:20]!r}… exceeds {KEY_BYTES_MAX} bytes: use a hash of it as the key"
            )
    lives_ms = None if expires_in_seconds is None else int(expires_in_seconds * 1000)
    fresh: set[str] = set()
    for start in range(0, len(wanted), ROWS_MAX):
        some = wanted[start : start + ROWS_MAX]
        rows = yield Statement(
            f"INSERT INTO {tables.keys} AS held (group_id, key, expires_at_ms) VALUES "
            + ", ".join([f"(?, ?, {tables.now_ms} + CAST(? AS BIGINT))"] * len(some))
            + " ON CONFLICT (group_id, key) DO UPDATE SET expires_at_ms = excluded.expires_at_ms "
            f"WHERE held.expires_at_ms <= {tables.now_ms} RETURNING key",
            [value for key in some for value in (group_id, key, lives_ms)],
            returns_rows=True,
        )
        fresh.update(key for (key,) in rows)
    return fresh


def prune(tables: Tables, limit: int) -> Flow[int]:
    """Delete expired keys, at most `limit`; return their number."""
    rows = yield Statement(
        f"DELETE FROM {tables.keys} WHERE (group_id, key) IN (SELECT group_id, key FROM {tables.keys} "
        f"WHERE expires_at_ms <= {tables.now_ms} ORDER BY expires_at_ms LIMIT ?) RETURNING key",
        (limit,),
        returns_rows=True,
    )
    return len(rows)
