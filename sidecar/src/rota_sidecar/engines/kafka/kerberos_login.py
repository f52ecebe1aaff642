"""
Perform a Kerberos login: checks of the keytab, calls of the library in a thread, and the meaning of their errors.

`login.py` calls `next`, at first without a message and then with each one of the broker, and sends what it returns. The library
blocks while it asks the KDC, for half a minute if that is silent. Each login therefore has a thread of its own, a daemon: one that
waits for the KDC keeps neither the event loop nor the end of the process.
"""

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

from rota_sidecar.engines.kafka import gssapi, kerberos
from rota_sidecar.engines.kafka.failures import Failure
from rota_sidecar.engines.kafka.kerberos import Login
from rota_sidecar.engines.kafka.keytab import NoKeytab, has_principal, principals_in
from rota_sidecar.engines.kafka.scram import Exchange, Unproved
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.port import Refused, Unreachable

# Logins at a time. A member has a handful of connections; those that wait for a silent KDC are replaced every few seconds.
LOGINS_MAX = 32
_logins = threading.BoundedSemaphore(LOGINS_MAX)
# Identities whose login a broker has accepted. Used on the event loop only.
_accepted: set[gssapi.Identity] = set()

Message = bytes | None
"""What a login sends next; None at its end."""


class _Job(NamedTuple):
    """A call in the login's thread, and where its result goes."""

    received: Message
    loop: asyncio.AbstractEventLoop
    result: "asyncio.Future[Message]"


class KerberosConversation:
    """
    The client's side of one login.

    Invariant: only the login's own thread calls the library for it, and releases the context at the end.
    """

    def __init__(self, login: Login) -> None:
        """Start the thread. Raises Unreachable if too many logins wait already."""
        if not _logins.acquire(blocking=False):
            raise Unreachable(
                f"{LOGINS_MAX} Kerberos logins wait for the KDC already; retry when some have ended"
            )
        self._limit = _logins
        self._login = login
        self._identity = gssapi.Identity(login.principal, login.keytab)
        self._context: gssapi.Context | None = None
        self._exchange: Exchange | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._run, name="rota-kerberos", daemon=True).start()

    @property
    def lifetime_s(self) -> float:
        """Return infinity: brokers do not end a session with its ticket."""
        return math.inf

    async def next(self, received: Message) -> Message:
        """Return the message to send after this one of the broker, None at first. Raises Unreachable, Refused, Unproved."""
        loop = asyncio.get_running_loop()
        job = _Job(received, loop, loop.create_future())
        self._jobs.put(job)
        return await job.result

    def accept(self) -> None:
        """Take note that these settings are right: later rejections are retried."""
        _accepted.add(self._identity)

    def reject(self, address: Address) -> Failure:
        """
        Return the failure for a rejected login, whose reason the broker does not give.

        If an earlier login was accepted, the settings are right, and what has changed may heal: the clocks, or the broker's
        key, for which the next login gets new tickets.
        """
        message = (
            f"Kafka at {address} rejects the login of {self._login.who} with {kerberos.MECHANISM}; "
            f"check that the broker's keytab has the current key of {self._login.service}, and that the clocks of the broker, "
            "this machine and the KDC agree within five minutes"
        )
        gssapi.discard_tickets(self._identity)
        return Unreachable(message) if self._identity in _accepted else Refused(message)

    def close(self) -> None:
        """Let the thread release what it holds, as soon as it returns from the library, and end."""
        self._jobs.put(None)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._perform(job)
        finally:
            if self._context is not None:
                self._context.close()
            self._limit.release()

    def _perform(self, job: _Job) -> None:
        report: Callable[[], None]
        try:
            message = self._advance(job.received)
        except Exception as error:  # noqa: BLE001  raised again where it is awaited
            failure = error
            report = lambda: job.result.set_exception(failure)
        else:
            report = lambda: job.result.set_result(message)

        def deliver() -> None:
            if not job.result.done():
                report()

        # The event loop has ended if the process is about to.
        with suppress(RuntimeError):
            job.loop.call_soon_threadsafe(deliver)

    def _advance(self, received: Message) -> Message:
        if self._exchange is None or received is None:
            return self._begin()
        try:
            return self._exchange.send(received)
        except StopIteration:
            return None
        except gssapi.GssFailure as error:
            raise Unproved(str(error)) from None

    def _begin(self) -> bytes:
        self._check_keytab()
        try:
            try:
                return self._first()
            except gssapi.GssFailure as error:
                if error.minor != kerberos.TICKET_EXPIRED or self._identity.keytab is None:
                    raise
                # The library uses an expired ticket if it cannot renew it, and hides why. A new cache shows the reason.
                gssapi.discard_tickets(self._identity)
                return self._first()
        except gssapi.GssFailure as error:
            raise kerberos.failure_of(error.minor, str(error), self._login) from None
        except gssapi.LibraryMissing as error:
            raise Refused(
                f"Kerberos requires the library {gssapi.LIBRARY} ({error}); install Debian's package libgssapi-krb5-2"
            ) from None

    def _first(self) -> bytes:
        if self._context is not None:
            self._context.close()
        self._context = gssapi.Context(self._identity, self._login.service_name, self._login.address.host)
        self._exchange = kerberos.exchange(self._context)
        return next(self._exchange)

    def _check_keytab(self) -> None:
        """Say what is wrong with a keytab, for which the library has one message: no credentials cache. Raises Refused."""
        file, principal = self._login.keytab, self._login.principal
        if file is None:
            return
        try:
            principals = principals_in(file.read_bytes())
        except OSError as error:
            raise Refused(
                f"the keytab {file} cannot be read ({error.strerror}); check its path and mode"
            ) from None
        except NoKeytab:
            raise Refused(f"{file} is not a keytab; write it with ktadd or ktutil") from None
        if not principals:
            raise Refused(f"the keytab {file} has no keys; write it again with ktadd or ktutil")
        if principal and not has_principal(principal, principals):
            raise Refused(
                f"the keytab {file} has no key of principal {principal!r}, but of {', '.join(principals)}; "
                "give one of these as the principal, or another keytab"
            )
