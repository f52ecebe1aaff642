"""
Compresses the batches of a producer's requests. Called by the sender after it has packed a request, and before it sends it.

zlib releases the interpreter's lock, so that the threads compress beside the event loop, which may be the application's.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rota_proto.log.columns import CODEC
from rota_proto.log.compression import compress
from rota_proto.log.v1 import log_pb2 as pb

# Bytes of a request that the event loop compresses itself, which takes less than a millisecond.
ON_LOOP_MAX = 16 << 10
# The executor of the loop is not used: the application may have filled it with calls that wait for a record to be sent.
THREADS_MAX = 4

Compressed = list[tuple[int, bytes]]


class Compressor:
    """Compresses with one codec. Threads are started for the first large request."""

    def __init__(self, codec: int) -> None:
        self._codec = codec
        self._executor: ThreadPoolExecutor | None = None

    async def compress(self, batches: Sequence[pb.RecordBatch]) -> None:
        """Compress the payloads of batches that are not sent yet."""
        if self._codec == CODEC or not batches:
            return
        payloads = [batch.payload for batch in batches]
        for batch, (codec, payload) in zip(batches, await self._compressed(payloads), strict=True):
            batch.codec, batch.payload = codec, payload

    async def _compressed(self, payloads: Sequence[bytes]) -> Compressed:
        if sum(map(len, payloads)) <= ON_LOOP_MAX:
            return compressed(self._codec, payloads)
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="rota-compressor")
        try:
            running = self._executor.submit(partial(compressed, self._codec, payloads))
        except RuntimeError:
            # While the interpreter ends, it starts no threads, and others may still send.
            return compressed(self._codec, payloads)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """End the threads, without waiting for them."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def compressed(codec: int, payloads: Iterable[bytes]) -> Compressed:
    """Return codec and compressed payload of each; see `compress`."""
    return [compress(codec, payload) for payload in payloads]
