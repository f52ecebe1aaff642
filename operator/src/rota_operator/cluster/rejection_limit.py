"""Limits the log records of rejected Fleet streams: a misconfigured pod is worth a record, pods that retry are not worth a flood."""

from collections import deque

# Records in any WINDOW_S.
RECORDS_MAX = 10
WINDOW_S = 60.0


class RejectionLimit:
    """Admits at most RECORDS_MAX records in any WINDOW_S, and counts the others."""

    def __init__(self) -> None:
        self._admitted_s: deque[float] = deque(maxlen=RECORDS_MAX)
        self._suppressed = 0

    def admit(self, now_s: float) -> int | None:
        """Return how many rejections were not logged since the last record, or None if this one is not to be logged either."""
        if len(self._admitted_s) == RECORDS_MAX and now_s - self._admitted_s[0] < WINDOW_S:
            self._suppressed += 1
            return None
        self._admitted_s.append(now_s)
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
