"""Faults of the embedded log's store and core: calls are refused, and the log is loaded again at once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.runtime.environments import LogEnvironment
from rota_coordinator.runtime.overload import Refusal
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite import SqliteStore, open_store
from rota_proto.coordinator.v1.records_pb2 import Record
from rota_proto.log.v1 import log_pb2 as pb
from tests.coordinator.virtual import Virtual

ID = b"t" * 16


class FailingStore:
    """A store whose next append fails with an unknown outcome: it is in the file, or not."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.fails = False
        self.is_written = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        if not self.fails:
            return self._store.append(slot, epoch, records)
        self.fails = False
        if self.is_written:
            self._store.append(slot, epoch, records)
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()
        loop.call_soon(failed.set_exception, StoreError("no answer"))
        return failed


async def create(log: TopicLog, name: str) -> None:
    request = pb.CreateTopicsRequest()
    request.topics.add(name=name, partitions=1)
    await log.decide(lambda core, effects: core.create_topics(request, lambda: ID, effects))


async def reloaded(log: TopicLog) -> set[str]:
    """The topics of the log once it is served again."""
    async with asyncio.timeout(10):
        while log.state is not SlotState.READY:
            await asyncio.sleep(0.001)
    return {topic.name for topic in log.core.topics()}


async def serve(virtual: Virtual, store: FailingStore) -> TopicLog:
    environment = LogEnvironment(
        store,  # type: ignore[arg-type]
        LogConfig(),
        now_ms=lambda: WallMs(0),
        new_uuid=lambda: ID,
        report=virtual.reports.append,
        report_exception=virtual.faults.append,
    )
    log = virtual.service.serve_log(environment)
    await log.start()
    return log


@pytest.mark.parametrize("is_written", [False, True])
def test_a_write_with_unknown_outcome_is_refused_and_what_is_in_the_file_counts(
    tmp_path: Path, *, is_written: bool
) -> None:
    async def story() -> None:
        virtual, file = await Virtual().start(), open_store(tmp_path / "c.db")
        store = FailingStore(file)
        log = await serve(virtual, store)
        await create(log, "before")
        store.fails, store.is_written = True, is_written
        with pytest.raises(Refusal, match="the outcome of the write is unknown: no answer"):
            await create(log, "unknown")
        expected = {"before", "unknown"} if is_written else {"before"}
        assert await reloaded(log) == expected
        assert virtual.reports == ["the log: no answer; reloading it"]
        await create(log, "after")
        assert "after" in await reloaded(log)
        await log.finish()
        await file.close()

    asyncio.run(story())


def test_a_decision_that_breaks_off_is_refused_and_what_waited_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        virtual, file = await Virtual().start(), open_store(tmp_path / "c.db")
        log = await serve(virtual, FailingStore(file))
        waiting = asyncio.ensure_future(create(log, "a"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="the log must be reloaded after an internal error; retry later"):
            await log.decide(lambda core, effects: int("no number"))
        await waiting
        assert await reloaded(log) == {"a"}
        assert [type(fault) for fault in virtual.faults] == [ValueError]
        await log.finish()
        await file.close()

    asyncio.run(story())
