"""
What an application imports to consume and produce with Rota.

Names are loaded when they are first used: an application pays for what it needs, and `import rota` for nothing.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota import errors
    from rota.connection import Credentials
    from rota.log_reader import AsyncLogReader, LogReader, Records
    from rota.metadata import GroupMetadata
    from rota.offsets import OffsetAndMetadata
    from rota.producer.api import Producer
    from rota.producer.async_api import AsyncProducer
    from rota.records import OutgoingRecord, Record, RecordMetadata, TopicPartition
    from rota.topics import Topics, create_topics

__all__ = [
    "AsyncLogReader",
    "AsyncProducer",
    "Credentials",
    "GroupMetadata",
    "LogReader",
    "OffsetAndMetadata",
    "OutgoingRecord",
    "Producer",
    "Record",
    "RecordMetadata",
    "Records",
    "TopicPartition",
    "Topics",
    "create_topics",
    "errors",
]

_HOMES = {
    "AsyncLogReader": "rota.log_reader",
    "AsyncProducer": "rota.producer.async_api",
    "Credentials": "rota.connection",
    "GroupMetadata": "rota.metadata",
    "LogReader": "rota.log_reader",
    "OffsetAndMetadata": "rota.offsets",
    "OutgoingRecord": "rota.records",
    "Producer": "rota.producer.api",
    "Record": "rota.records",
    "RecordMetadata": "rota.records",
    "Records": "rota.log_reader",
    "TopicPartition": "rota.records",
    "Topics": "rota.topics",
    "create_topics": "rota.topics",
}


def __getattr__(name: str) -> object:
    if name in ("errors", "stores"):
        return importlib.import_module(f"rota.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
