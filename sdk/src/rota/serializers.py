"""
Serializers and deserializers for producers and consumers.

    producer = rota.Producer(…, value_serializer=JSON.serialize, key_serializer=STRING.serialize)
    consumer = rota.Consumer(…, value_deserializer=JSON.deserialize, key_deserializer=STRING.deserialize)

Any functions of (topic, object) and (topic, bytes) are accepted, and functions of the object or the bytes alone, as Kafka's
clients for Python take them: `json.loads`, `str.encode`. `Serde` holds a pair of the first kind. None stays None in both
directions, so that a tombstone (a record without a value) stays one; other functions are called with None too.
"""

import inspect
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


def with_topic(function: Callable[..., Any]) -> Callable[[str, Any], Any]:
    """
    Return a serializer or deserializer as a function of topic and object; one of the object alone is called without the topic.

    >>> with_topic(bytes.decode)("orders", b"a"), with_topic(STRING.deserialize)("orders", b"a")
    ('a', 'a')
    """
    if not _takes_one(function):
        return function

    def without_topic(topic: str, given: object) -> Any:  # noqa: ANN401  whatever it makes
        return function(given)

    return without_topic


def _takes_one(function: Callable[..., Any]) -> bool:
    """Return whether a function requires one positional argument, or takes no second one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        # Some built-in types, such as int, have no signature; each takes the object.
        return True
    kinds = [each.kind for each in parameters]
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    required = [each for each in positional if each.default is each.empty]
    takes_many = inspect.Parameter.VAR_POSITIONAL in kinds
    return len(required) == 1 or (len(positional) == 1 and not takes_many)


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
