"""
Public names of the SDK: consumers, producers, handlers, topics.

Names are imported on first use, so that `import rota` is fast and an application loads only what it uses.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota import errors
    from rota.connection import Credentials
    from rota.consumer.api import Consumer
    from rota.consumer.async_api import AsyncConsumer
    from rota.consumer.listeners import AsyncRebalanceListener, ConsumerInterceptor, RebalanceListener
    from rota.consumer.metrics import MetricName
    from rota.handlers.entrypoint import run
    from rota.handlers.handler import DeadLetter, Handler, Retry, Skip, handler
    from rota.log_reader import AsyncLogReader, LogReader, Records
    from rota.metadata import GroupMetadata
    from rota.offsets import OffsetAndMetadata, OffsetAndTimestamp
    from rota.producer.api import Producer
    from rota.producer.async_api import AsyncProducer
    from rota.producer.interceptors import ProducerInterceptor
    from rota.records import OutgoingRecord, Record, RecordMetadata, TopicPartition
    from rota.topics import Topics, create_topics

__all__ = [
    "AsyncConsumer",
    "AsyncLogReader",
    "AsyncProducer",
    "AsyncRebalanceListener",
    "Consumer",
    "ConsumerInterceptor",
    "Credentials",
    "DeadLetter",
    "GroupMetadata",
    "Handler",
    "LogReader",
    "MetricName",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OutgoingRecord",
    "Producer",
    "ProducerInterceptor",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Records",
    "Retry",
    "Skip",
    "TopicPartition",
    "Topics",
    "create_topics",
    "errors",
    "handler",
    "run",
]

# Modules that are public under their own names.
MODULES = ("confluent", "errors", "serializers", "stores", "testing")
_HOMES = {
    "AsyncConsumer": "rota.consumer.async_api",
    "AsyncLogReader": "rota.log_reader",
    "AsyncProducer": "rota.producer.async_api",
    "AsyncRebalanceListener": "rota.consumer.listeners",
    "Consumer": "rota.consumer.api",
    "ConsumerInterceptor": "rota.consumer.listeners",
    "Credentials": "rota.connection",
    "DeadLetter": "rota.handlers.handler",
    "GroupMetadata": "rota.metadata",
    "Handler": "rota.handlers.handler",
    "LogReader": "rota.log_reader",
    "MetricName": "rota.consumer.metrics",
    "OffsetAndMetadata": "rota.offsets",
    "OffsetAndTimestamp": "rota.offsets",
    "OutgoingRecord": "rota.records",
    "Producer": "rota.producer.api",
    "ProducerInterceptor": "rota.producer.interceptors",
    "RebalanceListener": "rota.consumer.listeners",
    "Record": "rota.records",
    "RecordMetadata": "rota.records",
    "Records": "rota.log_reader",
    "Retry": "rota.handlers.handler",
    "Skip": "rota.handlers.handler",
    "TopicPartition": "rota.records",
    "Topics": "rota.topics",
    "create_topics": "rota.topics",
    "handler": "rota.handlers.handler",
    "run": "rota.handlers.entrypoint",
}


def __getattr__(name: str) -> object:
    if name in MODULES:
        return importlib.import_module(f"rota.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota' has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
