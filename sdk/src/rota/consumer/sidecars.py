"""Where a consumer's or handler's sidecar comes from: one that is there, or one that is started here."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from typing_extensions import override

from rota.consumer.transport import GrpcTransport, Transport


class Subscription(NamedTuple):
    """What an application wants to read: topics, or all whose whole name matches the pattern; nothing = not said yet."""

    topics: Sequence[str] = ()
    pattern: str = ""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern)


class Sidecar(Protocol):
    """What engines reach through a transport."""

    async def open(self, subscription: Subscription) -> Transport:
        """The transport; a sidecar that is started begins with this subscription. Raises SidecarFailed."""
        ...

    @property
    def begins_subscribed(self) -> bool:
        """Whether it was started with that subscription, so that nobody has to tell it."""
        ...

    @property
    def logs_here(self) -> bool:
        """Whether the log of this process has what the sidecar logs."""
        ...

    def ended(self) -> str:
        """Why there is no sidecar any more and never will be, in a sentence; empty while there may be one."""
        ...

    async def close(self) -> None:
        """Give up the transport, and end what was started."""
        ...


class ExternalSidecar(Sidecar):
    """One that is there already, and stays."""

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
