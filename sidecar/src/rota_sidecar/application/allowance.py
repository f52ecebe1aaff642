"""
Flow control between the application's credit and the delivery core. Used by `attachment`.

An application may grant credit for a million records and then not read. Credit is released to the core only as far as its
records are expected to fit into `UNSENT_BYTES_MAX`; further records wait where they are prefetched, within those limits.
"""

# Limit of dispatched records that are not sent: two messages, one being sent and one being filled.
UNSENT_BYTES_MAX = 8 << 20
# The assumed size of a record before the first one.
RECORD_BYTES_GUESS = 1 << 10


class Allowance:
    """
    Invariant: granted credit is withheld, released to the core, or used by dispatched records.
    """

    def __init__(self) -> None:
        self._withheld = 0
        self._released = 0
        self._unsent_bytes = 0
        self._record_bytes = RECORD_BYTES_GUESS

    @property
    def outstanding(self) -> int:
        """The number of records that may still be dispatched."""
        return self._withheld + self._released

    def grant(self, records: int) -> None:
        """Add credit of the application."""
        self._withheld += records

    def dispatched(self, records: int, size: int) -> None:
        """Count dispatched records, and their bytes as unsent."""
        self._released -= records
        self._unsent_bytes += size
        self._record_bytes = max(size // records, 1)

    def sent(self, size: int) -> None:
        """Subtract bytes that were sent or dropped from the unsent bytes."""
        self._unsent_bytes -= size

    def release(self) -> int:
        """Release credit and return it: the number of further records that the core may dispatch."""
        room = UNSENT_BYTES_MAX - self._unsent_bytes - self._released * self._record_bytes
        # One record may always be dispatched, whatever its size.
        least = 0 if self._released or self._unsent_bytes else 1
        records = min(self._withheld, max(room // self._record_bytes, least))
        self._withheld -= records
        self._released += records
        return records
