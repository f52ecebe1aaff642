"""
A Spark application that merges clicks into sessions and totals, exactly once, and that is killed or stopped at named steps.

A test arms a step by a file beside the application's: `kill merged`. The application ends itself there, with its Java and without
its sidecar, which has a session of its own; or it stops itself with its sidecar, and writes down which that is.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

import rota_spark
from rota_spark import Settings, SqlSink, sql_sink
from rota_spark.membership import Batch, Member, Membership
from rota_spark.pipelines.clickstream_sessions import COLUMNS, Rules, merge_of, results_of
from rota_spark.pipelines.database import connecting
from tests.support.processes import children_of
from tests.support.sidecar import QUICK

# Steps of a batch in their order: its first record is not read yet; its rows are staged; they are merged, in a transaction that is
# not committed; the sink's transaction is committed; the group's offsets are committed.
STEPS = (BEGUN, STAGED, MERGED, STORED, COMMITTED) = ("begun", "staged", "merged", "stored", "committed")
KILL, STOP = "kill", "stop"
GAP_MS = 30_000
# Of the topic, to the timestamp of a record.
SPAN_MS = 3_000_000
BATCH = 5_000
TOTALS = (
    "INSERT INTO totals AS t SELECT user_id, sum(clicks) FROM {staged} GROUP BY user_id "
    "ON CONFLICT (user_id) DO UPDATE SET clicks = t.clicks + excluded.clicks"
)


class Armed:
    """The step that the test has armed for this application, in a file that another life of it does not find again."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def reached(self, step: str) -> None:
        """Kill or stop this process and its Java, if the step is armed."""
        if not self._file.exists() or self._file.read_text().split()[1] != step:
            return
        act, _ = self._file.read_text().split()
        if act == STOP:
            # The sidecar would else keep the session of the driver that stands still.
            (sidecar,) = children_of(os.getpid())
            os.kill(sidecar, signal.SIGSTOP)
            self._file.with_suffix(".sidecar").write_text(str(sidecar))
        self._file.unlink()
        os.killpg(0, signal.SIGKILL if act == KILL else signal.SIGSTOP)


class ReachesSteps(SqlSink):
    """The sink of sessions and totals."""

    armed: Armed

    @override
    def write(self, records: DataFrame, batch: Batch, member: Member) -> bool:
        self.armed.reached(BEGUN)
        is_stored = super().write(records, batch, member)
        self.armed.reached(STORED)
        return is_stored

    @override
    def _stage(self, records: DataFrame, token: str) -> list[tuple[int, int]]:
        attempts = super()._stage(records, token)
        self.armed.reached(STAGED)
        return attempts


def reaching(original: Callable[..., Any], armed: Armed, step: Callable[..., str]) -> Callable[..., Any]:
    """Call the original, then reach the step that the arguments tell."""

    def call(*arguments: Any) -> Any:  # noqa: ANN401 - of any function
        result = original(*arguments)
        armed.reached(step(*arguments))
        return result

    return call


def step_of(_: object, statement: str) -> str:
    """The last statement of a merge."""
    return MERGED if "INTO totals" in statement else ""


def sink(database_file: str, rules: Rules, armed: Armed) -> SqlSink:
    """Return the sink."""
    merge = [*merge_of(rules.gap_ms, locks_table=True), TOTALS]
    made = ReachesSteps(connecting(database_file), results_of(rules), COLUMNS, merge)
    made.armed = armed
    return made


def main(arguments: Sequence[str]) -> None:
    """Run until the end, which is a kill or a SIGTERM."""
    servers, group, database_file, armed_file, checkpoints = arguments
    logging.basicConfig(level=logging.INFO)
    armed = Armed(Path(armed_file))
    settings = Settings(
        bootstrap_servers=servers,
        group_id=group,
        topics=[group],
        max_records_per_batch=BATCH,
        start_within_seconds=240,
        checkpoint_folder=checkpoints,
        sidecar_flags=QUICK,
    )
    rules = Rules(GAP_MS, 2 * SPAN_MS, servers, f"{group}-dead-letters", group)
    spark = SparkSession.builder.getOrCreate()
    merging = reaching(sql_sink._execute, armed, step_of)
    committing = reaching(Membership.commit, armed, lambda *_: COMMITTED)
    with (
        mock.patch.object(sql_sink, "_execute", merging),
        mock.patch.object(Membership, "commit", committing),
        rota_spark.process(spark, sink(database_file, rules, armed), settings) as query,
    ):
        query.await_termination()


if __name__ == "__main__":
    main(sys.argv[1:])
