"""The exactly-once sink of two Spark applications that are killed at named steps of a batch, and stopped beyond their session."""

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rota_spark.core.clicks import Click, sessions_of
from rota_spark.pipelines.clickstream_sessions import TABLES
from tests.spark import outputs
from tests.spark.jobs.session_application import (
    GAP_MS,
    KILL,
    MERGED,
    SPAN_MS,
    STAGED,
    STEPS,
    STOP,
    STORED,
)
from tests.spark.shared_group import POLL_S, WITHIN_S
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import Process, wait_for
from tests.support.records import AT_MS, batch, committed, produce
from tests.support.spark import Spark

# Ten seconds for each driver that starts: for the tier `spark` it takes too long.
pytestmark = [pytest.mark.spark, pytest.mark.soak("spark-kills", only=True), pytest.mark.timeout(1_800)]

JOB = Path(__file__).with_name("jobs") / "session_application.py"
GROUP = "sessions"
PARTITIONS = 6
RECORDS = 200_000
USERS = 100
KILLS, CHECKPOINTS_DELETED = 5, 2


def clicks_of(partition: int, draw: random.Random) -> list[Click]:
    """All clicks of a partition's users, in no order of time: sessions grow together until the last one is read."""
    count = len(range(partition, RECORDS, PARTITIONS))
    return [
        Click(f"{partition}-{draw.randrange(USERS)}", AT_MS - draw.randrange(SPAN_MS)) for _ in range(count)
    ]


