"""
An application's credit, on its way to deliveries: no faster than what it brings is sent.

Used by `attachment`. An application may grant credit for a million records and then not read: they wait where they are
read ahead, within their bounds, and not once more here.
"""

# Handed out and not sent yet. Two messages: one on its way, one that is filled meanwhile.
UNSENT_BYTES_MAX = 8 << 20
# Before the first record has come.
RECORD_BYTES_GUESS = 1 << 10


class Allowance:
    """Counts records and bytes; decides nothing else."""

    def __init__(self) -> None:
        self._withheld = 0
        self._released = 0
        self._unsent_bytes = 0
        self._record_bytes = RECORD_BYTES_GUESS

    @property
    def outstanding(self) -> int:
        """Records that may still come."""
        return self._withheld + self._released

    def grant(self, records: int) -> None:
        """The application takes so many more."""
        self._withheld += records

    def dispatched(self, records: int, size: int) -> None:
        """So many were handed out; they are to be sent."""
        self._released -= records
        self._unsent_bytes += size
        self._record_bytes = max(size // records, 1)

    def sent(self, size: int) -> None:
        """So much waits no longer, of what came."""
        self._unsent_bytes -= size

    def release(self) -> int:
        """How much more is to be passed on, which it is by asking."""
        room = UNSENT_BYTES_MAX - self._unsent_bytes - self._released * self._record_bytes
        # However large records are, one at a time must go.
        least = 0 if self._released or self._unsent_bytes else 1
        records = min(self._withheld, max(room // self._record_bytes, least))
        self._withheld -= records
        self._released += records
        return records
