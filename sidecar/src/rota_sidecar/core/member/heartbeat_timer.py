"""Heartbeats: when the next is due, and until when the last one that was heard keeps the member alive."""

from rota_sidecar.core.member.config import MemberConfig


class HeartbeatTimer:
    """One heartbeat is under way at a time."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self.call: int | None = None
        self.due_ms = 0
        # Counted from when the request was sent: the coordinator heard it then or later.
        self.alive_until_ms = 0
        self._sent_ms = 0
        self._failures = 0

    def begin(self, acknowledged_ms: int, now_ms: int) -> None:
        """A generation begins; what was sent in the last one belongs to nobody."""
        self.call = None
        self.due_ms = now_ms + self._config.heartbeat_interval_ms
        self.alive_until_ms = acknowledged_ms + self._config.session_timeout_ms
        self._failures = 0

    def sent(self, call: int, now_ms: int) -> None:
        """A heartbeat is under way."""
        self.call, self._sent_ms = call, now_ms

    def acknowledged(self) -> None:
        """It was heard."""
        self.call = None
        self.due_ms = self._sent_ms + self._config.heartbeat_interval_ms
        self.alive_until_ms = self._sent_ms + self._config.session_timeout_ms
        self._failures = 0

    def failed(self, now_ms: int) -> None:
        """It has to be said again."""
        self.call = None
        self.due_ms = now_ms + backoff_ms(self._config, self._failures)
        self._failures += 1

    def trigger_now(self, now_ms: int) -> None:
        """Say something now."""
        self.call, self.due_ms = None, now_ms


def backoff_ms(config: MemberConfig, attempt: int) -> int:
    """
    How long to wait before the next attempt: twice as long each time.

    Never so long that a coordinator which is back within half a session is found only after the session.
    """
    longest_ms = min(config.backoff_max_ms, config.session_timeout_ms // 10)
    return min(config.backoff_ms << min(attempt, 16), longest_ms)
