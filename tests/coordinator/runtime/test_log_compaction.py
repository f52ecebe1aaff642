"""Compaction of the embedded log over a real file, while records are read, topics are deleted and quotas are charged."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import count
from pathlib import Path

import apsw

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.administration import Creator
from rota_coordinator.core.log.batch import Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.quotas import Quotas, reserve_unlimited
from rota_coordinator.runtime.compaction import STEP_BYTES, Compaction
from rota_coordinator.runtime.environments import LogEnvironment
from rota_coordinator.runtime.fetches import Fetches
from rota_coordinator.runtime.offset_lookups import OffsetLookups
from rota_coordinator.runtime.slot import Slot
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.store.sqlite import SqliteStore, open_store
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import unpack
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.compacting import Record, keyed
from tests.log.engine import NO_IDENTITY, START_MS, TOPIC, Producer

OWNER = "owner"
CONFIG = LogConfig(min_compaction_lag_ms=0)
COMMITTED = pb.ISOLATION_LEVEL_READ_COMMITTED
A, B = b"a", b"b"


class NoGroups:
    """Groups of a log whose transactions have none."""

    slots: Sequence[Slot] = ()

    def slot(self, group_id: str) -> Slot:
        raise AssertionError(group_id)


class InterruptedStore:
    """A store at whose next read something happens, before the read returns."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def read(self, log_id: int, offset: int, until: int, max_bytes: int) -> Sequence[Row]:
        rows = await self._store.read(log_id, offset, until, max_bytes)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return rows


class Served(TopicLog):
    """A log on a file, and what it reports."""

    def __init__(self, store: SqliteStore) -> None:
        self.now_ms = START_MS
        self.reports: list[str] = []
        self.interrupted = InterruptedStore(store)
        ids = count(1)
        environment = LogEnvironment(
            store,
            CONFIG,
            lambda: WallMs(self.now_ms),
            lambda: next(ids).to_bytes(16, "big"),
            self.reports.append,
            self._raise,
            quotas=Quotas(),
        )
        super().__init__(environment, NoGroups())
        self.compaction = Compaction(self, self.interrupted)  # type: ignore[arg-type]
        self.fetches = Fetches(self, self.interrupted)  # type: ignore[arg-type]

    @staticmethod
    def _raise(error: Exception) -> None:
        raise error

    async def create(self) -> None:
        request = pb.CreateTopicsRequest()
        request.topics.add(name=TOPIC, partitions=1, cleanup_policy=pb.CLEANUP_POLICY_COMPACT)
        creator = Creator(OWNER, reserve_unlimited)
        await self.decide(
            lambda core, effects: core.create_topics(request, self.environment.new_uuid, effects, creator)
        )

    async def put(
        self, *records: Record, producer: Producer = NO_IDENTITY, sequence: int = -1, codec: int = 0
    ) -> None:
        batch = keyed(records, producer, sequence, codec)
        asked = pb.ProduceRequest.Partition(topic=TOPIC, index=0, batches=[batch])
        reply = await self.decide(
            lambda core, effects: core.append(asked, producer.transactional_id, WallMs(self.now_ms), effects)
        )
        assert not reply.error_code, reply.error_message

    async def read(self, offset: int = 0, max_bytes: int = 0) -> pb.FetchResponse.Partition:
        request = pb.FetchRequest(isolation_level=COMMITTED)
        request.partitions.add(topic=TOPIC, index=0, offset=offset, max_bytes=max_bytes)
        return (await self.fetches.fetch(request)).partitions[0]

    async def records(self, max_bytes: int = 0) -> list[tuple[int, Record]]:
        """All records with their offsets, read page by page."""
        found: list[tuple[int, Record]] = []
        offset, page = -1, await self.read(0, max_bytes)
        while page.next_offset > offset:
            for batch in page.batches:
                columns = unpack(batch.payload, batch.count, batch.base_timestamp_ms)
                assert columns.keys is not None
                assert columns.values is not None
                pairs = zip(columns.keys, columns.values, strict=True)
                found += enumerate(pairs, batch.base_offset)
            offset = page.next_offset
            page = await self.read(offset, max_bytes)
        return found


