"""Effects of a decision of the log: one atomic write that the shell performs."""

from dataclasses import dataclass, field
from typing import NamedTuple

from rota_coordinator.core.log.batch import Row
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent


class Ending(NamedTuple):
    """The end of a transaction, for a group whose offsets are part of the transaction."""

    group_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


@dataclass(slots=True)
class Effects:
    """
    Effects of one decision. `events`, `rows` and `endings` are written atomically before the response is sent.

    The rows of `dropped` logs may be deleted later, in several steps.
    """

    events: list[LogEvent] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    # Log ids whose rows are no longer needed.
    dropped: list[int] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
