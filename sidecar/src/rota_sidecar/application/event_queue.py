"""
Events on their way to the application, and its acknowledgements back.

Used by `attachment`. An event about very many partitions is told in several, so that each fits into a message; the core
hears one acknowledgement, when all of them have theirs.
"""

import asyncio
from collections import Counter

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.refusals import failed_precondition, resource_exhausted
from rota_sidecar.application.translating import errors_to, events_to
from rota_sidecar.core.delivery import actions as do

# With names of 249 characters they take 3 MiB.
PARTITIONS_PER_EVENT = 10_000
# Not read yet, or not acknowledged. Nobody is rebalanced so often in the time that an application has for it.
EVENTS_MAX = 1_000


class EventQueue:
    """Of one attachment. Ids begin with 1."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[pb.AttachResponse] = asyncio.Queue()
        self._last_id = 0
        # The core's event of each that is to be acknowledged, and how many of it still are.
        self._events: dict[int, int] = {}
        self._parts: Counter[int] = Counter()

    def put(self, event: do.AssignmentEvent, now_ms: int) -> None:
        """After all others. Raises a Refusal when nobody reads or acknowledges them."""
        for message in events_to(event, now_ms, PARTITIONS_PER_EVENT):
            self._last_id += 1
            message.event.event_id = self._last_id
            self._waiting.put_nowait(message)
            if event.kind is not do.Kind.REVOKED:
                self._events[self._last_id] = event.event_id
                self._parts[event.event_id] += 1
        self._check_bound()

    def put_error(self, error: do.PartitionError) -> None:
        """After all events. Raises a Refusal when nobody reads them."""
        for message in errors_to(error, PARTITIONS_PER_EVENT):
            self._waiting.put_nowait(message)
        self._check_bound()

    def _check_bound(self) -> None:
        if max(self._waiting.qsize(), len(self._events)) > EVENTS_MAX:
            raise resource_exhausted(
                f"{EVENTS_MAX} events wait for the application: read them, and acknowledge each one, in an attachment "
                "that is opened anew"
            )

    async def next(self) -> pb.AttachResponse:
        """What is to be told now."""
        return await self._waiting.get()

    def acknowledged(self, event_id: int) -> int | None:
        """The core's event that is acknowledged by that, if one is. Raises a Refusal."""
        if not 1 <= event_id <= self._last_id:
            raise failed_precondition(f"there was no event {event_id}: acknowledge the event_id of an event")
        event = self._events.pop(event_id, None)
        if event is None:
            return None
        self._parts[event] -= 1
        if self._parts[event]:
            return None
        del self._parts[event]
        return event
