"""
The current OAuth bearer token of a process, for all of its connections to Kafka.

Made once for a login. The sidecar's own connections ask for a token at each login and re-authentication, librdkafka's
`oauth_cb` when a token is due; both get the same one. What to do is decided in `oauth_tokens`.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

from typing_extensions import override

from rota_service.oauth_sources import TokenSource
from rota_service.oauth_tokens import HeldToken, Need, NoToken, Token, may_attempt, need


class Clocks(NamedTuple):
    """Wall clock, for claims of tokens, and monotonic clock, for their life here; both in seconds."""

    wall_s: Callable[[], float]
    monotonic_s: Callable[[], float]


class TokenProvider:
    """
    Thread-safe. Calls block while the source is asked, for its time limit at most: on an event loop call from a worker thread.

    Invariant: the source is asked by one thread at a time, and a token is returned only until it expires.
    """

    def __init__(self, source: TokenSource, clocks: Clocks, warn: Callable[[str], None]) -> None:
        """Make a provider; `warn` gets one sentence when renewals begin to fail, from any thread."""
        self._source = source
        self._clocks = clocks
        self._warn = warn
        # Guards the fields below; held for moments.
        self._lock = threading.Lock()
        self._held: HeldToken | None = None
        # The last failure and its monotonic time; None since the last success.
        self._failure: NoToken | None = None
        self._failed_s: float | None = None
        # A broker has accepted a token; rejections since the last one that was accepted.
        self._was_accepted = False
        self._rejections = 0
        # Held while the source is asked.
        self._asking = threading.Lock()

    def token(self) -> Token:
        """
        Return a token for a login, with its remaining life. Raises NoToken.

        A token that is due is returned all the same, and renewed in a thread: a login does not wait for that.
        """
        with self._lock:
            what = self._need()
            is_due = what is Need.RENEW and self._may_attempt(what)
            if is_due and not self._source.is_local and not self._asking.locked():
                threading.Thread(target=self._renew, name="rota-token", daemon=True).start()
            if what is not Need.OBTAIN and not self._source.is_local:
                return self._current()
        return self.renewed()

    def renewed(self) -> Token:
        """Return a token for a re-authentication: wait for the new one if it is due, and use the old one if it fails."""
        with self._asking:
            with self._lock:
                what = Need.OBTAIN if self._source.is_local else self._need()
                if not self._may_attempt(what) and not self._source.is_local:
                    return self._current()
            self._ask()
        with self._lock:
            return self._current()

    def callback(self, _: str) -> tuple[str, float, str]:
        """
        Return token, expiry by the wall clock, and principal: `oauth_cb` of librdkafka, called in its own thread when a token is due.

        Raises NoToken; librdkafka then calls again after 10 s, and keeps the connections that it has.
        """
        token = self.renewed()
        return token.value, self._clocks.wall_s() + token.lifetime_s, token.subject

    def accept(self) -> None:
        """Record that a broker has accepted a token."""
        with self._lock:
            self._was_accepted, self._rejections = True, 0

    def reject(self, value: str) -> bool:
        """
        Record that a broker has rejected a token: it is not used again. Return whether a later one may be accepted.

        After an accepted one, a token may be out of date only, or the clocks differ. Before, the settings are wrong. The source is
        asked for the next token at once, and for further ones with pauses.
        """
        with self._lock:
            if self._held is not None and self._held.token.value == value:
                self._held = None
            self._rejections += 1
            if self._rejections > 1:
                self._failure = NoToken(
                    f"brokers reject the tokens of {self._source}; see their logs", may_heal=True
                )
                self._failed_s = self._clocks.monotonic_s()
            return self._was_accepted

    @override
    def __str__(self) -> str:
        """Return the name of the source, for messages."""
        return str(self._source)

    def _need(self) -> Need:
        return need(self._held, self._clocks.monotonic_s())

    def _may_attempt(self, what: Need) -> bool:
        return may_attempt(what, self._failed_s, self._clocks.monotonic_s())

    def _current(self) -> Token:
        """Return the held token; raise the last failure if there is none that can be used."""
        now_s = self._clocks.monotonic_s()
        if self._held is not None and need(self._held, now_s) is not Need.OBTAIN:
            token = self._held.token
            return Token(token.value, token.subject, self._held.expires_s - now_s)
        if self._failure is None:
            raise NoToken(
                f"the broker rejected the token of {self._source}; ask for a new one", may_heal=True
            )
        # A copy: an exception that is raised twice would have both tracebacks.
        raise NoToken(*self._failure.args, may_heal=self._failure.may_heal)

    def _renew(self) -> None:
        with self._asking:
            with self._lock:
                if not self._may_attempt(self._need()):
                    return
            self._ask()

    def _ask(self) -> None:
        """Ask the source; the lock `_asking` is held."""
        began_s = self._clocks.monotonic_s()
        try:
            token = self._source.obtain(self._clocks.wall_s())
        except NoToken as failure:
            self._fail(failure)
            return
        with self._lock:
            self._failure = self._failed_s = None
            self._held = HeldToken(token, began_s)

    def _fail(self, failure: NoToken) -> None:
        with self._lock:
            is_first, self._failure = self._failure is None, failure
            self._failed_s = now_s = self._clocks.monotonic_s()
            left_s = 0.0 if self._held is None else self._held.expires_s - now_s
        if is_first and left_s > 0:
            self._warn(
                f"the token for Kafka cannot be renewed, and is valid for {left_s:.0f} s more: {failure}"
            )
