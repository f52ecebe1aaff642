"""The store job: owners stop in mid-transaction, the group goes on without them, and every record counts once."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psycopg
import pytest

import rota
from rota.stores import SqlStore
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.log.store_worker import PARTITIONS, POINTS, RECORDS, TOPIC, totals
from tests.support.coordinator import Coordinator, serving
from tests.support.member import in_turn, member
from tests.support.processes import Process
from tests.support.workdir import logs

pytestmark = pytest.mark.process

GROUP = "billing"
WITHIN_S = 60
CONTENT = [
    (partition, offset, (offset * 31 + partition[1] * 7) % 1009)
    for partition in PARTITIONS
    for offset in range(RECORDS)
]
EXPECTED = totals(CONTENT)


class Owner:
    """A worker, as the test sees it."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def events(self, kind: str) -> list[str]:
        """What it has said of one kind."""
        lines = self.process.log.read_text().splitlines()
        return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(kind)]

    def wait_for(self, kind: str, count: int = 1) -> str:
        """The event of this kind that comes so late."""
        self.process.wait_until(lambda: len(self.events(kind)) >= count, within_s=WITHIN_S)
        return self.events(kind)[count - 1]

    def wait_until_owns_all(self, assignments: int = 1) -> None:
        """Its last assignment, of so many at least, holds every partition."""

        def owns_all() -> bool:
            taken = self.events("assigned")
            return len(taken) >= assignments and all(str(partition) in taken[-1] for partition in PARTITIONS)

        self.process.wait_until(owns_all, within_s=WITHIN_S)

    def wait_until_stopped(self) -> str:
        """Where it stands."""
        where = self.wait_for("stopping")
        self.process.wait_until(self.is_stopped, within_s=WITHIN_S)
        return where

    def is_stopped(self) -> bool:
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


class Job:
    """The database, the coordinator, and who works."""

    def __init__(self, folder: Path, dsn: str, coordinator: Coordinator) -> None:
        self.dsn = dsn
        self.coordinator = coordinator
        self._logs = logs(folder)
        self._owners: list[Owner] = []
        with psycopg.connect(dsn) as connection:
            SqlStore(connection).create_tables()
            connection.execute("CREATE TABLE totals (key TEXT PRIMARY KEY, value BIGINT NOT NULL)")
        address = f"rota://{coordinator.address}"
        with rota.Topics(address) as topics:
            topics.create({TOPIC: len(PARTITIONS)})
        with rota.Producer(address, acks="all") as producer:
            for (topic, index), _, value in CONTENT:
                producer.send(topic, b"%d" % value, partition=index)

    def start(self, *flags: str) -> Owner:
        name = f"owner-{len(self._owners)}"
        command = [
            sys.executable,
            "-m",
            "tests.log.store_worker",
            f"--coordinator={self.coordinator.address}",
        ]
        process = Process.start(
            name,
            [*command, f"--group={GROUP}", *flags],
            log=self._logs / f"{name}.log",
            env={"STORE_JOB_DSN": self.dsn},
        )
        self._owners.append(Owner(process))
        return self._owners[-1]

    def finish(self) -> None:
        """Wait until every owner has found that all is done."""
        for owner in self._owners:
            assert owner.process.wait(within_s=WITHIN_S) == 0, owner.process.tail()

    def kill(self) -> None:
        for owner in self._owners:
            owner.process.kill()

    @property
    def totals(self) -> dict[str, int]:
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute("SELECT key, value FROM totals").fetchall())

    def delete_group(self) -> None:
        """As soon as it has no members."""
        with grpc.insecure_channel(self.coordinator.address) as channel:
            stub = AdminStub(channel)
            for update in stub.WatchGroup(admin.WatchGroupRequest(group_id=GROUP), timeout=WITHIN_S):
                if update.group.state == admin.GROUP_STATE_EMPTY:
                    break
            deleted = stub.DeleteGroups(admin.DeleteGroupsRequest(group_ids=[GROUP]), timeout=WITHIN_S)
        assert [each.error_code for each in deleted.groups] == [pb.NONE]

    def group_offsets(self) -> dict[tuple[str, int], int]:
        async def look() -> dict[tuple[str, int], int]:
            async with member(self.coordinator.address, GROUP, in_turn(())) as onlooker:
                return await onlooker.fetch(PARTITIONS)

        return asyncio.run(look())


@pytest.fixture
def job(tmp_path: Path, database: str) -> Iterator[Job]:
    with serving(tmp_path) as coordinator:
        job = Job(tmp_path, database, coordinator)
        try:
            yield job
        finally:
            job.kill()


@pytest.mark.parametrize("point", POINTS)
def test_two_owners_stop_in_mid_transaction_and_each_record_counts_once(job: Job, point: str) -> None:
    first = job.start(f"--stop-at={point}", "--stop-after=5")
    first.wait_until_stopped()
    second = job.start(f"--stop-at={point}", "--stop-after=8")
    # The fence is raised for the partitions of the stopped one.
    second.wait_until_owns_all()

    first.go_on()
    refused = first.wait_for("fenced")
    assert "(incarnation 1, generation 1): drop the batch" in refused
    # The other way round: the first takes over from the second.
    second.wait_until_stopped()
    first.wait_until_owns_all(assignments=2)
    second.go_on()
    assert "drop the batch" in second.wait_for("fenced")
    job.finish()

    assert job.totals == EXPECTED
    assert job.group_offsets() == dict.fromkeys(PARTITIONS, RECORDS)


@pytest.mark.parametrize("point", POINTS)
def test_a_group_that_is_deleted_and_born_again_fences_who_knew_the_old_one(job: Job, point: str) -> None:
    former = job.start("--rounds=4", f"--stop-at={point}", "--stop-after=5")
    former.wait_until_stopped()
    assert former.events("assigned")[0].startswith("1 4 ")
    job.delete_group()

    reborn = job.start()
    # Lower than the generation of the stopped one, and newer all the same.
    assert reborn.wait_for("assigned").startswith("2 1 ")
    former.go_on()
    refused = former.wait_for("fenced")
    assert "(incarnation 2, generation" in refused
    assert "this is member" in refused
    assert "(incarnation 1, generation 4): drop the batch" in refused
    job.finish()

    assert job.totals == EXPECTED
    assert job.group_offsets() == dict.fromkeys(PARTITIONS, RECORDS)
