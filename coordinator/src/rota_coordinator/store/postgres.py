"""
The store of several processes: all slots in one PostgreSQL database.

The database decides by its clock which processes are alive, and which one owns each slot. Renewals, appends and long
reads have separate connections, so that a renewal never waits for an append, nor an append for a long read.
Transactions lock slots first, then processes, each in order; renewals lock no slots.
"""

import asyncio
import uuid
from collections.abc import Sequence

from rota_coordinator.core.slots.table import Process, Row, Table
from rota_coordinator.store import batches
from rota_coordinator.store.appends import Append, append_of, slot_lost
from rota_coordinator.store.port import LEASE_MS_MAX, Claim, LeaseLost, SlotLost
from rota_coordinator.store.postgres_appends import Appends
from rota_coordinator.store.postgres_connection import Connection, SerialConnection, parse_dsn
from rota_coordinator.store.postgres_schema import prepare
from rota_proto.coordinator.v1.records_pb2 import Record

# Timeout of loading and compacting a slot, in ms; only the slot itself waits for them.
LONG_MS = 30_000
# Rows per query on loading, so that a large slot is not held in memory twice.
READ_ROWS = 1_000
READ_BYTES = 8 * 1024 * 1024

# The new row starts with a valid lease; slots of the deleted process have no live owner.
REGISTER = """
WITH old AS (DELETE FROM rota.processes WHERE process_id = %(old)s)
INSERT INTO rota.processes
VALUES (%(new)s, %(address)s, clock_timestamp() + %(lease_ms)s * interval '1 ms')
"""
# Processes with an expired lease are deleted, so that no change of the clock revives them. Only live processes delete,
# and skip locked rows: a renewal locks its own row first and waits for no other.
# A lease above the maximum was granted before the clock was set back, and its process may be dead: it is shortened.
# The last condition returns no rows for a renewal after the lease expired.
RENEW = """
WITH renewed AS (
    UPDATE rota.processes SET lease_until = clock_timestamp() + %(lease_ms)s * interval '1 ms'
    WHERE process_id = %(me)s AND lease_until > clock_timestamp()
    RETURNING process_id
), ended AS (
    DELETE FROM rota.processes WHERE process_id IN (
        SELECT process_id FROM rota.processes
        WHERE EXISTS (SELECT FROM renewed) AND process_id <> %(me)s AND lease_until <= clock_timestamp()
        FOR UPDATE SKIP LOCKED
    ) RETURNING process_id
), shortened AS (
    UPDATE rota.processes SET lease_until = clock_timestamp() + %(longest_ms)s * interval '1 ms'
    WHERE process_id IN (
        SELECT process_id FROM rota.processes
        WHERE EXISTS (SELECT FROM renewed) AND process_id <> %(me)s
            AND lease_until > clock_timestamp() + %(longest_ms)s * interval '1 ms'
        FOR UPDATE SKIP LOCKED
    )
), alive AS (
    SELECT process_id, address FROM rota.processes WHERE process_id NOT IN (SELECT process_id FROM ended)
), reading AS (
    SELECT -1 AS slot, 0 AS epoch, process_id, address AS more FROM alive
    UNION ALL
    SELECT slot, epoch, coalesce(process_id, ''), new_owner FROM rota.slots LEFT JOIN alive ON process_id = owner
)
SELECT slot, epoch, process_id, more FROM reading WHERE EXISTS (SELECT FROM renewed) ORDER BY slot, process_id
"""
# The running total limits the bytes of one query; `octet_length` does not read the data.
READ = """
SELECT sequence, data, checksum FROM (
    SELECT sequence, data, checksum, sum(octet_length(data)) OVER (ORDER BY sequence) - octet_length(data) AS before
    FROM rota.batches WHERE slot = %s AND sequence > %s ORDER BY sequence LIMIT %s
) AS next WHERE before < %s ORDER BY sequence
"""


