"""Time of the next heartbeat, and the end of the session."""

from rota_sidecar.core.member.config import MemberConfig


class HeartbeatTimer:
    """Schedule of heartbeats. Invariant: at most one heartbeat is under way, and its call number is `call`."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self.call: int | None = None
        self.due_ms = 0
        # End of the session, counted from when the request was sent: the coordinator received it then or later.
        self.alive_until_ms = 0
        self._sent_ms = 0
        self._failures = 0

    def begin(self, acknowledged_ms: int, now_ms: int) -> None:
        """Begin a generation; a response to a heartbeat of the last one is ignored."""
        self.call = None
        self.due_ms = now_ms + self._config.heartbeat_interval_ms
        self.alive_until_ms = acknowledged_ms + self._config.session_timeout_ms
        self._failures = 0

    def sent(self, call: int, now_ms: int) -> None:
        """Record a heartbeat that was sent."""
        self.call, self._sent_ms = call, now_ms

    def acknowledged(self) -> None:
        """Extend the session from the time at which the heartbeat was sent."""
        self.call = None
        self.due_ms = self._sent_ms + self._config.heartbeat_interval_ms
        self.alive_until_ms = self._sent_ms + self._config.session_timeout_ms
        self._failures = 0

    def failed(self, now_ms: int) -> None:
        """Retry the heartbeat after a backoff."""
        self.call = None
        self.due_ms = now_ms + backoff_ms(self._config, self._failures)
        self._failures += 1

    def trigger_now(self, now_ms: int) -> None:
        """Make a heartbeat due now."""
        self.call, self.due_ms = None, now_ms


def backoff_ms(config: MemberConfig, attempt: int) -> int:
    """
    Return the delay in ms before the next attempt, which doubles with each one.

    At most a tenth of the session, so that a coordinator that returns within half a session is found within the session.
    """
    longest_ms = min(config.backoff_max_ms, config.session_timeout_ms // 10)
    return min(config.backoff_ms << min(attempt, 16), longest_ms)
