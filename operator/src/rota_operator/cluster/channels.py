"""gRPC channels to Rota's coordinators, one for each address, shared by the groups there and closed with the last of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

# A coordinator that is frozen, or whose node is lost, closes no connection: after both times its streams end.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 10_000, 5_000
# gRPC's own pauses grow to two minutes: groups would be unknown for as long after their coordinator is back.
RECONNECT_MS_MAX = 2_000
# For calls of a channel that is closed: longer than their own deadlines.
CALLS_END_S = 5.0
# For an attempt to connect, which a lost node does not refuse.
CONNECT_MS = 5_000


class Channels:
    """Channels by HOST:PORT. Invariant: a channel is open while it has been taken more often than released."""

    def __init__(
        self,
        authority: Callable[[], bytes | None],
        *,
        insecure: bool,
        token_file: Path | None = None,
        keepalive_ms: int = KEEPALIVE_MS,
    ) -> None:
        """
        `authority`: returns the PEM of the certificate authority that coordinators' certificates are issued by, for each channel that
        is opened; None: the system's.
        `token_file`: with the bearer token of every call.
        """
        timeout_ms = min(keepalive_ms, KEEPALIVE_TIMEOUT_MS)
        self._options = (
            ("grpc.keepalive_time_ms", keepalive_ms),
            # Without the second one a silent peer is detected after a minute, whatever the first one is.
            ("grpc.keepalive_timeout_ms", timeout_ms),
            ("grpc.http2.ping_timeout_ms", timeout_ms),
            ("grpc.min_reconnect_backoff_ms", CONNECT_MS),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
        )
        self._authority = authority
        self._is_insecure = insecure
        self._interceptors = [] if token_file is None else [UnaryToken(token_file), StreamToken(token_file)]
        self._channels: dict[str, tuple[grpc.aio.Channel, int]] = {}
        # Released; closing takes a turn of the loop.
        self._released: list[grpc.aio.Channel] = []

    def get(self, address: str) -> grpc.aio.Channel:
        """Take the channel to an address."""
        channel, users = self._channels.get(address) or (self._open(address), 0)
        self._channels[address] = (channel, users + 1)
        return channel

    def release(self, address: str) -> bool:
        """Give a channel back; returns True if it was the last user's: `close_released` closes it."""
        channel, users = self._channels[address]
        if users > 1:
            self._channels[address] = (channel, users - 1)
            return False
        del self._channels[address]
        self._released.append(channel)
        return True

    def renew(self) -> None:
        """Release all channels for all their users, who take new ones: a channel keeps the authority that it was opened with."""
        self._released += [channel for channel, _ in self._channels.values()]
        self._channels.clear()

    async def close_released(self) -> None:
        """Close the channels that are in use no longer, once their unary calls have ended."""
        while self._released:
            await self._released.pop().close(CALLS_END_S)

    async def close(self) -> None:
        """Close all channels."""
        self.renew()
        await self.close_released()

    def _open(self, address: str) -> grpc.aio.Channel:
        if self._is_insecure:
            return grpc.aio.insecure_channel(address, options=self._options, interceptors=self._interceptors)
        return grpc.aio.secure_channel(
            address,
            grpc.ssl_channel_credentials(self._authority()),
            options=self._options,
            interceptors=self._interceptors,
        )


def with_token(details: grpc.aio.ClientCallDetails, token_file: Path) -> grpc.aio.ClientCallDetails:
    """Return a call's details with the present token; without one while the file cannot be read, which the coordinator refuses."""
    try:
        token = token_file.read_text().strip()
    except (OSError, ValueError):
        return details
    metadata = grpc.aio.Metadata(*(details.metadata or ()), ("authorization", f"Bearer {token}"))
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


class UnaryToken(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds the token to unary calls. The file is read for each: the kubelet replaces it before the token expires."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file

    @override
    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(with_token(client_call_details, self._token_file), request)


class StreamToken(grpc.aio.UnaryStreamClientInterceptor):
    """Adds the token to streams of responses."""

    def __init__(self, token_file: Path) -> None:
        self._token_file = token_file

    @override
    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(with_token(client_call_details, self._token_file), request)
