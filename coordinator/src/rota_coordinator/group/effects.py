"""What a decision asks of the shell: the order of the three is part of their meaning."""

from dataclasses import dataclass, field
from typing import NewType

from google.protobuf.message import Message

from rota_proto.coordinator.v1.coordinator_pb2 import RebalanceNotice
from rota_proto.coordinator.v1.records_pb2 import Record

# One open request. Given by the shell with the request; the core gives it back with the answer.
Call = NewType("Call", int)


@dataclass(slots=True)
class Effects:
    """
    Make `records` durable first. Then answer, and abort what will never be answered, and push the notices.

    No later answer of the same slot may overtake records that are still being written: it could show a state
    that a crash takes back.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Call, Message]] = field(default_factory=list)
    # Calls whose place a newer call of the same member took, or whose member is gone.
    superseded: list[Call] = field(default_factory=list)
    notices: list[RebalanceNotice] = field(default_factory=list)
