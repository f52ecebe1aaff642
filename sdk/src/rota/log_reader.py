"""
Read records of a Rota log from given offsets, without a group and without commits; `Consumer` and the tests build on it.

A fetch returns batches in columns: all values of thousands of records are one list, built without a statement per record.
"""

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from types import TracebackType
from typing import Any, Self, TypeVar

from rota import errors
from rota.addresses import address_of, is_rota
from rota.connection import Connection, Credentials, background
from rota.records import Headers, Record, TopicPartition
from rota_proto.log.columns import CODEC, Columns, MalformedPayload, unpack
from rota_proto.log.compression import BYTES_MAX as BATCH_BYTES_MAX
from rota_proto.log.compression import CODECS, UnknownCodec, decompress, decompressed_size
from rota_proto.log.v1 import log_pb2 as pb

END = -1
START = -2
PARTITION_BYTES_MAX = 1 << 20
BYTES_MAX = 3 << 20
# Limit of a fetch's batches after decompression, exceeded by its first batch only: further ones are fetched again.
DECOMPRESSED_BYTES_MAX = 32 << 20
WITHIN_S = 30.0
Result = TypeVar("Result")


class Records:
    """
    Consecutive records of one partition; columns when asked for, records when iterated over.

    >>> for record in records: print(record.offset, record.value)    # doctest: +SKIP
    """

    def __init__(self, topic: str, partition: int, batch: pb.RecordBatch, first_offset: int) -> None:
        """Take the batch's records from `first_offset` on; a batch is always fetched whole."""
        self.topic = topic
        self.partition = partition
        self._batch = batch
        self._skipped = max(first_offset - batch.base_offset, 0)
        self.base_offset = batch.base_offset + self._skipped
        self.next_offset = batch.base_offset + batch.count

    def __len__(self) -> int:
        return self.next_offset - self.base_offset

    @cached_property
    def _columns(self) -> Columns:
        batch = self._batch
        where = f"{self.topic}[{self.partition}] at offset {batch.base_offset}"
        try:
            payload = decompress(batch.codec, batch.payload)
            return unpack(payload, batch.count, batch.base_timestamp_ms)
        except UnknownCodec as error:
            raise errors.NotSupported(
                f"{where} has records with codec {batch.codec}, which this version does not know: upgrade rota"
            ) from error
        except MalformedPayload as error:
            raise errors.CorruptMessage(f"{where}: {error}") from error

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values of all records."""
        return self._cut(self._columns.values)

    @property
    def keys(self) -> Sequence[bytes | None]:
        """Keys of all records."""
        return self._cut(self._columns.keys)

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """Timestamps of all records."""
        times = self._columns.timestamps_ms
        return [self._batch.base_timestamp_ms] * len(self) if times is None else times[self._skipped :]

    @property
    def headers(self) -> Sequence[Headers]:
        """Headers of each record."""
        headers = self._columns.headers
        return [()] * len(self) if headers is None else headers[self._skipped :]

    def _cut(self, column: Sequence[bytes | None] | None) -> Sequence[bytes | None]:
        if column is None:
            return [None] * len(self)
        return column[self._skipped :] if self._skipped else column

    def __iter__(self) -> Iterator[Record]:
        return map(
            Record,
            repeat(self.topic),
            repeat(self.partition),
            range(self.base_offset, self.next_offset),
            self.timestamps_ms,
            self.keys,
            self.values,
            self.headers,
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch for one partition."""

    topic: str
    partition: int
    batches: Sequence[Records]
    # The next offset to fetch.
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: errors.RotaError | None = None

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records; raises the partition's error if there are none."""
        if self.error is not None:
            raise self.error
        for batch in self.batches:
            yield from batch


