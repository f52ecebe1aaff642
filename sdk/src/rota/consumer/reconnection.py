"""Keeps an application attached to its sidecar: reattaches with backoff after a disconnect, fails when the sidecar is gone for good."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rota import errors
from rota.connection import BACKOFF_FIRST_S, BACKOFF_MAX_S
from rota.consumer.sidecars import Sidecar, Subscription
from rota.consumer.transport import Attachment, SidecarListener, Transport
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.consumer")
DETACH_S = 5.0


class ReconnectingAttachment:
    """
    Attachment of one application, on the running event loop. Invariant: at most one is open.

    `hello` describes the application, `on_attached` is awaited with every attachment before anything is read from it, and
    `on_detached` is called with the reason when it ends.
    """

    def __init__(
        self,
        sidecar: Sidecar,
        hello: pb.AttachRequest.Hello,
        listener: SidecarListener,
        on_attached: Callable[[Attachment, Transport], Awaitable[None]],
        on_detached: Callable[[errors.RotaError], None],
    ) -> None:
        self._sidecar = sidecar
        self._hello = hello
        self._listener = listener
        self._on_attached = on_attached
        self._on_detached = on_detached
        self._attachment: Attachment | None = None
        self._task: asyncio.Task[None] | None = None
        # Reason why there will be no further attachment.
        self.failed: errors.RotaError | None = None

    @property
    def runs(self) -> bool:
        """Return whether `begin` was called."""
        return self._task is not None

    @property
    def is_attached(self) -> bool:
        """Return whether the sidecar is attached and receives requests."""
        return self._attachment is not None

    @property
    def linger_s(self) -> float:
        """Seconds that verdicts may wait to be batched."""
        return 0.0 if self._attachment is None else self._attachment.linger_s

    def begin(self, subscription: Subscription) -> None:
        """Attach, and reattach after each disconnect."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(subscription))
            self._task.add_done_callback(self._on_task_done)

    async def send(self, request: pb.DeliverRequest) -> None:
        """Send a request while attached; drop it otherwise, as the sidecar has forgotten what it is about."""
        if self._attachment is not None:
            # The task that keeps the attachment sees the same error, and reports it.
            with suppress(errors.Disconnected):
                await self._attachment.send(request)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Fail after an unexpected exception: the application must not wait forever."""
        broken = None if task.cancelled() else task.exception()
        if broken is not None:
            log.error("the attachment to the sidecar failed unexpectedly", exc_info=broken)
            self.failed = errors.SidecarFailed(
                f"the attachment to the sidecar failed unexpectedly ({broken!r}): create a new consumer, and report this as a bug"
            )
            self._on_detached(self.failed)

    async def _run(self, subscription: Subscription) -> None:
        backoff_s = BACKOFF_FIRST_S
        while True:
            try:
                transport = await self._sidecar.open(subscription)
                attachment = await transport.attach(self._hello, self._listener)
                backoff_s = BACKOFF_FIRST_S
                error = await self._stay(attachment, transport)
            except errors.Disconnected as unreached:
                error = unreached
            except errors.RotaError as refused:
                self.failed = refused
                self._on_detached(refused)
                return
            if reason := self._sidecar.ended():
                self.failed = error = errors.SidecarFailed(reason)
            self._on_detached(error)
            if self.failed is not None:
                return
            await asyncio.sleep(backoff_s * random.uniform(0.8, 1.2))
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _stay(self, attachment: Attachment, transport: Transport) -> errors.RotaError:
        self._attachment = attachment
        staying = asyncio.create_task(attachment.wait_ended())
        try:
            await self._on_attached(attachment, transport)
            return await asyncio.shield(staying)
        except BaseException:
            staying.cancel()
            raise
        finally:
            self._attachment = None

    async def end(self) -> None:
        """Detach cleanly, and do not reattach."""
        if self._attachment is not None:
            try:
                async with asyncio.timeout(DETACH_S):
                    await self._attachment.detach()
            except (errors.RotaError, TimeoutError) as error:
                log.warning(
                    "detaching from the sidecar failed, it will treat this as a crash of the application: %s",
                    error,
                )
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
