"""A producer compresses in threads of its own, which wait for nothing of the application."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from rota.producer.compressor import ON_LOOP_MAX, Compressor
from rota_proto.log.compression import GZIP, decompress
from rota_proto.log.v1 import log_pb2 as pb

WITHIN_S = 30
NAME = "rota-compressor"


def large() -> pb.RecordBatch:
    return pb.RecordBatch(payload=bytes(ON_LOOP_MAX + 1))


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(NAME)]


@pytest.fixture
def gzip() -> Iterator[Compressor]:
    found = Compressor(GZIP)
    yield found
    started = threads()
    found.close()
    for each in started:
        each.join(WITHIN_S)
    assert threads() == []


def test_without_a_codec_batches_stay_as_they_are() -> None:
    batch = large()
    asyncio.run(Compressor(0).compress([batch]))
    assert batch == large()


def test_large_batches_are_compressed_beside_the_loop(gzip: Compressor) -> None:
    batches = [large(), pb.RecordBatch(payload=b"short"), large()]
    asyncio.run(gzip.compress(batches))
    assert [each.codec for each in batches] == [GZIP, 0, GZIP]
    assert decompress(GZIP, batches[2].payload) == large().payload
    assert len(threads()) == 1


def test_small_batches_start_no_thread(gzip: Compressor) -> None:
    batch = pb.RecordBatch(payload=bytes(ON_LOOP_MAX))
    asyncio.run(gzip.compress([batch]))
    assert batch.codec == GZIP
    assert threads() == []


def test_an_executor_of_the_application_that_is_full_is_not_waited_for(gzip: Compressor) -> None:
    released = threading.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        # As many as the default executor may have, and one that waits.
        waiting = [loop.run_in_executor(None, released.wait, WITHIN_S) for _ in range(40)]
        batch = large()
        async with asyncio.timeout(WITHIN_S):
            await gzip.compress([batch])
        assert batch.codec == GZIP
        released.set()
        assert all(await asyncio.gather(*waiting))

    asyncio.run(run())


def test_a_cancelled_request_leaves_its_batches_as_they_were(gzip: Compressor) -> None:
    async def run() -> None:
        batch = large()
        running = asyncio.create_task(gzip.compress([batch]))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert batch == large()

    asyncio.run(run())
