"""

Fencing of the embedded store: each transaction compares the epochs that its process knows with those in the file.
Called by the writer within its write transactions. The lock on the file keeps a second coordinator out; where locks do
not work, as on some network file systems, the epochs fence the earlier coordinator.
"""

import zlib
from collections.abc import Mapping

import apsw

from rota_coordinator.store.port import StoreTakenOver

# With `known` NULL the slot is claimed at any epoch: this process has not read its epoch, or failed to raise it.
CLAIM = (
    "INSERT INTO slots VALUES (:slot, 1) "
    "ON CONFLICT DO UPDATE SET epoch = epoch + 1 WHERE :known IS NULL OR epoch = :known RETURNING epoch"
)


def claim(connection: apsw.Connection, where: str, slot: int, known: int | None) -> int:
    """Raise the epoch of a slot that is at the epoch `known`, and return the new one."""
    # `get` runs the statement to its end, which commits it.
    raised = connection.execute(CLAIM, {"slot": slot, "known": known}).get
    if raised is None:
        raise taken_over(connection, where, {slot: known or 0})
    return int(raised)


def check(connection: apsw.Connection, where: str, epochs: Mapping[int, int]) -> None:
    """Raise StoreTakenOver unless the slots are at these epochs; for a transaction that holds the write lock."""
    if any(epoch_of(connection, slot) != epoch for slot, epoch in epochs.items()):
        raise taken_over(connection, where, epochs)


def append_batches(
    connection: apsw.Connection, where: str, epochs: Mapping[int, int], data: Mapping[int, bytes]
) -> None:
    """
    Append one batch to each of the slots, or none if one of them is at another epoch.

    One statement, its own transaction unless one is open: the writer's thread releases Python's GIL at each
    statement step, and regains it only when the busy thread of the event loop releases it.
    """
    if not data:
        return
    held = {slot: epochs[slot] for slot in data}
    values = [value for slot, batch in data.items() for value in (slot, batch, zlib.crc32(batch))]
    connection.execute(
        f"WITH new (slot, data, checksum) AS (VALUES {', '.join(['(?, ?, ?)'] * len(data))}) "
        "INSERT INTO batches "
        "SELECT slot, coalesce((SELECT max(sequence) FROM batches WHERE slot = new.slot), 0) + 1, data, checksum "
        "FROM new WHERE (SELECT count(*) FROM slots WHERE (slot, epoch) IN "
        f"(VALUES {', '.join(['(?, ?)'] * len(data))})) = {len(data)}",
        [*values, *(value for owned in held.items() for value in owned)],
    )
    if not connection.changes():
        raise taken_over(connection, where, held)


def epoch_of(connection: apsw.Connection, slot: int) -> int:
    """Return the epoch of a slot in the file; 0 before its first claim."""
    return int(connection.execute("SELECT epoch FROM slots WHERE slot = ?", (slot,)).get or 0)


def taken_over(connection: apsw.Connection, where: str, epochs: Mapping[int, int]) -> StoreTakenOver:
    """Return the error that names the first slot with another epoch."""
    slot = next((slot for slot, epoch in epochs.items() if epoch_of(connection, slot) != epoch), min(epochs))
    return StoreTakenOver(
        f"slot {slot} of {where} is not at epoch {epochs[slot]}: another coordinator has claimed it, and this one writes "
        "nothing more; run one coordinator per file"
    )
