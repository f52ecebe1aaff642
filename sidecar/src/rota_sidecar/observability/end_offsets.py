"""
End offsets of owned partitions, fetched every LOOK_S: for lag, also while nothing is fetched, and for the arrival rates by
which `load-aware-sticky` weighs partitions.

Run by `process.sidecar`.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import Records
from rota_sidecar.membership.driver import wait_until_set

LOOK_S = 5
TIMEOUT_S = 5
# Older end offsets count as unknown.
KNOWN_S = 3 * LOOK_S
# A rate is measured over this time at least: polls follow each other within milliseconds while partitions move.
RATE_OVER_S = LOOK_S / 2
# Weight of the newest measurement in the exponential moving average of a rate.
WEIGHT = 0.3


class Reading(NamedTuple):
    """An end offset from which on a rate is measured."""

    end: int
    at_s: float


class EndOffset(NamedTuple):
    """Bounds of a partition at a time in s of the loop's clock."""

    bounds: Bounds
    at_s: float
    measured: Reading
    # Records per second; None until RATE_OVER_S have passed.
    rate: float | None = None


class EndOffsets:
    """Polls the end offsets of owned partitions; create and use it on a running loop."""

    def __init__(
        self,
        records: Records,
        held: Callable[[], frozenset[Partition]],
        measured: Callable[[Mapping[Partition, float]], None],
    ) -> None:
        self._records = records
        self._held = held
        self._measured = measured
        self._clock = asyncio.get_running_loop().time
        self._seen: dict[Partition, EndOffset] = {}
        self._others = asyncio.Event()

    def look(self) -> None:
        """Poll now, after a change of the owned partitions."""
        self._others.set()

    def seen(self, partition: Partition) -> EndOffset | None:
        """Return the latest bounds of a partition, also of one that was released; None: unknown, or older than KNOWN_S."""
        found = self._seen.get(partition)
        return found if found is not None and self._clock() - found.at_s < KNOWN_S else None

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self._others.clear()
            held = self._held()
            # Rates of partitions that were just released are for the choice of their next owners.
            self._seen = {
                partition: seen
                for partition, seen in self._seen.items()
                if partition in held or self.seen(partition) is not None
            }
            if held:
                await self._look_at(held)
            await wait_until_set(self._others, LOOK_S)

    async def _look_at(self, held: frozenset[Partition]) -> None:
        began_s = self._clock()
        try:
            found = await self._records.bounds(held, TIMEOUT_S)
        except (Unreachable, Refused):
            return  # the fetch loop reports the problem; old end offsets expire
        for partition, bounds in found.items():
            self._seen[partition] = updated(self._seen.get(partition), bounds, began_s)
        rates = {partition: seen.rate for partition, seen in self._seen.items() if seen.rate is not None}
        self._measured(rates)


def updated(before: EndOffset | None, bounds: Bounds, at_s: float) -> EndOffset:
    """Return the bounds after another poll, with the averaged rate."""
    now = Reading(bounds.end, at_s)
    if before is None or at_s <= before.at_s or bounds.end < before.bounds.end:
        return EndOffset(bounds, at_s, now)
    elapsed_s = at_s - before.measured.at_s
    if elapsed_s < RATE_OVER_S:
        return before._replace(bounds=bounds, at_s=at_s)
    rate = (bounds.end - before.measured.end) / elapsed_s
    if before.rate is not None:
        rate = WEIGHT * rate + (1 - WEIGHT) * before.rate
    return EndOffset(bounds, at_s, now, rate)
