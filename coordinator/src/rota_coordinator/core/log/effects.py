"""Effects of a decision of the log: one atomic write that the shell performs."""

from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.core.log.batch import Row
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent


class Ending(NamedTuple):
    """The end of a transaction for a group whose offsets were part of it."""

    group_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@dataclass(slots=True)
class Effects:
    """Write all of this together, then answer. What is `dropped` may go later, and piece by piece."""

    events: list[LogEvent] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    # Logs of which nothing is needed any more.
    dropped: list[int] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
