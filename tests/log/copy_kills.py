"""
The copy job while its copiers, and on Rota their server, are killed: how many kills, when, and which rules must hold.

Called by the tests of the copy job on Rota's log and on Kafka. Two static members of one group copy; the group's offsets
are read throughout. `differences` compares the copy with its source afterwards.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.log.copiers import Copier, Settings

Kill = Callable[[], None]


class Size(NamedTuple):
    """Size of a copy, and the number of kills during it."""

    records: int
    kills: int


IN_SOAK = Size(records=100_000, kills=30)


def static(number: int) -> Settings:
    """The consumer of a copier whose next process takes its place at once."""
    return {"group_instance_id": f"copier-{number}"}


class Rising:
    """The group's committed offsets, as one reads them; a reading that is lower than the one before fails."""

    def __init__(self, read: Callable[[], Mapping[int, int]]) -> None:
        self._read = read
        self._last: dict[int, int] = {}

    def __call__(self) -> Mapping[int, int]:
        found = self._read()
        for partition, offset in found.items():
            before = self._last.get(partition, offset)
            assert offset >= before, f"the offset of partition {partition} was lowered: {before} to {offset}"
            self._last[partition] = offset
        return found


def drawn(kinds: Sequence[Kill], count: int, chance: random.Random) -> list[Kill]:
    """So many kills, of each kind about equally many, in any order."""
    kills = list(itertools.islice(itertools.cycle(kinds), count))
    chance.shuffle(kills)
    return kills


def kill_while_copying(
    copiers: Sequence[Copier], kills: Sequence[Kill], ends: Mapping[int, int], chance: random.Random
) -> int:
    """Perform each kill at an offset of its own, and copy the rest; returns the number of kills."""
    moments = sorted(chance.sample(range(sum(ends.values()) * 2 // 3), len(kills)))
    performed = 0
    for moment, kill in zip(moments, kills, strict=True):
        copiers[0].wait_until_copied(moment)
        assert not copiers[0].is_done(ends), "all was copied before the kill: raise the number of records"
        kill()
        performed += 1
    copiers[0].wait_until_done(ends)
    for copier in copiers:
        copier.finish()
    return performed


def double_owners(tenures: Iterable[tuple[str, int, Iterable[int]]]) -> list[str]:
    """Partitions that two copiers owned in one generation. A tenure: name, generation, partitions."""
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for name, generation, partitions in tenures:
        for partition in partitions:
            owners[generation, partition].add(name)
    return [
        f"partition {partition} in generation {generation}: {', '.join(sorted(names))}"
        for (generation, partition), names in owners.items()
        if len(names) > 1
    ]
