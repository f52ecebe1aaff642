"""
Interface between the watch of a group and its engines. A group and its records may be in two systems, hence two protocols.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from rota_operator.overview.assignment import Partition


class Unavailable(Exception):
    """The engine did not answer, or returned an error; a later call may succeed."""


class Range(NamedTuple):
    """Readable offsets of a partition: first offset in the log, and end offset at the group's isolation level (exclusive)."""

    start: int
    end: int


class Groups(Protocol):
    """Committed offsets, from the group's coordinator."""

    async def committed(
        self, group_id: str, partitions: Collection[Partition], *, only_these: bool = False
    ) -> Mapping[Partition, int]:
        """
        Committed offsets of these partitions, as far as there are any, and of others that the engine lists by itself.

        `only_these`: of no others, which a large group has too many of for one response.
        Raises Unavailable.
        """
        ...


class Records(Protocol):
    """Topics and their records."""

    async def partitions(self, topics: Collection[str], pattern: str = "") -> Collection[Partition]:
        """
        Return all partitions of these topics and of those whose whole name matches the pattern; topics that do not exist are left out.

        Raises Unavailable.
        """
        ...

    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        """Log start and end of these partitions. Raises Unavailable."""
        ...

    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        """
        Timestamps in ms of the first records at or after these offsets; None where the log has only control markers there.

        Partitions that did not answer in time are left out. Raises Unavailable.
        """
        ...


class IndexedRecords(Records, Protocol):
    """Topics and their records, which are found by time as well."""

    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        """First offsets with a timestamp at or after a time; -1 where there is none. Raises Unavailable."""
        ...

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Ids of topics by name; topics that do not exist are left out. Raises Unavailable."""
        ...
