"""
Results and offsets in one transaction of the application's own database: exactly-once processing under crashes and
late members.

`SqlStore` is the public class; `AsyncSqlStore` is the same over psycopg's asynchronous connection. `TopicStore` keeps local state and
offsets in a compacted topic instead. See docs/guide/stores.md.
"""

from rota.stores.asynchronous import AsyncSqlStore, AsyncTransaction
from rota.stores.batch import Tenure
from rota.stores.errors import (
    NotAssigned,
    OffsetWentBack,
    OwnerReplaced,
    Partition,
    PositionMoved,
    StateUnreadable,
    StoreError,
    StoreFenced,
    TransactionLost,
)
from rota.stores.snapshots import Snapshots
from rota.stores.store import SqlStore, Transaction
from rota.stores.tables import Dialect
from rota.stores.topic_store import TopicStore, TopicTransaction

__all__ = [
    "AsyncSqlStore",
    "AsyncTransaction",
    "Dialect",
    "NotAssigned",
    "OffsetWentBack",
    "OwnerReplaced",
    "Partition",
    "PositionMoved",
    "Snapshots",
    "SqlStore",
    "StateUnreadable",
    "StoreError",
    "StoreFenced",
    "Tenure",
    "TopicStore",
    "TopicTransaction",
    "Transaction",
    "TransactionLost",
]
