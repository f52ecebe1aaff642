"""
Writes Kubernetes Events about ConsumerGroups, as `kubectl describe` shows them.

Called by the reconciler and the status writer; never waits for the API server: events go through a bounded queue, and what does not
fit, or repeats, is dropped and counted. Losing an Event loses no state.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.kinds import CONSUMER_GROUP, EVENT
from rota_operator.reconcile.observed import Object
from rota_operator.timestamps import timestamp

COMPONENT = "rota-operator"
# Of one resource, in WINDOW_S.
EVENTS_MAX = 10
WINDOW_S = 600.0
QUEUE_MAX = 1_000
# An Event's message has at most 1,024 bytes in UTF-8.
MESSAGE_BYTES_MAX = 1_024
NORMAL, WARNING = "Normal", "Warning"


class Fact(NamedTuple):
    """Type, reason and message of an Event."""

    type: str
    reason: str
    message: str


class Budget:
    """
    Limits the Events of one resource; times in seconds of one clock.

    Invariant: at most EVENTS_MAX are allowed within WINDOW_S, and no two equal ones.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[float, Fact]] = deque()

    def allow(self, fact: Fact, now_s: float) -> bool:
        """Return whether the Event may be written, and remember it then."""
        while self._recent and self._recent[0][0] <= now_s - WINDOW_S:
            self._recent.popleft()
        if len(self._recent) >= EVENTS_MAX or any(fact == each for _, each in self._recent):
            return False
        self._recent.append((now_s, fact))
        return True


class EventRecorder:
    """Events that wait to be written; thread-confined to one event loop."""

    def __init__(
        self, api: Api, wall_ms: Callable[[], int], instance: str, warn: Callable[[str], None]
    ) -> None:
        self._api = api
        self._wall_ms = wall_ms
        self._instance = instance
        self._warn = warn
        self._budgets: dict[str, Budget] = {}
        self._queue: asyncio.Queue[Object] = asyncio.Queue(QUEUE_MAX)
        # Not written because of a bound.
        self.dropped = 0

    def record(self, resource: Object, fact: Fact) -> None:
        """Queue an Event about a ConsumerGroup."""
        uid = resource["metadata"]["uid"]
        budget = self._budgets.setdefault(uid, Budget())
        if not budget.allow(fact, asyncio.get_running_loop().time()):
            self.dropped += 1
            return
        try:
            self._queue.put_nowait(event_of(resource, fact, self._wall_ms(), self._instance))
        except asyncio.QueueFull:
            self.dropped += 1

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a resource that is gone."""
        self._budgets.pop(uid, None)

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._api.create(EVENT, event["metadata"]["namespace"], event)
            except ApiError as error:
                self._warn(f"an Event was lost: {error}")


def event_of(resource: Object, fact: Fact, now_ms: int, instance: str) -> Object:
    """Return the Event object."""
    metadata = resource["metadata"]
    at = timestamp(now_ms)
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": CONSUMER_GROUP.api_version,
            "kind": CONSUMER_GROUP.kind,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
        "type": fact.type,
        "reason": fact.reason,
        "message": fact.message.encode()[:MESSAGE_BYTES_MAX].decode(errors="ignore"),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