class PostgresStore:
    """The shared store; created by `open_store`."""

    def __init__(self, dsn: str, lease_ms: int, slots: int) -> None:
        server = parse_dsn(dsn)
        self.slots = slots
        self.name = server.name
        self._lease_ms = lease_ms
        self._process_id = ""
        # One renewal may fail without losing the lease.
        self._leases = SerialConnection(server, lease_ms // 3)
        self._claims = SerialConnection(server, lease_ms // 2)
        self._commits = SerialConnection(server, lease_ms // 2)
        self._logs = SerialConnection(server, LONG_MS)
        self._appends = Appends(self._commits)

    async def register(self, address: str) -> str:
        new = str(uuid.uuid4())
        old, self._process_id = self._process_id, ""
        values = {"old": old, "new": new, "address": address, "lease_ms": self._lease_ms}
        await self._leases.run(lambda connection: connection.execute(REGISTER, values))
        self._process_id = new
        return new

    async def renew(self) -> Table:
        values = {"me": self._process_id, "lease_ms": self._lease_ms, "longest_ms": LEASE_MS_MAX}

        async def read(connection: Connection) -> list[tuple[int, int, str, str]]:
            return await (await connection.execute(RENEW, values)).fetchall()

        rows = await self._leases.run(read)
        if not rows:
            self._process_id = ""
            raise LeaseLost(
                f"the lease in {self.name} has expired, and other processes may own the slots; register again"
            )
        return Table(
            tuple(Process(process_id, address) for slot, _, process_id, address in rows if slot < 0),
            tuple(Row(*row) for row in rows if row[0] >= 0),
        )

    async def leave(self) -> None:
        leaving, self._process_id = self._process_id, ""
        await self._leases.run(
            lambda connection: connection.execute(
                "DELETE FROM rota.processes WHERE process_id = %s", (leaving,)
            )
        )

    async def claim(self, slot: int) -> Claim:
        return await self._claims.run(lambda connection: claim(connection, slot, self._process_id))

    async def release(self, slot: int, epoch: int, new_owner: str, handover: bytes) -> None:
        values = (new_owner, handover, slot, epoch, self._process_id)

        async def work(connection: Connection) -> None:
            # Raises the epoch, so that later appends are rejected even before the next claim.
            released = await connection.execute(
                "UPDATE rota.slots SET epoch = epoch + 1, owner = '', new_owner = %s, handover = %b "
                "WHERE slot = %s AND epoch = %s AND owner = %s",
                values,
            )
            if not released.rowcount:
                raise slot_lost(slot, epoch)

        await self._claims.run(work)

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        append = append_of(slot, epoch, records)
        self._appends.put(append)
        return append.done

    async def load(self, slot: int) -> Sequence[Record]:
        async def read(connection: Connection) -> list[tuple[int, bytes, int]]:
            found = await connection.execute(READ, (slot, last, READ_ROWS, READ_BYTES), binary=True)
            return await found.fetchall()

        records: list[Record] = []
        last = -1
        while rows := await self._logs.run(read):
            records += batches.decode_all(rows, f"slot {slot} in {self.name}")
            last = rows[-1][0]
        return records

    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        # An empty batch marks the snapshot's position among the appends: the snapshot contains all earlier appends, and
        # later ones are kept.
        marker = append_of(slot, epoch, (), numbered=True)
        self._appends.put(marker)
        return asyncio.ensure_future(self._replace(marker, snapshot))

    async def _replace(self, marker: Append, snapshot: Sequence[Record]) -> None:
        """Replace the batch of `marker` and all batches before it by a snapshot."""
        slot, epoch = marker.slot, marker.epoch
        sequence: int = await marker.done
        data, checksum = batches.encode(snapshot)

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(
                    "DELETE FROM rota.batches WHERE slot = %s AND sequence < %s", (slot, sequence)
                )
                await connection.execute(
                    "UPDATE rota.batches SET data = %b, checksum = %s WHERE slot = %s AND sequence = %s",
                    (data, checksum, slot, sequence),
                )
                # Lock last, so that neither a claim nor an append waits for the statements above.
                fence = "SELECT FROM rota.slots WHERE slot = %s AND epoch = %s FOR NO KEY UPDATE"
                if not (await connection.execute(fence, (slot, epoch))).rowcount:
                    raise slot_lost(slot, epoch)

        await self._logs.run(work)

    async def close(self) -> None:
        await self._appends.close()
        for connection_line in (self._leases, self._claims, self._commits, self._logs):
            await connection_line.close()


async def claim(connection: Connection, slot: int, me: str) -> Claim:
    """Claim the slot unless a live process owns it. In separate statements: each sees the state at its start."""
    async with connection.transaction():
        held = await connection.execute(
            "SELECT owner, handover FROM rota.slots WHERE slot = %s FOR UPDATE", (slot,)
        )
        owner, handover = await held.fetchone() or ("", b"")
        if owner not in ("", me):
            # Waits for a concurrent renewal, which then counts; after the deletion no renewal can succeed.
            await connection.execute(
                "DELETE FROM rota.processes WHERE process_id = %s AND lease_until <= clock_timestamp()",
                (owner,),
            )
            alive = await connection.execute("SELECT FROM rota.processes WHERE process_id = %s", (owner,))
            if alive.rowcount:
                raise SlotLost(f"slot {slot} belongs to another process")
        claimed = await connection.execute(
            "UPDATE rota.slots SET epoch = epoch + 1, owner = %(me)s, new_owner = '', handover = '' WHERE slot = %(slot)s "
            "AND EXISTS (SELECT FROM rota.processes WHERE process_id = %(me)s AND lease_until > clock_timestamp()) "
            "RETURNING epoch",
            {"me": me, "slot": slot},
        )
        row = await claimed.fetchone()
        if row is None:
            raise LeaseLost(
                f"slot {slot} cannot be claimed because the lease of this process has expired; register again"
            )
        return Claim(row[0], handover)


async def open_store(dsn: str, lease_ms: int = 3_000, slots: int | None = None) -> PostgresStore:
    """
    Connect to the database, and create the tables if they do not exist, with this number of slots or the default. Tables with
    another number are rejected.
    """
    connection_line = SerialConnection(parse_dsn(dsn), LONG_MS)
    try:
        found = await connection_line.run(lambda connection: prepare(connection, slots))
    finally:
        await connection_line.close()
    return PostgresStore(dsn, lease_ms, found)
