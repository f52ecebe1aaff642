"""
Batches the verdicts that a consumer sends on its stream to the sidecar.

Verdicts wait up to a few milliseconds for others, because a message costs about the same whatever its size: an application
that polls a thousand times a second would spend its time on sending them. Other requests are sent after waiting verdicts.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rota.consumer import messages
from rota.consumer.core import FinishedRange
from rota.consumer.reconnection import ReconnectingAttachment
from rota_proto.sidecar.v1 import sidecar_pb2 as pb


class VerdictBatcher:
    """Sends verdicts and other requests in order, on a running event loop."""

    def __init__(self, attachment: ReconnectingAttachment) -> None:
        self._attachment = attachment
        # A few ranges per partition at most: consecutive ranges are merged.
        self._finished: list[FinishedRange] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: set[asyncio.Task[None]] = set()

    async def finish(self, finished: Sequence[FinishedRange]) -> None:
        """Queue ACK verdicts on finished records."""
        for each in finished:
            self._add(each)
        linger_s = self._attachment.linger_s
        if not linger_s:
            await self.flush()
        elif self._finished and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(linger_s, self._flush_soon)

    def _add(self, finished: FinishedRange) -> None:
        for at, before in enumerate(self._finished):
            same = (before.partition, before.delivery_epoch) == (finished.partition, finished.delivery_epoch)
            if same and before.last + 1 == finished.first:
                self._finished[at] = replace(before, last=finished.last)
                return
        self._finished.append(finished)

    def _flush_soon(self) -> None:
        task = asyncio.create_task(self.flush())
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    async def flush(self) -> None:
        """Send all waiting verdicts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        finished, self._finished = self._finished, []
        if finished:
            await self._attachment.send(messages.acknowledged(finished))

    async def send(self, request: pb.DeliverRequest) -> None:
        """Send a request after all waiting verdicts."""
        await self.flush()
        await self._attachment.send(request)

    def forget(self) -> None:
        """Drop everything that waits: the sidecar is gone."""
        self._finished.clear()