def play(folder: Path, story: Callable[[Served], Coroutine[None, None, None]]) -> None:
    """Run the story with a log on a new file."""

    async def run() -> None:
        store = open_store(folder / "c.db")
        log = Served(store)
        try:
            await log.start()
            await log.create()
            await story(log)
        finally:
            log.stop()
            await store.close()

    asyncio.run(run())


def test_a_compacted_log_is_read_without_what_was_removed_and_its_owner_is_charged_less(
    tmp_path: Path,
) -> None:
    async def story(log: Served) -> None:
        for number in range(50):
            await log.put((A, b"%d" % number * 100), (b"%d" % number, b""), (B, b"%d" % number))
        await log.put((b"last", b""))
        await log.compaction.run()
        left = [(3 * number + 1, (b"%d" % number, b"")) for number in range(50)]
        expected = [*left[:-1], (147, (A, b"49" * 100)), left[-1], (149, (B, b"49")), (150, (b"last", b""))]
        assert await log.records() == expected
        # Pages of single batches.
        assert await log.records(max_bytes=1) == expected
        sizes = await log.environment.store.sizes()
        assert log.environment.quotas.used(OWNER).log_bytes == sum(sizes.values()) < 50 * (256 + 200)
        # A consumer that stands in a gap goes on behind it.
        assert (await log.read(2)).batches[0].base_offset == 4
        log.stop()
        await log.start()
        assert await log.records() == expected
        assert log.reports == []

    play(tmp_path, story)


def test_a_batch_with_many_gaps_is_sent_within_the_limit_of_a_response(tmp_path: Path) -> None:
    keys = [A if number % 2 else b"%d" % number for number in range(20_001)]

    async def story(log: Served) -> None:
        await log.put(*((key, b"v") for key in keys), codec=1)
        await log.put((B, b""))
        await log.compaction.run()
        page = await log.read(0, 100_000)
        assert page.ByteSize() < 100_000
        assert len(page.batches) > 500
        assert page.next_offset == page.batches[-1].base_offset + 2
        offsets = [offset for offset, _ in await log.records(100_000)]
        assert offsets == [*range(0, 19_999, 2), 19_999, 20_000, 20_001]

    play(tmp_path, story)


def test_times_are_found_among_records_that_are_left(tmp_path: Path) -> None:
    async def story(log: Served) -> None:
        await log.put((A, b"0"), (B, b"1"), (A, b"2"), (b"c", b"3"), (b"d", b"4"))
        await log.put((A, b""), (b"c", b""))
        await log.put((b"e", b""))
        await log.compaction.run()
        lookups = OffsetLookups(log, log.environment.store)
        found = []
        for time in (START_MS, START_MS + 1, START_MS + 2, START_MS + 4):
            request = pb.ListOffsetsRequest()
            request.partitions.add(topic=TOPIC, index=0, timestamp_ms=time)
            (reply,) = (await lookups.list_offsets(request)).partitions
            found.append((reply.offset, reply.timestamp_ms - START_MS))
        assert found == [(1, 1), (1, 1), (4, 4), (4, 4)]

    play(tmp_path, story)


async def begin(log: Served) -> Producer:
    request = pb.InitProducerRequest(transactional_id="t", transaction_timeout_ms=60_000)
    made = await log.decide(lambda core, effects: core.init_producer(request, WallMs(log.now_ms), effects))
    return Producer(made.producer_id, made.producer_epoch, "t")


async def end(log: Served, producer: Producer, *, commit: bool) -> None:
    request = pb.EndTransactionRequest(
        transactional_id="t", producer_id=producer.producer_id, producer_epoch=producer.epoch, commit=commit
    )
    reply = await log.decide(lambda core, effects: core.end(request, codes.NONE, WallMs(log.now_ms), effects))
    assert not reply.error_code


