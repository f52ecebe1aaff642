"""
Serializers and deserializers for producers and consumers.

    producer = rota.Producer(…, value_serializer=JSON.serialize, key_serializer=STRING.serialize)
    consumer = rota.Consumer(…, value_deserializer=JSON.deserialize, key_deserializer=STRING.deserialize)

Any functions of (topic, object) and (topic, bytes) are accepted; `Serde` holds such a pair. None stays None in both
directions, so that a tombstone (a record without a value) stays one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

INTEGER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Serde:
    """
    A pair of functions, one the inverse of the other.

    >>> UPPER = Serde(lambda text: text.upper().encode(), lambda data: data.decode().lower())
    >>> UPPER.deserialize("orders", UPPER.serialize("orders", "a"))
    'a'
    """

    to_bytes: Callable[[Any], bytes]
    of_bytes: Callable[[bytes], Any]

    def serialize(self, topic: str, given: object) -> bytes | None:
        """Serialize an object; pass it as `key_serializer` or `value_serializer`."""
        return None if given is None else self.to_bytes(given)

    def deserialize(self, topic: str, data: bytes | None) -> Any:  # noqa: ANN401  whatever it makes
        """Deserialize bytes; pass it as `key_deserializer` or `value_deserializer`."""
        return None if data is None else self.of_bytes(data)


def _json(given: object) -> bytes:
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def _integer(given: int) -> bytes:
    return given.to_bytes(INTEGER_BYTES, "big", signed=True)


def _of_integer(data: bytes) -> int:
    if len(data) != INTEGER_BYTES:
        raise ValueError(f"an integer has {INTEGER_BYTES} bytes, got {len(data)}")
    return int.from_bytes(data, "big", signed=True)


JSON = Serde(_json, json.loads)
"""JSON in UTF-8, without spaces."""
STRING = Serde(str.encode, bytes.decode)
"""Text as UTF-8."""
INTEGER = Serde(_integer, _of_integer)
"""64-bit big-endian integer, as of Kafka's LongSerializer."""
