"""Fetches through a backend's `Records` as the delivery driver does, for the tests of both backends."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rota_proto.log.columns import Headers
from rota_sidecar.core.delivery.events import Bounds, Read, ReadFailed
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.batch_slicing import columns_in, content_of
from rota_sidecar.engines.records import FetchRequest, OnFetchResult, Records

WITHIN_S = 60
BYTES_MAX = 1 << 20


class Row(NamedTuple):
    """A record."""

    offset: int
    value: bytes | None
    key: bytes | None
    timestamp_ms: int
    headers: Headers


def rows_of(batch: Batch) -> list[Row]:
    """Return the records of the batch, checked against its count and its keys."""
    content = content_of(batch)
    values, keys, times, headers = columns_in(content)
    nulls = [None] * content.count
    rows = [
        Row(content.base_offset + at, *row)
        for at, row in enumerate(
            zip(
                nulls if values is None else values,
                nulls if keys is None else keys,
                [content.base_timestamp_ms] * content.count if times is None else times,
                [()] * content.count if headers is None else headers,
                strict=True,
            )
        )
    ]
    meant = rows[batch.first - content.base_offset :]
    assert len(meant) == batch.count
    if batch.keys is not None:
        assert list(batch.keys) == [row.key for row in meant]
    return meant


class Reader:
    """One `Records`, with its results and outages."""

    def __init__(self, make: Callable[[OnFetchResult, Callable[[str], None]], Records]) -> None:
        self._delivery_epochs = 0
        self._waiting: dict[int, asyncio.Future[Read | ReadFailed]] = {}
        self.unexpected: list[Read | ReadFailed] = []
        self.outages: asyncio.Queue[str] = asyncio.Queue()
        self.records = make(self._on_result, self.outages.put_nowait)

    def _on_result(self, result: Read | ReadFailed) -> None:
        waiting = self._waiting.pop(result.delivery_epoch, None)
        if waiting is None:
            self.unexpected.append(result)
        else:
            waiting.set_result(result)

    def open(self) -> int:
        """The number of a new ledger."""
        self._delivery_epochs += 1
        return self._delivery_epochs

    def fetch(
        self, partition: Partition, offset: int, *, delivery_epoch: int = 0, bytes_max: int = BYTES_MAX
    ) -> "asyncio.Future[Read | ReadFailed]":
        """Fetch once; what it brings."""
        delivery_epoch = delivery_epoch or self.open()
        answer: asyncio.Future[Read | ReadFailed] = asyncio.get_running_loop().create_future()
        self._waiting[delivery_epoch] = answer
        self.records.fetch(FetchRequest(delivery_epoch, partition, offset, bytes_max))
        return answer

    async def read(
        self, partition: Partition, offset: int, *, delivery_epoch: int = 0, bytes_max: int = BYTES_MAX
    ) -> Read:
        """Return the result of the next fetch, which must succeed."""
        async with asyncio.timeout(WITHIN_S):
            found = await self.fetch(partition, offset, delivery_epoch=delivery_epoch, bytes_max=bytes_max)
        assert isinstance(found, Read), found
        return found

    async def failure(self, partition: Partition, offset: int, *, delivery_epoch: int = 0) -> ReadFailed:
        """Why the next fetch that brings something new fails."""
        delivery_epoch = delivery_epoch or self.open()
        async with asyncio.timeout(WITHIN_S):
            found = await self.fetch(partition, offset, delivery_epoch=delivery_epoch)
            while isinstance(found, Read):
                found = await self.fetch(partition, found.next_offset, delivery_epoch=delivery_epoch)
        return found

    async def read_to(
        self,
        partition: Partition,
        end: int,
        *,
        offset: int = 0,
        delivery_epoch: int = 0,
        bytes_max: int = BYTES_MAX,
    ) -> "Passage":
        """All from the offset on, until the end is reached."""
        delivery_epoch = delivery_epoch or self.open()
        passage = Passage(partition, delivery_epoch, [], offset, Bounds(0, 0))
        while passage.next_offset < end:
            async with asyncio.timeout(WITHIN_S):
                found = await self.fetch(
                    partition, passage.next_offset, delivery_epoch=delivery_epoch, bytes_max=bytes_max
                )
            assert isinstance(found, Read), found
            passage = passage.with_more(found)
        return passage

    async def outage(self) -> str:
        """The next one."""
        async with asyncio.timeout(WITHIN_S):
            return await self.outages.get()


class Passage(NamedTuple):
    """The batches of consecutive fetches of one partition."""

    partition: Partition
    delivery_epoch: int
    batches: Sequence[Batch]
    next_offset: int
    bounds: Bounds

    def with_more(self, read: Read) -> "Passage":
        """Checks that it goes on where it stopped."""
        at = self.next_offset
        for batch in read.batches:
            assert batch.first >= at
            assert batch.count > 0
            at = batch.end
        assert read.next_offset >= at
        assert read.delivery_epoch == self.delivery_epoch
        return self._replace(
            batches=[*self.batches, *read.batches], next_offset=read.next_offset, bounds=read.bounds
        )

    @property
    def rows(self) -> Sequence[Row]:
        """All records."""
        return [row for batch in self.batches for row in rows_of(batch)]

    @property
    def values(self) -> Sequence[bytes | None]:
        """Their values."""
        return [row.value for row in self.rows]

    @property
    def offsets(self) -> Sequence[int]:
        """Their offsets."""
        return [row.offset for row in self.rows]
