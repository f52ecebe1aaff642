"""Tracks how long a consumer's sidecar has been unreachable: first a warning, then the error that polls raise."""

import logging
from collections.abc import Callable

from rota import errors

log = logging.getLogger("rota.consumer")
# Startup grace: a sidecar that starts beside the application needs a moment.
STARTUP_GRACE_S = 3.0


class Outage:
    """
    The time since attaching to the sidecar failed for the first time.

    Invariant: an absence longer than `STARTUP_GRACE_S` is logged once, as a warning; one longer than `limit_s` is raised.
    """

    def __init__(self, clock: Callable[[], float], limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._since_s = 0.0
        self._is_logged = False
        # Error of the last attempt; None while the consumer is attached or has not tried yet.
        self.error: errors.RotaError | None = None

    def on_failure(self, error: errors.RotaError) -> None:
        """Record that the attachment ended, or that another attempt to attach failed."""
        now_s = self._clock()
        if self.error is None:
            self._since_s = now_s
        self.error = error
        if now_s - self._since_s >= STARTUP_GRACE_S and not self._is_logged:
            self._is_logged = True
            log.warning("%s", error)

    def on_attached(self) -> None:
        """Record that the consumer is attached."""
        self.error, self._is_logged = None, False

    def check(self) -> None:
        """Raise the last error once the absence is longer than the limit."""
        if self.error is not None and self._clock() - self._since_s >= self._limit_s:
            raise self.error.with_traceback(None)
