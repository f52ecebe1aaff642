"""Keeps an application attached to its sidecar: comes back when the sidecar was away, says when there is none."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rota import errors
from rota.connection import BACKOFF_FIRST_S, BACKOFF_MAX_S
from rota.consumer.link import Attachment, Hearer, Link
from rota.consumer.sidecars import Sidecar, Subscription
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.consumer")
DETACH_S = 5.0


class Attaching:
    """
    One application on the running loop.

    `hello` is what it says of itself, `greet` is awaited with every attachment before anything is read from it, `gone`
    is told why there is none any more.
    """

    def __init__(
        self,
        sidecar: Sidecar,
        hello: pb.AttachRequest.Hello,
        hearer: Hearer,
        greet: Callable[[Attachment, Link], Awaitable[None]],
        gone: Callable[[errors.RotaError], None],
    ) -> None:
        self._sidecar = sidecar
        self._hello = hello
        self._hearer = hearer
        self._greet = greet
        self._gone = gone
        self._attachment: Attachment | None = None
        self._keeping: asyncio.Task[None] | None = None
        # Why there will be no attachment any more.
        self.failed: errors.RotaError | None = None

    @property
    def runs(self) -> bool:
        """Whether it has begun."""
        return self._keeping is not None

    @property
    def is_attached(self) -> bool:
        """Whether the sidecar is there, and hears what is sent."""
        return self._attachment is not None

    @property
    def linger_s(self) -> float:
        """How long verdicts may wait for others on the way to it."""
        return 0.0 if self._attachment is None else self._attachment.linger_s

    def begin(self, subscription: Subscription) -> None:
        """Attach, and stay so."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep(subscription))
            self._keeping.add_done_callback(self._look_for_break)

    async def send(self, request: pb.DeliverRequest) -> None:
        """To the sidecar, if it is there; what is said of what is gone with it would change nothing."""
        if self._attachment is not None:
            # Whoever keeps the attachment sees the same, and says why.
            with suppress(errors.Disconnected):
                await self._attachment.send(request)

    def _look_for_break(self, keeping: asyncio.Task[None]) -> None:
        """What nobody foresaw must not leave the application waiting for ever."""
        broken = None if keeping.cancelled() else keeping.exception()
        if broken is not None:
            log.error("the attachment to the sidecar broke", exc_info=broken)
            self.failed = errors.SidecarFailed(
                f"the attachment to the sidecar broke ({broken!r}): make a new consumer, and tell who makes this one"
            )
            self._gone(self.failed)

    async def _keep(self, subscription: Subscription) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                link = await self._sidecar.open(subscription)
                attachment = await link.attach(self._hello, self._hearer)
                backoff_s = BACKOFF_FIRST_S
                error = await self._stay(attachment, link)
            except errors.Disconnected as unreached:
                error = unreached
            except errors.RotaError as refused:
                self.failed = refused
                self._gone(refused)
                return
            if sentence := self._sidecar.ended():
                self.failed = error = errors.SidecarFailed(sentence)
            self._gone(error)
            if self.failed is not None:
                return
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _stay(self, attachment: Attachment, link: Link) -> errors.RotaError:
        self._attachment = attachment
        staying = asyncio.create_task(attachment.lasting())
        try:
            await self._greet(attachment, link)
            return await asyncio.shield(staying)
        except BaseException:
            staying.cancel()
            raise
        finally:
            self._attachment = None

    async def end(self) -> None:
        """Say goodbye, and come back no more."""
        if self._attachment is not None:
            try:
                async with asyncio.timeout(DETACH_S):
                    await self._attachment.detach()
            except (errors.RotaError, TimeoutError) as error:
                log.warning(
                    "the sidecar could not be told goodbye, and will think that this crashed: %s", error
                )
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
