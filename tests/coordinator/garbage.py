"""
Requests with anything in them, from a seed: by the contract's own fields, so that a new field is tried with its first use.

What a request may say is drawn from values at the edges: empty, too long, negative, largest, unknown; and bytes of a
request are broken, cut off, or were none of one.
"""

import random
from collections import deque
from collections.abc import Sequence
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import TOPIC, assignment, subscription

MEGABYTE = 1_000_000
TEXTS = (
    "",
    "m",
    "consumer",
    "range",
    TOPIC,
    "\0",
    "\n\r\t\x1b[31m",
    "é" * 300,
    "\U0001f980" * 9,
    "x" * 5_000,
)
BLOBS = (b"", b"\xff", b"\0" * 9, b"\0\0\x7f\xff\xff\xff", b"\0" * 16, subscription(), assignment(0, 1))
INT32 = (-(2**31), -2, -1, 0, 1, 5, 300, 10_000, 2**31 - 1)
INT64 = (-(2**63), -1, 0, 1, 2**31, 2**63 - 1)
ENUMS = (-1, 0, 1, 7, 2**31 - 1)
ELEMENTS_MAX = 3
MEMBERS_KEPT = 20
# The share of values that are drawn from the edges.
EDGES = 0.1
# So many requests to one that carries a text of a megabyte.
PER_MEGABYTE = 8_000


def fields_of(message: Message) -> Sequence[FieldDescriptor]:
    """The fields of a message, set or not."""
    return cast("Sequence[FieldDescriptor]", message.DESCRIPTOR.fields)


def kind_of(field: FieldDescriptor) -> type[Message]:
    """Return the message type of a field, if it has one."""
    return GetMessageClass(cast("Descriptor", field.message_type))


class Garbage:
    """All that one seed gives."""

    def __init__(self, seed: int, groups: Sequence[str]) -> None:
        self.chance = random.Random(seed)
        self._groups = groups
        self._members = deque(["", "m"], MEMBERS_KEPT)

    def learn(self, member_id: str) -> None:
        """There is such a member; now and then there is none that is meant."""
        self._members.extend((member_id, ""))

    def message(self, kind: type[Message]) -> Message:
        """A message with some of its fields set."""
        made = kind()
        for field in fields_of(made):
            if self.chance.random() < 0.8:
                self._set(made, field)
        if self.chance.randrange(PER_MEGABYTE) == 0:
            self._set_megabyte(made)
        return made

    def frame(self, request_id: int) -> bytes:
        """A frame with a request of any kind."""
        frame = pb.SessionRequest(request_id=request_id)
        field = self.chance.choice(FRAMES)
        getattr(frame, field.name).CopyFrom(self.message(kind_of(field)))
        return frame.SerializeToString()

    def broken(self, whole: bytes, keep: int = 0) -> bytes:
        """Bytes that were a message; the first ones are kept."""
        data = bytearray(whole)
        match self.chance.randrange(4):
            case 0:
                del data[max(self.chance.randrange(len(data) + 1), keep) :]
            case 1:
                data += self.chance.randbytes(self.chance.randrange(1, 40))
            case 2:
                data[keep:] = self.chance.randbytes(self.chance.randrange(1, 200))
            case _:
                for _ in range(self.chance.randrange(1, 8)):
                    if len(data) > keep:
                        data[self.chance.randrange(keep, len(data))] = self.chance.randrange(256)
        return bytes(data)

    def _set(self, message: Message, field: FieldDescriptor) -> None:
        if not field.is_repeated:
            if field.message_type is not None:
                getattr(message, field.name).CopyFrom(self.message(kind_of(field)))
            else:
                setattr(message, field.name, self._value(field))
            return
        for _ in range(self.chance.randrange(ELEMENTS_MAX + 1)):
            if field.message_type is not None:
                getattr(message, field.name).append(self.message(kind_of(field)))
            else:
                getattr(message, field.name).append(self._value(field))

    def _value(self, field: FieldDescriptor) -> object:
        if field.name in ("group_id", "group_ids"):
            return self.chance.choice(self._groups)
        if self.chance.random() < EDGES:
            return self.chance.choice(VALUES[field.type])
        if field.name == "member_id":
            return self.chance.choice(self._members)
        return self.chance.choice(USUAL_BY_NAME.get(field.name, USUAL[field.type]))

    def _set_megabyte(self, message: Message) -> None:
        texts = [field for field in fields_of(message) if field.type == FieldDescriptor.TYPE_STRING]
        if texts:
            field = self.chance.choice(texts)
            value = "x" * MEGABYTE
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


VALUES: dict[int, Sequence[object]] = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: BLOBS,
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_ENUM: ENUMS,
}
# What a client may well say; edges alone would mostly be refused before anything else is looked at.
USUAL: dict[int, Sequence[object]] = {
    **VALUES,
    FieldDescriptor.TYPE_STRING: ("", "consumer", "range", TOPIC),
    FieldDescriptor.TYPE_BYTES: (b"", b"\0" * 16, subscription(), assignment(0, 1)),
    FieldDescriptor.TYPE_INT32: (0, 1, 2, 3, 300),
    FieldDescriptor.TYPE_INT64: (0, 1, 2**31),
}
USUAL_BY_NAME: dict[str, Sequence[object]] = {
    "session_timeout_ms": (500, 10_000),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "name": ("range", TOPIC),
    "topic_id": (b"", b"\0" * 16),
}
FRAMES = [field for field in fields_of(pb.SessionRequest()) if field.message_type is not None]