class Application:
    """One of the two applications; `start` after a kill is its next life, with the leftovers of the former one."""

    def __init__(self, name: str, spark: Spark, folder: Path, servers: str) -> None:
        self.name = name
        self._spark = spark
        self._servers = servers
        self._database_file = folder / "database"
        self._armed = folder / f"{name}.armed"
        self._checkpoints = folder / f"{name}.checkpoints"
        self._process: Process | None = None

    def start(self) -> None:
        """Start its driver, with one executor."""
        self._checkpoints.mkdir(exist_ok=True)
        arguments = (self._servers, GROUP, self._database_file, self._armed, self._checkpoints)
        settings = {"spark.cores.max": "1"}
        self._process = self._spark.submit(JOB, *map(str, arguments), settings=settings)

    def arm(self, act: str, step: str) -> None:
        """Let it be killed, or stop, when it reaches that step the next time."""
        written = self._armed.with_suffix(".new")
        written.write_text(f"{act} {step}")
        written.rename(self._armed)

    def wait_until_killed(self) -> None:
        """Return when it has reached the step."""
        assert self.process.wait(within_s=WITHIN_S) == -signal.SIGKILL, self.process.tail()

    def wait_until_stopped(self) -> int:
        """Return the process id of its sidecar when both stand still."""
        self.process.wait_until(lambda: not self._armed.exists() and self._is_stopped(), within_s=WITHIN_S)
        return int(self._armed.with_suffix(".sidecar").read_text())

    def delete_checkpoints(self) -> None:
        """Delete what the lives so far have left of their checkpoints."""
        assert list(self._checkpoints.iterdir())
        shutil.rmtree(self._checkpoints)

    @property
    def refused(self) -> int:
        """Number of batches that the fence has refused."""
        return self.process.log.read_text().count("the batch is abandoned")

    def _is_stopped(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "T"

    @property
    def process(self) -> Process:
        """Its driver's Java, which leads the process group of both."""
        assert self._process is not None
        return self._process


class Sessions:
    """The applications, and the clicks that they read. Invariant: between two acts both are members of the group."""

    def __init__(self, coordinator: Coordinator, applications: Sequence[Application], dsn: str) -> None:
        self._coordinator = coordinator
        self.applications = applications
        self._dsn = dsn
        self._appended = 0
        # Partitions that another member has fenced since.
        self.moved = 0
        self._owners: Mapping[int, str] = {}

    def wait_for_members(self, number: int) -> None:
        """Return when the group has so many."""
        wait_for(
            f"{number} members", lambda: self._coordinator.members_of(GROUP) == number, within_s=WITHIN_S
        )

    def append(self, clicks: Mapping[int, Sequence[Click]], end: int) -> None:
        """Append the clicks up to an index in each partition."""
        for partition, each in clicks.items():
            part = each[self._appended : end]
            values = [json.dumps({"user": click.user, "at_ms": click.at_ms}) for click in part]
            records = batch(values, keys=[click.user for click in part])
            produce(self._coordinator.address, GROUP, partition, records)
        self._appended = end

    def wait_until_all_is_stored(
        self, among: Sequence[Application], clicks: Mapping[int, Sequence[Click]]
    ) -> None:
        """Return when the store has every click that was appended."""
        ends = {(GROUP, number): len(each[: self._appended]) for number, each in clicks.items()}

        def is_stored() -> bool:
            for each in among:
                each.process.check_running()
            return outputs.positions(self._dsn) == ends

        wait_for("all clicks are stored", is_stored, within_s=WITHIN_S, poll_s=POLL_S)
        owners = outputs.owners(self._dsn)
        self.moved += sum(owners[number] != member for number, member in self._owners.items())
        self._owners = owners


def killed_at(draw: random.Random) -> list[str]:
    """Steps of the kills: once right before the sink's commit, once right after it, the others anywhere."""
    steps = [MERGED, STORED, *draw.choices(STEPS, k=KILLS - 2)]
    draw.shuffle(steps)
    return steps


def test_sessions_and_totals_are_those_of_one_process_whichever_step_drivers_are_killed_at(
    spark: Spark, database: str, tmp_path: Path, seed: int, counters: Counter[str]
) -> None:
    draw = random.Random(seed)
    clicks = {number: clicks_of(number, draw) for number in range(PARTITIONS)}
    (tmp_path / "database").write_text(database)
    totals = "CREATE TABLE totals (user_id TEXT PRIMARY KEY, clicks BIGINT NOT NULL)"
    outputs.create_tables(database, (*TABLES, totals))
    with serving(tmp_path) as coordinator:
        coordinator.make_topic(GROUP, PARTITIONS)
        coordinator.make_topic(f"{GROUP}-dead-letters", 1)
        servers = f"rota://{coordinator.address}"
        applications = [Application(name, spark, tmp_path, servers) for name in ("one", "other")]
        for each in applications:
            each.start()
        story = Sessions(coordinator, applications, database)
        story.wait_for_members(2)
        acts = [*((KILL, step) for step in killed_at(draw)), (STOP, STAGED)]
        draw.shuffle(acts)
        without_checkpoints = set(draw.sample(range(KILLS), CHECKPOINTS_DELETED))
        part = RECORDS // PARTITIONS // (len(acts) + 1)
        kills = 0
        for number, (act, step) in enumerate(acts, 1):
            victim = draw.choice(applications)
            victim.arm(act, step)
            story.append(clicks, number * part)
            if act == KILL:
                victim.wait_until_killed()
                if kills in without_checkpoints:
                    victim.delete_checkpoints()
                    counters["checkpoints deleted"] += 1
                kills += 1
                victim.start()
            else:
                wake_after_session(story, victim, clicks)
            story.wait_until_all_is_stored(applications, clicks)
            story.wait_for_members(2)
            counters[f"drivers {'killed' if act == KILL else 'stopped'} when {step}"] += 1
        story.append(clicks, len(clicks[0]))
        story.wait_until_all_is_stored(applications, clicks)
        check(database, clicks)
        assert story.moved > 0
        ends = {(GROUP, number): len(each) for number, each in clicks.items()}
        wait_for(
            "the group's offsets follow those of the store",
            lambda: committed(coordinator.address, GROUP) == ends,
            within_s=WITHIN_S,
        )
        for each in applications:
            each.process.stop()
    counters["clicks in sessions"] += RECORDS
    counters["partitions moved in mid-session"] += story.moved


def wake_after_session(story: Sessions, victim: Application, clicks: Mapping[int, Sequence[Click]]) -> None:
    """Let the other application process what the stopped driver has staged, then wake it: its batch is refused."""
    sidecar = victim.wait_until_stopped()
    refused = victim.refused
    try:
        story.wait_for_members(1)
        story.wait_until_all_is_stored([each for each in story.applications if each is not victim], clicks)
    finally:
        os.kill(sidecar, signal.SIGCONT)
        os.killpg(victim.process.pid, signal.SIGCONT)
    victim.process.wait_until(lambda: victim.refused > refused, within_s=WITHIN_S)


def check(dsn: str, clicks: Mapping[int, Sequence[Click]]) -> None:
    """Compare sessions and totals with those of one process that reads all clicks at once."""
    every = [click for each in clicks.values() for click in each]
    sessions = outputs.rows_in(
        dsn, 'SELECT user_id, first_ms, last_ms, clicks FROM sessions ORDER BY user_id COLLATE "C", first_ms'
    )
    assert sessions == [tuple(each) for each in sessions_of(every, GAP_MS)]
    totals = dict(outputs.rows_in(dsn, "SELECT user_id, clicks FROM totals"))
    assert totals == Counter(click.user for click in every)
