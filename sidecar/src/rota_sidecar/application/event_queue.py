"""
Events for the application, and its acknowledgements. Used by `attachment`.

An event about very many partitions is split into several, so that each fits into a message; the delivery core gets one
acknowledgement, after the application has acknowledged all of them.
"""

import asyncio
from collections import Counter

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.refusals import failed_precondition, resource_exhausted
from rota_sidecar.application.translating import commits_to, errors_to, events_to
from rota_sidecar.core.delivery import actions as do

# 3 MiB with topic names of 249 characters.
PARTITIONS_PER_EVENT = 10_000
# Limit of events that are unsent or unacknowledged: far more rebalances than an application has time for.
EVENTS_MAX = 1_000


class EventQueue:
    """The FIFO queue of one attachment. Invariant: event ids begin with 1 and increase by 1; at most `EVENTS_MAX` events wait."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[pb.AttachResponse] = asyncio.Queue()
        self._last_id = 0
        # The core's event of each unacknowledged event, and the number of unacknowledged parts of each of the core's events.
        self._events: dict[int, int] = {}
        self._parts: Counter[int] = Counter()

    def put(self, event: do.AssignmentEvent, now_ms: int) -> None:
        """Enqueue an event. Raises a Refusal if too many events are unsent or unacknowledged."""
        for message in events_to(event, now_ms, PARTITIONS_PER_EVENT):
            self._last_id += 1
            message.event.event_id = self._last_id
            self._waiting.put_nowait(message)
            if event.kind is not do.Kind.REVOKED:
                self._events[self._last_id] = event.event_id
                self._parts[event.event_id] += 1
        self._check_bound()

    def put_error(self, error: do.PartitionError) -> None:
        """Enqueue an error of partitions. Raises a Refusal if too many events are unsent."""
        for message in errors_to(error, PARTITIONS_PER_EVENT):
            self._waiting.put_nowait(message)
        self._check_bound()

    def put_commit(self, committed: do.OffsetsCommitted) -> None:
        """Enqueue committed offsets. Raises a Refusal if too many events are unsent."""
        for message in commits_to(committed, PARTITIONS_PER_EVENT):
            self._waiting.put_nowait(message)
        self._check_bound()

    def _check_bound(self) -> None:
        if max(self._waiting.qsize(), len(self._events)) > EVENTS_MAX:
            raise resource_exhausted(
                f"{EVENTS_MAX} events wait for the application; attach again, read the events and acknowledge each one"
            )

    async def next(self) -> pb.AttachResponse:
        """Return the next message, as soon as there is one."""
        return await self._waiting.get()

    def acknowledged(self, event_id: int) -> int | None:
        """Take an acknowledgement; return the core's event if all its parts are acknowledged. Raises a Refusal."""
        if not 1 <= event_id <= self._last_id:
            raise failed_precondition(f"unknown event {event_id}; acknowledge the event_id of an event")
        event = self._events.pop(event_id, None)
        if event is None:
            return None
        self._parts[event] -= 1
        if self._parts[event]:
            return None
        del self._parts[event]
        return event
