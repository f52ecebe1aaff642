"""Positions that a sink sets while partitions move; no Spark runs."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from rota import GroupMetadata
from rota.stores import SqlStore
from rota_spark import SqlSink
from rota_spark.core.plan import Partition
from rota_spark.membership import Member
from rota_spark.sidecar_calls import NotCommitted, SidecarCalls

GROUP = GroupMetadata(group_id="orders", incarnation=1, generation_id=7, member_id="me")
MINE, MOVED = ("orders", 0), ("orders", 1)


class Calls:
    """A sidecar whose member has lost a partition."""

    def __init__(self) -> None:
        self.positions: dict[Partition, int] = {}

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        self.positions |= {each: offset for each, offset in offsets.items() if each != MOVED}
        if MOVED in offsets:
            raise NotCommitted("orders[1] is not this member's")


def test_a_partition_that_has_moved_on_before_its_position_is_set_concerns_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "sink.db", isolation_level=None)

    with closing(connect()) as connection:
        store = SqlStore(connection)
        store.create_tables()
        with store.transaction(store.assign(GROUP, [MINE, MOVED])) as tx:
            tx.save({MINE: 5, MOVED: 6})
    calls = Calls()
    sink = SqlSink(
        connect, lambda records: records, {"key": "TEXT"}, "INSERT INTO keys SELECT * FROM {staged}"
    )

    sink.assigned([MINE, MOVED], GROUP, Member(cast("SidecarCalls", calls), "orders"))

    assert calls.positions == {MINE: 5}
    assert "orders[1] is not this member's" in caplog.text