def test_a_fetch_that_a_pass_overtakes_returns_no_aborted_records(tmp_path: Path) -> None:
    async def story(log: Served) -> None:
        producer = await begin(log)
        await log.put((A, b"aborted"), producer=producer, sequence=0)
        await end(log, producer, commit=False)
        log.now_ms += CONFIG.sequences_expire_ms
        await log.put((B, b"1"))
        await log.put((B, b"2"))
        # What is remembered of the newest rows is gone after a restart.
        log.stop()
        await log.start()
        log.interrupted.meanwhile = log.compaction.run
        assert await log.records() == [(2, (B, b"1")), (3, (B, b"2"))]
        assert log.interrupted.meanwhile is None

    play(tmp_path, story)


def test_a_reader_gets_to_the_last_stable_offset_when_nothing_is_left_before_it(tmp_path: Path) -> None:
    async def abort_and_begin(log: Served) -> None:
        """Offsets of an aborted transaction, which compaction removes, before those of an open one."""
        producer = await begin(log)
        await log.put((B, bytes(1_000)), producer=producer, sequence=0)
        await end(log, producer, commit=False)
        log.now_ms += CONFIG.sequences_expire_ms
        await log.put((B, b"open"), producer=await begin(log), sequence=0)

    async def story(log: Served) -> None:
        request = pb.AlterTopicsRequest()
        request.topics.add(name=TOPIC, delete_retention_ms=1)
        await log.decide(lambda core, effects: core.alter_topics(request, effects))
        await log.put((A, b"1"))
        await log.put((A, None))
        await abort_and_begin(log)
        await log.compaction.run()
        page = await log.read(0)
        assert [batch.base_offset for batch in page.batches] == [1]
        assert page.last_stable_offset == 4
        # Initializes the producer anew, which aborts its open transaction.
        await abort_and_begin(log)
        await log.compaction.run()
        page = await log.read(0)
        assert list(page.batches) == []
        assert page.next_offset == page.last_stable_offset == 8

    play(tmp_path, story)


def test_a_pass_ends_when_the_topic_is_deleted_or_the_log_is_reloaded(tmp_path: Path) -> None:
    async def delete(log: Served) -> None:
        request = pb.DeleteTopicsRequest(names=[TOPIC])
        await log.decide(lambda core, effects: core.delete_topics(request, effects))
        await log.create()

    async def reload(log: Served) -> None:
        log.stop()
        await log.start()

    async def story(log: Served) -> None:
        for meanwhile in (delete, reload):
            for number in range(3):
                await log.put((A, b"%d" % number * STEP_BYTES))
            log.interrupted.meanwhile = lambda: meanwhile(log)  # noqa: B023
            await log.compaction.run()
            assert log.reports == []
        assert [offset for offset, _ in await log.records()] == [0, 1, 2]
        await log.compaction.run()
        assert [offset for offset, _ in await log.records()] == [1, 2]

    play(tmp_path, story)


def test_a_damaged_batch_is_reported_once_and_other_topics_are_compacted(tmp_path: Path) -> None:
    async def story(log: Served) -> None:
        for number in range(3):
            await log.put((A, b"%d" % number))
        connection = apsw.Connection(str(tmp_path / "c.db"))
        connection.execute("UPDATE payloads SET data = zeroblob(length(data))")
        connection.close()
        for _ in range(2):
            await log.compaction.run()
        (report,) = log.reports
        assert report.startswith(f"compaction of {TOPIC}-0: the batch at offset 0 of log 1")
        request = pb.DeleteRecordsRequest()
        request.partitions.add(topic=TOPIC, index=0, before_offset=3)
        await log.delete_records(request)
        await log.put((A, b""))
        await log.put((A, b""))
        await log.compaction.run()
        assert log.reports[1:] == [f"compaction of {TOPIC}-0: recovered"]

    play(tmp_path, story)
