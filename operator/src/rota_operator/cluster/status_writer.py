"""
Writes the status of ConsumerGroups: computes it from the last decision and the newest view, compares, and patches the difference.

`leading` hands in what was observed, the group watches say when a view has changed. `rota_operator.status` decides when a status
is written: at once when a condition changes, otherwise once in 10 s, and not at all while nothing changes.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError, Conflict, NotFound
from rota_operator.cluster.kinds import CONSUMER_GROUP
from rota_operator.cluster.perform import of_version
from rota_operator.cluster.queues import Key
from rota_operator.cluster.seen_versions import order_of
from rota_operator.reconcile.observed import Object
from rota_operator.spec.status import ConsumerGroupStatus
from rota_operator.status.status import due, read_status, status_json
from rota_service.event_log import EventLog

# A view changes many times a second; it also expires without a change.
COMPUTE_INTERVAL_S = 1.0
# Where only numbers change: each second time, so that a partition that goes on, or stands still, is seen within 2 s.
NUMBERS_INTERVAL_S = 1.5
EXPIRY_INTERVAL_S = 5.0
WRITES_AT_A_TIME = 8
# Computes the status of a ConsumerGroup, which is passed with its newest known status; None while nothing is decided yet.
Compute = Callable[[Key, ConsumerGroupStatus], ConsumerGroupStatus | None]


@dataclass(slots=True)
class Written:
    """Everything that is known of the status of one ConsumerGroup; times in seconds of the loop's clock."""

    # As the API server holds it: the JSON, and the same parsed.
    status: Mapping[str, Any]
    parsed: ConsumerGroupStatus
    resource_version: str
    # None: not written by this process.
    written_s: float | None = None
    computed_s: float = float("-inf")
    is_dirty: bool = True
    # When numbers that wait for their interval are to be written; None: none wait.
    due_s: float | None = None
    has_new_numbers: bool = False
    # One write at a time.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take_over(self, resource: Object) -> None:
        """Replace the status by that of a version of the resource."""
        status = resource.get("status") or {}
        if status != self.status:
            self.status, self.parsed = status, read_status(resource)
        self.resource_version = version_of(resource)

    def is_due(self, now_s: float) -> bool:
        """Return whether the status is to be computed."""
        if self.is_dirty or (self.due_s is not None and now_s >= self.due_s):
            return True
        interval_s = NUMBERS_INTERVAL_S if self.has_new_numbers else EXPIRY_INTERVAL_S
        return now_s - self.computed_s >= interval_s


class StatusWriter:
    """
    Statuses of all ConsumerGroups; thread-confined to one event loop.

    `on_status` is called with each status that was computed, written or not.
    """

    def __init__(
        self,
        api: Api,
        compute: Compute,
        on_status: Callable[[Key, Mapping[str, Any]], None],
        event_log: EventLog,
    ) -> None:
        self._api = api
        self._compute = compute
        self._on_status = on_status
        self._log = event_log
        self._groups: dict[Key, Written] = {}
        self._slots = asyncio.Semaphore(WRITES_AT_A_TIME)

    def observed(self, key: Key, resource: Object) -> None:
        """
        Take over what a reconcile has read; marks the status for an update.

        It may have read it before the last write of the status: that version would hide the difference to what is held now.
        """
        known = self._groups.get(key)
        if known is None:
            known = self._groups[key] = Written({}, ConsumerGroupStatus(), "")
        if order_of(version_of(resource)) >= order_of(known.resource_version):
            known.take_over(resource)
        known.is_dirty = True

    def written(self, key: Key) -> ConsumerGroupStatus:
        """Return the status as the API server holds it; empty: nothing was observed yet."""
        known = self._groups.get(key)
        return ConsumerGroupStatus() if known is None else known.parsed

    def view_changed(self, key: Key) -> None:
        """Mark the status for an update."""
        if (known := self._groups.get(key)) is not None:
            known.is_dirty = True

    def numbers_changed(self, key: Key) -> None:
        """Mark the status for an update within NUMBERS_INTERVAL_S."""
        if (known := self._groups.get(key)) is not None:
            known.has_new_numbers = True

    def forget(self, key: Key) -> None:
        """Drop a ConsumerGroup that is gone."""
        self._groups.pop(key, None)

    async def run(self) -> None:
        """Update statuses until cancelled."""
        while True:
            now_s = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as tasks:
                for key, known in tuple(self._groups.items()):
                    if known.is_due(now_s):
                        tasks.create_task(self._update_safely(key))
            await asyncio.sleep(COMPUTE_INTERVAL_S)

    async def _update_safely(self, key: Key) -> None:
        try:
            await self.update(key)
        # One resource must not stop the others, whatever is wrong with it.
        except Exception as error:  # noqa: BLE001
            self._log.exception(error)

    async def update(self, key: Key) -> None:
        """Compute the status of a ConsumerGroup, and write it if it is due."""
        known = self._groups.get(key)
        if known is None:
            return
        async with known.lock, self._slots:
            now_s = asyncio.get_running_loop().time()
            if not known.is_due(now_s):
                return
            wanted = self._compute(key, known.parsed)
            if wanted is None:
                return
            known.computed_s, known.has_new_numbers = now_s, False
            dumped = status_json(wanted)
            self._on_status(key, dumped)
            written_ms = None if known.written_s is None else int(known.written_s * 1000)
            at_ms = due(known.parsed, wanted, written_ms, int(now_s * 1000))
            # A change during the write marks it again.
            known.is_dirty, known.due_s = False, None if at_ms is None else at_ms / 1000
            if at_ms is not None and at_ms <= now_s * 1000:
                await self._write(key, known, dumped)

    async def _write(self, key: Key, known: Written, wanted: Mapping[str, Any]) -> None:
        changes = of_version({"status": difference(known.status, wanted)}, known.resource_version)
        try:
            written = await self._api.patch(CONSUMER_GROUP, *key, changes, "status")
        except NotFound:
            self.forget(key)
        except Conflict:
            known.is_dirty = True
            await self._read_again(key)
        except ApiError as error:
            known.is_dirty = True
            self._log.warning(f"the status of {key.namespace}/{key.name} was not written: {error}")
        else:
            known.take_over(written)
            known.due_s = None
            known.written_s = asyncio.get_running_loop().time()

    async def _read_again(self, key: Key) -> None:
        """Take over the version that another write has made; the next round computes from it."""
        try:
            found = await self._api.find(CONSUMER_GROUP, *key)
        except ApiError as error:
            self._log.warning(f"the status of {key.namespace}/{key.name} was not read: {error}")
        else:
            if found is None:
                self.forget(key)
            elif (known := self._groups.get(key)) is not None:
                # Whatever its version is: it does not rise where the API server's store was restored.
                known.take_over(found)


def difference(was: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON merge patch (RFC 7386) from one object to another."""
    changes: dict[str, Any] = {name: None for name in was if name not in wanted}
    for name, value in wanted.items():
        before = was.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := difference(before, value):
                changes[name] = inner
        elif value != before or name not in was:
            changes[name] = value
    return changes


def version_of(resource: Object) -> str:
    """Return the resource version of an object."""
    version: str = resource["metadata"]["resourceVersion"]
    return version
