"""The manifests of an example, run on this machine; and what its topics hold."""

import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import rota
from rota import errors
from tests.support.processes import Process
from tests.support.tree import REPO

WITHIN_S = 40
OURS = (sys.executable, "-m", "rota_operator", "local")


class Laptop:
    """One example at one home, which may be run several times."""

    def __init__(
        self,
        example: str | Path,
        home: Path,
        partitions: int,
        flags: Sequence[str] = (),
        command: Sequence[str] = OURS,
    ) -> None:
        # The name of an example, or a copy of one.
        self._example = REPO / "examples" / example
        self._home = home
        self._partitions = partitions
        self._flags = flags
        self._command = command

    def start(self, name: str) -> Process:
        """Returns when its coordinator has an address."""
        address = self._home / "address"
        address.unlink(missing_ok=True)
        flags = [f"--file={self._example}", f"--home={self._home}", *self._flags]
        process = Process.start(name, [*self._command, *flags], log=self._home.parent / f"{name}.log")
        process.wait_until(address.exists, within_s=WITHIN_S)
        return process

    def values_in(self, topic: str, field: str) -> list[str]:
        """A field of all records that count, as far as the topic, and the log, are there."""
        try:
            return self._values_in(topic, field)
        except errors.Disconnected:
            return []

    def _values_in(self, topic: str, field: str) -> list[str]:
        positions = {(topic, index): 0 for index in range(self._partitions)}
        found: list[str] = []
        servers = (self._home / "address").read_text().strip()
        with rota.LogReader(servers, read_committed=True) as reader:
            more = True
            while more:
                more = False
                for fetched in reader.fetch(positions, max_wait_ms=0):
                    if isinstance(fetched.error, errors.UnknownTopicOrPartition):
                        continue
                    found += [json.loads(record.value or b"{}")[field] for record in fetched]
                    more = more or fetched.next_offset > positions[fetched.topic, fetched.partition]
                    positions[fetched.topic, fetched.partition] = fetched.next_offset
        return found


def enriched_orders(file: Path) -> set[str]:
    """Return the orders in the database of `spark-orders`; none before it has the table."""
    if not file.exists():
        return set()
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
        try:
            return {order for (order,) in connection.execute("SELECT order_id FROM enriched_orders")}
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return set()
