"""Sidecar of a consumer or handler: a running one, or one that the application starts."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from typing_extensions import override

from rota.consumer.transport import GrpcTransport, Transport


class Subscription(NamedTuple):
    """Topics, or a pattern that matches whole topic names; both empty: not subscribed."""

    topics: Sequence[str] = ()
    pattern: str = ""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern)


class Sidecar(Protocol):
    """Opens the transport to a sidecar, and stops the process that it has started."""

    async def open(self, subscription: Subscription) -> Transport:
        """Open the transport; a sidecar that is started begins with this subscription. Raises SidecarFailed."""
        ...

    @property
    def begins_subscribed(self) -> bool:
        """Return whether it was started with the subscription, so that Subscribe is not needed."""
        ...

    @property
    def logs_here(self) -> bool:
        """Return whether the sidecar's log entries appear in this process's log."""
        ...

    def ended(self) -> str:
        """Return the reason why the sidecar is gone for good; empty while it may run."""
        ...

    async def close(self) -> None:
        """Close the transport, and stop a sidecar that was started."""
        ...


class ExternalSidecar(Sidecar):
    """A sidecar that runs independently of the application."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._transport: Transport | None = None

    @override
    async def open(self, subscription: Subscription) -> Transport:
        if self._transport is None:
            self._transport = GrpcTransport(self._address)
        return self._transport

    @property
    @override
    def begins_subscribed(self) -> bool:
        return False

    @property
    @override
    def logs_here(self) -> bool:
        return False

    @override
    def ended(self) -> str:
        return ""

    @override
    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
