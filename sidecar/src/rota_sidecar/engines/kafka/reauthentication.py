"""
Re-authentication of a connection (KIP-368): a broker closes a connection that sends a request after its session has expired.

The answer to a login states the session's lifetime. `connection.connect` starts `keep_authenticated` for it, which logs in
again on the same connection, between two requests, before the session expires. So no member is dropped, with any mechanism.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from rota_sidecar.engines.kafka import failures
from rota_sidecar.engines.kafka.failures import Failure
from rota_sidecar.engines.kafka.login import Channel, PreparedLogin, log_in, prepare
from rota_sidecar.engines.kafka.settings import Address, Sasl
from rota_sidecar.engines.port import Refused, Unreachable

# Parts of a session's lifetime: when credentials are looked for, and from when on requests wait for them. Kafka's clients begin
# at 85 to 95 %, with a token that is there already. A token that is as old as its session is due at the first of them.
BEGIN_PART, HOLD_PART = 0.8, 0.85
# Brokers refuse a re-authentication within a second of the last one.
PAUSE_MIN_S = 1.1
# Pause before credentials are looked for again.
RETRY_S = 1.0
# A token that outlives the session by less is of no use: the next session would end with it.
GAIN_MIN_S = 1.0
# Timeout of each request of a re-authentication.
REQUEST_S = 30.0


class Timing(NamedTuple):
    """Times of a re-authentication, in seconds after the login."""

    begin_s: float
    # From then on requests wait: one that arrives behind the end of the session would end the connection.
    hold_s: float


def timing_of(lifetime_s: float) -> Timing:
    """Decide when a session of this lifetime is renewed; pure."""
    begin_s = max(BEGIN_PART * lifetime_s, PAUSE_MIN_S)
    return Timing(begin_s, max(HOLD_PART * lifetime_s, begin_s))


class Renewable(Protocol):
    """A connection that stays open over sessions: `connection.Connection`."""

    @property
    def address(self) -> Address:
        """The broker's address."""
        ...

    def alone(self) -> AbstractAsyncContextManager[Channel]:
        """Wait for the requests in flight, and hold back others; yields the channel for a login."""
        ...

    def end(self, failure: Failure) -> None:
        """End the connection for this reason."""
        ...


async def keep_authenticated(connection: Renewable, sasl: Sasl, lifetime_s: float) -> None:
    """Log in again before each session expires, until the broker states no lifetime (0). A failure ends the connection."""
    try:
        while lifetime_s > 0:
            lifetime_s = await _next_session(connection, sasl, lifetime_s)
    except (Unreachable, Refused) as failure:
        connection.end(failures.again(failure))


async def _next_session(connection: Renewable, sasl: Sasl, lifetime_s: float) -> float:
    """Log in again; return the lifetime of the next session. Raises Unreachable, Refused."""
    began_s, timing = asyncio.get_running_loop().time(), timing_of(lifetime_s)
    await asyncio.sleep(timing.begin_s)
    # Looked for while requests go on, as a token endpoint or a KDC may take a while. Then they wait: a broker accepts a login
    # also after the session has expired, but no other request.
    preparing = asyncio.create_task(_prepared(sasl, connection.address, began_s + lifetime_s))
    try:
        await asyncio.wait([preparing], timeout=timing.hold_s - timing.begin_s)
        async with connection.alone() as channel:
            return await log_in(channel, await preparing, REQUEST_S)
    finally:
        preparing.cancel()
        if preparing.done() and not preparing.cancelled() and preparing.exception() is None:
            preparing.result().close()


async def _prepared(sasl: Sasl, address: Address, ends_s: float) -> PreparedLogin:
    """
    Prepare a login with credentials that outlive the session, which ends then; without any raise the last failure.

    Raises Unreachable, Refused.
    """
    clock = asyncio.get_running_loop().time
    while True:
        failure: Failure = Unreachable(
            f"{sasl.tokens} has no token that is valid for longer than the session; check that it renews its tokens"
        )
        try:
            login = await prepare(sasl, address, is_due=True)
            if clock() + login.conversation.lifetime_s > ends_s + GAIN_MIN_S:
                return login
            login.close()
        except (Unreachable, Refused) as error:
            failure = error
        if clock() >= ends_s:
            raise failure
        await asyncio.sleep(RETRY_S)
