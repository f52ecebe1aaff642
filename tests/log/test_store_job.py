"""The store job: owners stop in mid-transaction, the group goes on without them, and every record counts once."""

import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import psycopg
import pytest

import rota
from rota.consumer.options import Settings
from rota.stores import Partition, SqlStore, StoreFenced, Tenure
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.log.owners import WITHIN_S, Owner, group_offsets
from tests.log.store_worker import PARTITIONS, POINTS, RECORDS, TOPIC, totals
from tests.support.coordinator import Coordinator, serving
from tests.support.workdir import logs

pytestmark = pytest.mark.process

GROUP = "billing"
CONTENT = [
    (partition, offset, (offset * 31 + partition[1] * 7) % 1009)
    for partition in PARTITIONS
    for offset in range(RECORDS)
]
EXPECTED = totals(CONTENT)


class Adder(Owner):
    """A worker, as the test sees it."""

    def wait_until_owns_all(self, assignments: int = 1) -> None:
        """Its last assignment, of so many at least, holds every partition."""

        def owns_all() -> bool:
            taken = self.events("assigned")
            return len(taken) >= assignments and all(str(partition) in taken[-1] for partition in PARTITIONS)

        self.wait_until(owns_all)


class Job:
    """The database, the coordinator, and who works."""

    def __init__(self, folder: Path, dsn: str, coordinator: Coordinator) -> None:
        self.dsn = dsn
        self.coordinator = coordinator
        self._logs = logs(folder)
        self._owners: list[Adder] = []
        self._channel = grpc.insecure_channel(coordinator.address)
        with psycopg.connect(dsn) as connection:
            SqlStore(connection).create_tables()
            connection.execute("CREATE TABLE totals (key TEXT PRIMARY KEY, value BIGINT NOT NULL)")
        address = f"rota://{coordinator.address}"
        with rota.Topics(address) as topics:
            topics.create({TOPIC: len(PARTITIONS)})
        with rota.Producer(address, acks="all") as producer:
            for (topic, index), _, value in CONTENT:
                producer.send(topic, b"%d" % value, partition=index)

    def start(self, *flags: str) -> Adder:
        name = f"owner-{len(self._owners)}"
        command = [
            *(sys.executable, "-m", "tests.log.store_worker"),
            *(f"--coordinator={self.coordinator.address}", f"--group={GROUP}", *flags),
        ]
        log = self._logs / f"{name}.log"
        self._owners.append(Adder(name, command, log, {"STORE_JOB_DSN": self.dsn}))
        return self._owners[-1]

    def finish(self) -> None:
        """Wait until all is done, and those who look on see it."""
        ends = dict.fromkeys(range(len(PARTITIONS)), RECORDS)
        self._owners[-1].wait_until(
            lambda: group_offsets(self._channel, GROUP, TOPIC, len(PARTITIONS)) == ends
        )
        for owner in self._owners:
            owner.finish()

    def kill(self) -> None:
        for owner in self._owners:
            owner.process.kill()
        self._channel.close()

    @property
    def totals(self) -> dict[str, int]:
        with psycopg.connect(self.dsn) as connection:
            return dict(connection.execute("SELECT key, value FROM totals").fetchall())

    @property
    def stored(self) -> dict[Partition, int]:
        with psycopg.connect(self.dsn) as connection:
            return SqlStore(connection).stored_offsets(GROUP)

    def consumer(self, instance_id: str = "") -> rota.Consumer:
        """Of the same group, in this process."""
        settings: Settings = {
            "group_id": GROUP,
            "bootstrap_servers": f"rota://{self.coordinator.address}",
            "enable_auto_commit": False,
        }
        if instance_id:
            settings["group_instance_id"] = instance_id
        return rota.Consumer(**settings)

    def come_and_go(self) -> None:
        """Join and leave the group, which increases its generation."""
        with self.consumer() as consumer:
            consumer.subscribe(TOPIC)
            while not consumer.assignment():
                consumer.poll(timeout_ms=100)

    def delete_group(self) -> None:
        """As soon as it has no members."""
        stub = AdminStub(self._channel)
        for update in stub.WatchGroup(admin.WatchGroupRequest(group_id=GROUP), timeout=WITHIN_S):
            if update.group.state == admin.GROUP_STATE_EMPTY:
                break
        deleted = stub.DeleteGroups(admin.DeleteGroupsRequest(group_ids=[GROUP]), timeout=WITHIN_S)
        assert [each.error_code for each in deleted.groups] == [pb.NONE]


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
    assert "(incarnation 1, generation 1): discard the batch" in refused
    # The other way round: the first takes over from the second.
    second.wait_until_stopped()
    first.wait_until_owns_all(assignments=2)
    second.go_on()
    assert "discard the batch" in second.wait_for("fenced")
    job.finish()

    assert job.totals == EXPECTED
    assert job.stored == dict.fromkeys(PARTITIONS, RECORDS)


@pytest.mark.parametrize("point", POINTS)
def test_a_group_that_is_deleted_and_born_again_fences_who_knew_the_old_one(job: Job, point: str) -> None:
    job.come_and_go()
    former = job.start(f"--stop-at={point}", "--stop-after=5")
    former.wait_until_stopped()
    assert former.events("assigned")[0].startswith("1 3 ")
    former.freeze()
    job.delete_group()

    reborn = job.start()
    # Lower than the generation of the stopped one, and newer all the same.
    assert reborn.wait_for("assigned").startswith("2 1 ")
    former.go_on()
    refused = former.wait_for("fenced")
    assert "(incarnation 2, generation" in refused
    assert "this is member" in refused
    assert "(incarnation 1, generation 3): discard the batch" in refused
    job.finish()

    assert job.totals == EXPECTED
    assert job.stored == dict.fromkeys(PARTITIONS, RECORDS)


def test_a_static_member_that_comes_back_fences_its_former_self_of_the_same_generation(job: Job) -> None:
    with (
        psycopg.connect(job.dsn) as one,
        psycopg.connect(job.dsn) as two,
        job.consumer("static") as before,
    ):
        former, later = SqlStore(one), SqlStore(two)
        late = assigned(before, former)
        with job.consumer("static") as after:
            tenure = assigned(after, later)
            assert late.group.generation_id == tenure.group.generation_id
            assert late.group.member_id != tenure.group.member_id
            with pytest.raises(StoreFenced), former.transaction(late) as tx:
                tx.save({PARTITIONS[0]: 10})
            with later.transaction(tenure) as tx:
                tx.save({PARTITIONS[0]: 5})
    assert job.stored == {PARTITIONS[0]: 5}


def assigned(consumer: rota.Consumer, store: SqlStore) -> Tenure:
    """Return the assignment as soon as it is not empty."""
    listener = store.listener(consumer)
    consumer.subscribe(TOPIC, listener=listener)
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    return listener.tenure
