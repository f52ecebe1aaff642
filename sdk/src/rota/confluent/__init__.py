"""
Consumers and producers with the methods of confluent-kafka, for applications that are written for it.

    from rota.confluent import Consumer, KafkaException, Producer

An application changes this import and the servers; the calls stay. Both classes wrap those of `rota`, whose settings they take
under confluent-kafka's names. docs/guide/moving.md lists the methods, and what differs.
"""

from rota.confluent.consumer import Consumer
from rota.confluent.messages import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from rota.confluent.producer import Producer

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "TopicPartition",
]
