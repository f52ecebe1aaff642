"""Reports of events that may come in floods, with their count. Called with each event, and the time."""

import math
from collections.abc import Callable

REPORT_EVERY_S = 10


class RejectionLog:
    """
    Reports rejections with their count. Invariant: at most one line in `REPORT_EVERY_S` seconds, so no flood fills the
    log.
    """

    def __init__(self, report: Callable[[str], None], what: str) -> None:
        self._report = report
        self._what = what
        self._count = 0
        self._silent_until_s = -math.inf

    def add(self, peer: str, why: str, now_s: float) -> None:
        """Count one rejection, and report it unless another one was reported a moment ago."""
        self._count += 1
        if now_s >= self._silent_until_s:
            self._report(f"{self._count} {self._what}, the last one from {peer}: {why}")
            self._count = 0
            self._silent_until_s = now_s + REPORT_EVERY_S