class AsyncLogReader:
    """`LogReader` for asyncio; created on a running event loop."""

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, read_committed: bool = False
    ) -> None:
        found = address_of(address)
        if not is_rota(found):
            raise errors.NotSupported(f"{found} is a Kafka cluster: use a Kafka client to read it")
        self._connection = Connection(found, credentials)
        self._isolation = (
            pb.ISOLATION_LEVEL_READ_COMMITTED if read_committed else pb.ISOLATION_LEVEL_READ_UNCOMMITTED
        )

    async def fetch(
        self,
        offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = BYTES_MAX,
        partition_max_bytes: int = PARTITION_BYTES_MAX,
    ) -> list[Fetched]:
        """
        Fetch records from these offsets on; wait until there are `min_bytes`, at most `max_wait_ms`.

        Limits count bytes as the log stores them, compressed or not. Batches are decompressed when their records are read.
        An error of one partition is in its part of the result, beside the records of the others.
        """
        request = pb.FetchRequest(
            partitions=[
                pb.FetchRequest.Partition(
                    topic=topic, index=index, offset=offset, max_bytes=partition_max_bytes
                )
                for (topic, index), offset in offsets.items()
            ],
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            isolation_level=self._isolation,
            accepted_codecs=CODECS,
        )
        within_s = WITHIN_S + max_wait_ms / 1000
        response = await self._connection.ask(self._connection.log.Fetch, request, within_s=within_s)
        asked = {(topic, index): offset for (topic, index), offset in offsets.items()}
        limit_decompressed(response)
        return [_fetched(part, asked[part.topic, part.index]) for part in response.partitions]

    async def offsets_at(
        self, partitions: Iterable[TopicPartition] | Iterable[tuple[str, int]], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offsets at or after a time in ms; also START and END. -1 where all records are older."""
        request = pb.ListOffsetsRequest(
            partitions=[
                pb.ListOffsetsRequest.Partition(topic=topic, index=index, timestamp_ms=timestamp_ms)
                for topic, index in partitions
            ],
            isolation_level=self._isolation,
        )
        response = await self._connection.ask(self._connection.log.ListOffsets, request, within_s=WITHIN_S)
        for part in response.partitions:
            if part.error_code:
                raise errors.error_of(part.error_code, f"{part.topic}[{part.index}]")
        return {TopicPartition(part.topic, part.index): part.offset for part in response.partitions}

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


class LogReader:
    """
    Reads batches from given offsets on, for threads.

    >>> with rota.LogReader("rota://127.0.0.1:7070") as reader:           # doctest: +SKIP
    ...     for part in reader.fetch({("orders", 0): 0}):
    ...         print([record.value for record in part], part.next_offset)
    """

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, read_committed: bool = False
    ) -> None:
        self._background = background()
        self._reader = self._background.run(
            _made(address, credentials=credentials, read_committed=read_committed)
        )

    def fetch(
        self,
        offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = BYTES_MAX,
        partition_max_bytes: int = PARTITION_BYTES_MAX,
    ) -> list[Fetched]:
        """Fetch records from these offsets on; see `AsyncLogReader.fetch`."""
        return self._run(
            self._reader.fetch(
                offsets,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=partition_max_bytes,
            )
        )

    def read(
        self, topic: str, partition: int, offset: int = 0, until: int | None = None
    ) -> Iterator[Records]:
        """
        Iterate over batches from an offset up to another one, or up to the end at the time of the call.

        >>> records = [record for batch in reader.read("orders", 0) for record in batch]    # doctest: +SKIP
        """
        end = (
            self.offsets_at([(topic, partition)], END)[TopicPartition(topic, partition)]
            if until is None
            else until
        )
        while offset < end:
            (part,) = self.fetch({(topic, partition): offset})
            if part.error is not None:
                raise part.error
            yield from part.batches
            offset = part.next_offset

    def offsets_at(
        self, partitions: Iterable[TopicPartition] | Iterable[tuple[str, int]], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the first offsets at or after a time in ms; also START and END. -1 where all records are older."""
        return self._run(self._reader.offsets_at(partitions, timestamp_ms))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._background.run(work)

    def close(self) -> None:
        """Close the connection."""
        self._run(self._reader.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _made(address: str, *, credentials: Credentials | None, read_committed: bool) -> AsyncLogReader:
    return AsyncLogReader(address, credentials=credentials, read_committed=read_committed)


def limit_decompressed(response: pb.FetchResponse, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> None:
    """Remove the batches that would exceed the limit when decompressed, except the first one; each is fetched again."""
    if all(batch.codec == CODEC for part in response.partitions for batch in part.batches):
        # No message is that large; to look at the size of a payload is to copy it.
        return
    room = bytes_max
    for part in response.partitions:
        for index, batch in enumerate(part.batches):
            # A damaged batch may state any size; one of more than BATCH_BYTES_MAX is never decompressed.
            size = min(decompressed_size(batch.codec, batch.payload), BATCH_BYTES_MAX)
            if size > room < bytes_max:
                part.next_offset = batch.base_offset
                del part.batches[index:]
                break
            room -= size


def _fetched(part: pb.FetchResponse.Partition, offset: int) -> Fetched:
    where = f"{part.topic}[{part.index}]"
    return Fetched(
        part.topic,
        part.index,
        [Records(part.topic, part.index, batch, offset) for batch in part.batches if not batch.control],
        max(offset, part.next_offset),
        part.log_start_offset,
        part.high_watermark,
        part.last_stable_offset,
        _error(part, where, offset),
    )


def _error(part: pb.FetchResponse.Partition, where: str, offset: int) -> errors.RotaError | None:
    if part.error_code != errors.CorruptMessage.code:
        return errors.error_of(part.error_code, where) if part.error_code else None
    return errors.CorruptMessage.with_message(
        f"{where} at offset {offset}: the batch is damaged in the server's file; get past it with `rota topics "
        f"delete-records {part.topic} --partition {part.index} --before {max(offset + 1, part.next_offset)}`"
    )
