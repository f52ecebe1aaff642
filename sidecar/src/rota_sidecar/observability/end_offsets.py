"""
Where partitions end, looked up again and again: for lag, also while nothing is read, and for the rates of arrival, by
which `load-aware-sticky` weighs partitions.

Run by `serving`.
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
# What was seen longer ago is not known any more.
KNOWN_S = 3 * LOOK_S
# How much of a rate the newest look makes up.
WEIGHT = 0.3


class EndOffset(NamedTuple):
    """What is known of a partition, and since when."""

    bounds: Bounds
    at_s: float
    # Records a second; not known after one look.
    rate: float | None = None


class EndOffsets:
    """To be made and used on a running loop."""

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
        """Other partitions are held."""
        self._others.set()

    def seen(self, partition: Partition) -> EndOffset | None:
        """What is known now."""
        found = self._seen.get(partition)
        return found if found is not None and self._clock() - found.at_s < KNOWN_S else None

    async def run(self) -> None:
        """For ever."""
        while True:
            self._others.clear()
            held = self._held()
            self._seen = {partition: seen for partition, seen in self._seen.items() if partition in held}
            if held:
                await self._look_at(held)
            await wait_until_set(self._others, LOOK_S)

    async def _look_at(self, held: frozenset[Partition]) -> None:
        began_s = self._clock()
        try:
            found = await self._records.bounds(held, TIMEOUT_S)
        except (Unreachable, Refused):
            return  # whoever reads says so; what is not seen again is forgotten
        for partition, bounds in found.items():
            self._seen[partition] = updated(self._seen.get(partition), bounds, began_s)
        rates = {partition: seen.rate for partition, seen in self._seen.items() if seen.rate is not None}
        self._measured(rates)


def updated(before: EndOffset | None, bounds: Bounds, at_s: float) -> EndOffset:
    """What is known after another look."""
    if before is None or at_s <= before.at_s or bounds.end < before.bounds.end:
        return EndOffset(bounds, at_s)
    rate = (bounds.end - before.bounds.end) / (at_s - before.at_s)
    if before.rate is not None:
        rate = WEIGHT * rate + (1 - WEIGHT) * before.rate
    return EndOffset(bounds, at_s, rate)
