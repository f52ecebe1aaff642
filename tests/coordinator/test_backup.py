"""
Backup and restore by the commands of the guide, while groups commit.

A database of an application has fenced generations that were issued after the backup; after the restore its new owner is let in.
"""

import asyncio
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest

import rota
from rota.errors import OffsetOutOfRange
from rota.metadata import GroupMetadata
from rota.stores import SqlStore, StoreFenced
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log.v1.log_pb2 import InitProducerRequest
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.support.coordinator import QUICK, Coordinator
from tests.support.member import in_turn, member
from tests.support.ports import free_port
from tests.support.postgres.programs import prepare
from tests.support.processes import wait_for
from tests.support.tree import REPO, python_path

pytestmark = pytest.mark.process

GUIDE = (REPO / "docs" / "guide" / "backup.md").read_text()
FOLDER = "/var/lib/rota"
# Of commands, for hangs.
WITHIN_S = 60
PARTITIONS = [("orders", 0)]
GROUP, COMMITTER = "sales", "committer"


def commands(heading: str) -> list[str]:
    """The blocks of commands below a heading of the guide: the backup's, and the restore's."""
    section = GUIDE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def shell(script: str, folder: Path, **variables: str) -> str:
    """Run commands as a person types them; the guide's folder is this one."""
    programs = prepare()
    path = os.pathsep.join([str(programs.folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        **programs.environment,
        "PATH": path,
        "PYTHONPATH": python_path(),
        **variables,
    }
    done = subprocess.run(
        ["sh", "-ec", script.replace(FOLDER, str(folder))],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def commit(address: str, offset: int) -> None:
    """Commit an offset of a group without members."""
    request = pb.CommitOffsetsRequest(group_id=COMMITTER, generation_id=-1)
    request.topics.add(name="orders").partitions.add(index=0, offset=offset, leader_epoch=-1)
    with grpc.insecure_channel(address) as channel:
        reply = CoordinatorStub(channel).CommitOffsets(request, timeout=WITHIN_S)
    assert reply.topics[0].partitions[0].error_code == pb.NONE


def committed(address: str) -> int:
    """The offset of that group, once its slot is served."""
    request = pb.FetchOffsetsRequest(group_id=COMMITTER, all=True)
    replies: list[pb.FetchOffsetsResponse] = []

    def is_served() -> bool:
        replies.append(stub.FetchOffsets(request, timeout=WITHIN_S))
        return replies[-1].error_code == pb.NONE

    with grpc.insecure_channel(address) as channel:
        stub = CoordinatorStub(channel)
        wait_for("the group's slot is served", is_served, within_s=WITHIN_S)
    return replies[-1].topics[0].partitions[0].offset


@contextmanager
def committing(address: str) -> Iterator[list[int]]:
    """Commit rising offsets within the block; what was acknowledged is in the list."""
    acknowledged, stopped = [0], threading.Event()
    commit(address, 0)

    def run() -> None:
        while not stopped.is_set():
            commit(address, acknowledged[-1] + 1)
            acknowledged.append(acknowledged[-1] + 1)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield acknowledged
    finally:
        stopped.set()
        thread.join()


def generations(address: str, count: int) -> GroupMetadata:
    """Join the group so many times; return the member's metadata in its last generation."""

    async def body() -> GroupMetadata:
        found = None
        for _ in range(count):
            async with member(address, GROUP, in_turn(PARTITIONS)) as joined:
                await joined.join()
                found = joined.metadata
                await joined.leave()
        assert found is not None
        return found

    return asyncio.run(body())


def back_up_and_restore(
    coordinator: Coordinator, folder: Path, heading: str, variables: Mapping[str, str]
) -> None:
    """Back up between two generations while another group commits, restore, and assign with the store that is ahead."""
    backup, restore = commands(heading)
    with closing(sqlite3.connect(folder / "application.db", isolation_level=None)) as connection:
        store = SqlStore(connection)
        store.create_tables()
        generations(coordinator.address, 1)
        with committing(coordinator.address) as acknowledged:
            before = len(acknowledged) - 1
            shell(backup, folder, **variables)
            after = len(acknowledged) + 1
        late = generations(coordinator.address, 3)
        store.assign(late, PARTITIONS)
        coordinator.stop()
        for file in folder.glob("coordinator.db*"):
            file.unlink()
        unprepared, prepared = restore.rstrip().rsplit("\n", 1)
        shell(unprepared, folder, **variables)
        if heading == "SQLite":
            coordinator.begin_start()
            assert coordinator.ends() == 1
            assert "is a backup" in coordinator.log.read_text()
            assert f"--store sqlite:{coordinator.file} --restored` once" in coordinator.log.read_text()
        assert shell(prepared, folder, **variables) == (
            "2 groups begin a new incarnation; their members rejoin when a coordinator starts\n"
        )
        coordinator.start()
        assert before <= committed(coordinator.address) <= after
        found = generations(coordinator.address, 1)
        assert found.generation_id <= late.generation_id
        assert found.incarnation > late.incarnation
        store.assign(found, PARTITIONS)
        with pytest.raises(StoreFenced):
            store.assign(late, PARTITIONS)
    coordinator.stop()


def test_sqlite(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start()
    coordinator.make_topic("orders", 1)
    back_up_and_restore(coordinator, tmp_path, "SQLite", {})
    assert stat.S_IMODE((tmp_path / "backup.db").stat().st_mode) == 0o600


def test_the_log_after_a_restore(tmp_path: Path) -> None:
    """A producer goes on, no producer id is assigned twice, and a reader of lost records is told so."""
    coordinator = Coordinator(tmp_path, (*QUICK, f"--listen=127.0.0.1:{free_port()}"))
    coordinator.start()
    coordinator.make_topic("orders", 1)
    address = f"rota://{coordinator.address}"
    backup, restore = commands("SQLite")
    with rota.Producer(address) as producer:

        def send(count: int) -> int:
            sent = [producer.send("orders", b"", partition=0).result(WITHIN_S) for _ in range(count)]
            return sent[-1].offset

        assert send(10) == 9
        shell(backup, tmp_path)
        assert send(10) == 19
        late = [producer_id(coordinator.address) for _ in range(2)]
        coordinator.stop()
        for file in tmp_path.glob("coordinator.db*"):
            file.unlink()
        shell(restore, tmp_path)
        coordinator.start()
        with rota.LogReader(address) as reader:
            [fetched] = reader.fetch({("orders", 0): 20}, max_wait_ms=0)
        assert isinstance(fetched.error, OffsetOutOfRange)
        assert fetched.high_watermark == 10
        assert send(1) == 10
        assert producer_id(coordinator.address) > max(late)
    coordinator.stop()


def producer_id(address: str) -> int:
    """The id of a new producer."""
    with grpc.insecure_channel(address) as channel:
        return LogStub(channel).InitProducer(InitProducerRequest(), timeout=WITHIN_S).producer_id


def test_postgresql(tmp_path: Path, database: str) -> None:
    coordinator = Coordinator(tmp_path, store=database)
    coordinator.start()
    back_up_and_restore(coordinator, tmp_path, "PostgreSQL", {"ROTA_STORE": database})


def failure(*flags: str, **variables: str) -> str:
    """Run the coordinator with flags that it refuses; return its error message."""
    done = subprocess.run(
        [sys.executable, "-m", "rota_coordinator", *flags],
        env={**os.environ, "PYTHONPATH": python_path(), **variables},
        capture_output=True, text=True, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def test_a_store_is_not_prepared_while_a_coordinator_serves_it(tmp_path: Path, database: str) -> None:
    shared, own = Coordinator(tmp_path, store=database), Coordinator(tmp_path, name="own")
    shared.start()
    own.start()
    assert "a coordinator serves groups from this store" in failure("--restored", ROTA_STORE=database)
    assert "is in use by another coordinator" in failure(f"--store=sqlite:{own.file}", "--restored")
    shared.stop()
    own.stop()


def test_each_wrong_call_is_refused_with_a_remedy(tmp_path: Path) -> None:
    store, target = tmp_path / "coordinator.db", tmp_path / "backup.db"
    target.touch()
    sqlite = f"--store=sqlite:{store}"
    assert f"{target} exists; choose another file" in failure(sqlite, f"--backup={target}")
    assert "cannot be copied" in failure(sqlite, f"--backup={tmp_path / 'other.db'}")
    assert "cannot be created" in failure(sqlite, f"--backup={tmp_path / 'no' / 'backup.db'}")
    assert "copy the backup there" in failure(sqlite, "--restored")
    assert "exclude each other" in failure(sqlite, "--restored", f"--backup={target}")
    assert "pg_dump" in failure("--store=postgresql://db/rota", f"--backup={target}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["backup.db"]
