"""Consumers and handlers with sidecars of their own, over a real coordinator."""

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.consumer.listeners import Partitions
from rota.consumer.options import Options
from rota.consumer.sidecar_process import SidecarProcess, flags
from rota.consumer.sidecars import Subscription
from tests.sdk.consumer import standstill
from tests.sdk.consumer.static_members import restart_moves_nothing
from tests.support.coordinator import serving
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.records import delete_records, fill
from tests.support.small_disk import small_disk

pytestmark = pytest.mark.process

WAIT_MS = 20_000
WITHIN_S = 60
RECORDS = 300
PARTITIONS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield f"rota://{coordinator.address}"


@pytest.fixture
def topic(server: str, request: pytest.FixtureRequest) -> str:
    """With records in it."""
    name = re.sub(r"\W", "-", request.node.name)[-100:]
    rota.create_topics(server, {name: PARTITIONS})
    with rota.Producer(server) as producer:
        values = [b"%d" % number for number in range(RECORDS)]
        producer.send_many(name, values, [b"%d" % (number % 40) for number in range(RECORDS)]).result(30)
    return name


def read(consumer: rota.Consumer, count: int) -> list[rota.Record[Any, Any]]:
    found: list[rota.Record[Any, Any]] = []
    while len(found) < count:
        polled = consumer.poll(timeout_ms=WAIT_MS)
        assert polled, f"{len(found)} of {count} records came"
        found += [record for records in polled.values() for record in records]
    return found


def numbers(records: list[rota.Record[Any, Any]]) -> list[int]:
    return sorted(int(record.value) for record in records)


def test_records_come_once_and_the_next_consumer_goes_on_behind_them(server: str, topic: str) -> None:
    settings: Any = {"group_id": topic, "bootstrap_servers": server}
    with rota.Consumer(topic, **settings) as consumer:
        assert numbers(read(consumer, RECORDS)) == list(range(RECORDS))
        assert consumer.assignment() == {rota.TopicPartition(topic, number) for number in range(PARTITIONS)}
    with rota.Producer(server) as producer:
        producer.send(topic, b"999").result(10)
    with rota.Consumer(topic, **settings) as consumer:
        assert numbers(read(consumer, 1)) == [999]


def test_commits_seeks_and_lookups_reach_the_coordinator(server: str, topic: str) -> None:
    with rota.Consumer(topic, group_id=topic, bootstrap_servers=server, enable_auto_commit=False) as consumer:
        read(consumer, RECORDS)
        partitions = sorted(consumer.assignment())
        consumer.commit()
        ends = consumer.end_offsets(partitions)
        assert {partition: consumer.committed(partition) for partition in partitions} == ends
        assert sum(ends.values()) == RECORDS
        assert set(consumer.beginning_offsets(partitions).values()) == {0}
        consumer.seek_to_beginning(partitions[0])
        assert consumer.position(partitions[0]) == 0
        assert len(read(consumer, ends[partitions[0]])) == ends[partitions[0]]
        consumer.seek(partitions[0], ends[partitions[0]] - 1)
        assert next(consumer).offset == ends[partitions[0]] - 1
        first = consumer.offsets_for_times({partitions[0]: 0})[partitions[0]]
        assert first is not None
        assert first.offset == 0
        assert consumer.partitions_for_topic(topic) == set(range(PARTITIONS))
        assert topic in consumer.topics()
        metrics = consumer.metrics()
        assert metrics[rota.MetricName.of("rota_assigned_partitions", group=topic)] == PARTITIONS
        assert {
            dict(name.tags)["state"]
            for name, value in metrics.items()
            if name.name == "rota_member_state" and value
        } == {"Stable"}
        consumer.commit({partitions[0]: rota.OffsetAndMetadata(1, "so far")})
        assert consumer.committed(partitions[0], metadata=True) == rota.OffsetAndMetadata(1, "so far")


def test_what_waits_of_a_paused_partition_goes_back_and_comes_once(server: str, topic: str) -> None:
    with rota.Consumer(topic, group_id=topic, bootstrap_servers=server, max_poll_records=10) as consumer:
        seen = read(consumer, 10)
        (paused,) = {rota.TopicPartition(record.topic, record.partition) for record in seen}
        consumer.pause(paused)
        while polled := consumer.poll(timeout_ms=500):
            assert paused not in polled
            seen += [record for records in polled.values() for record in records]
        consumer.resume(paused)
        seen += read(consumer, RECORDS - len(seen))
        assert numbers(seen) == list(range(RECORDS))


class Sharing(rota.RebalanceListener):
    """Says when something was let go."""

    def __init__(self) -> None:
        self.revoked: list[rota.TopicPartition] = []
        self.lost: list[rota.TopicPartition] = []

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.revoked += partitions

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self.lost += partitions


def test_two_consumers_share_the_partitions_and_nothing_comes_twice(server: str, topic: str) -> None:
    settings: Any = {"group_id": topic, "bootstrap_servers": server}
    listener = Sharing()
    with rota.Consumer(**settings, max_poll_records=20) as first, rota.Consumer(**settings) as second:
        first.subscribe(topic, listener=listener)
        seen = read(first, 20)
        second.subscribe(topic)
        while len(first.assignment()) != 2 or len(second.assignment()) != 2:
            for consumer in (first, second):
                for records in consumer.poll(timeout_ms=100).values():
                    seen += records
        while len(seen) < RECORDS:
            for consumer in (first, second):
                for records in consumer.poll(timeout_ms=100).values():
                    seen += records
        assert numbers(seen) == list(range(RECORDS))
        assert first.assignment().isdisjoint(second.assignment())
        assert set(listener.revoked) == second.assignment()
        assert listener.lost == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_static_member_that_is_restarted_within_its_session_moves_nothing(
    server: str, unique_name: str, *, killed: bool
) -> None:
    rota.create_topics(server, {unique_name: PARTITIONS})
    restart_moves_nothing(unique_name, server, killed=killed)


def test_partitions_assigned_by_hand_are_read(server: str, topic: str) -> None:
    with rota.Consumer(group_id=topic, bootstrap_servers=server) as consumer:
        consumer.assign([(topic, 0)])
        (end,) = consumer.end_offsets([(topic, 0)]).values()
        assert {record.partition for record in read(consumer, end)} == {0}


def test_a_sidecar_that_cannot_start_says_why(server: str) -> None:
    wrong = ["--rebalance-timeout-ms=0"]
    consumer = rota.Consumer("orders", group_id="g", bootstrap_servers=server, sidecar_flags=wrong)
    with pytest.raises(errors.SidecarFailed, match="exited with code 1: --rebalance-timeout-ms"):
        consumer.poll(timeout_ms=WAIT_MS)
    consumer.close()


def test_a_full_folder_for_temporary_files_is_said_with_what_to_do(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path) as disk:
        disk.fill()
        monkeypatch.setattr(tempfile, "tempdir", str(disk.seen))
        consumer = rota.Consumer("orders", group_id="g", bootstrap_servers=server)
        with pytest.raises(errors.SidecarFailed) as raised:
            consumer.poll(timeout_ms=WAIT_MS)
        consumer.close()
        assert str(raised.value) == (
            f"the consumer's own sidecar cannot be started (No space left on device: {disk.seen}): free some space, "
            "or set TMPDIR to another folder"
        )


def test_a_consumer_whose_sidecar_is_killed_says_so(server: str, topic: str) -> None:
    consumer = rota.Consumer(topic, group_id=topic, bootstrap_servers=server)
    read(consumer, RECORDS)
    process = consumer._engine._sidecar._process  # type: ignore[attr-defined]
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(errors.SidecarFailed, match="exited with code -9"):
        poll_on(consumer)
    consumer.close()


def poll_on(consumer: rota.Consumer) -> None:
    for _ in range(100):
        consumer.poll(timeout_ms=WAIT_MS)


def test_offsets_in_a_transaction_count_with_its_records_or_not_at_all(server: str, topic: str) -> None:
    copies = f"copies-{topic}"[:100]
    rota.create_topics(server, {copies: 1})
    settings: Any = {"group_id": topic, "bootstrap_servers": server, "enable_auto_commit": False}
    with rota.Producer(server, transactional_id=topic) as producer:
        producer.init_transactions()
        with rota.Consumer(topic, **settings) as consumer:
            records = read(consumer, RECORDS)
            ends = {(record.topic, record.partition): record.offset + 1 for record in records}
            producer.begin_transaction()
            producer.send(copies, b"never")
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            producer.abort_transaction()
        with rota.Consumer(topic, **settings) as consumer:
            assert numbers(read(consumer, RECORDS)) == list(range(RECORDS))
            with producer.transaction():
                producer.send(copies, b"once")
                producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            late = consumer.group_metadata()
        with rota.Consumer(topic, **settings) as consumer:
            consumer.poll(timeout_ms=WAIT_MS / 10)
            assert {partition: consumer.committed(partition) for partition in ends} == ends
            producer.begin_transaction()
            producer.send(copies, b"late")
            with pytest.raises(errors.RotaError):
                producer.send_offsets_to_transaction(dict.fromkeys(ends, 0), late)
            producer.abort_transaction()
    with rota.LogReader(server, read_committed=True) as reader:
        assert [value for batch in reader.read(copies, 0) for value in batch.values] == [b"once"]


def test_without_rota_sidecar_a_consumer_says_what_to_install() -> None:
    options = Options(group_id="g", bootstrap_servers="rota://localhost")
    with pytest.raises(errors.SidecarFailed, match="rota-sidecar is not installed"):
        SidecarProcess(options, "rota://localhost:7070", module="rota_sidecar_that_is_not_there")


def test_no_secret_is_in_the_arguments_of_a_sidecar_nor_in_what_options_look_like() -> None:
    options = Options(
        group_id="g",
        bootstrap_servers="k:9092",
        sasl_mechanism="PLAIN",
        sasl_username="me",
        sasl_password="hush",
    )
    given = " ".join(flags(options, "k:9092", Subscription(("orders",))))
    assert "--sasl-mechanism=PLAIN" in given
    assert "--topics=orders" in given
    assert "hush" not in given + repr(options)
    assert "me" not in given.split("=")


HANDLER = """
import rota, sys, os

@rota.handler({topic!r}, ordering="key", concurrency=8)
def work(record):
    print("worked", record.value.decode(), flush=True)

rota.run(work, group_id={topic!r}, bootstrap_servers={server!r})
print("ended", flush=True)
"""


def test_handlers_run_until_sigterm_and_go_in_good_order(server: str, topic: str, tmp_path: Path) -> None:
    log = tmp_path / "handler.log"
    program = HANDLER.format(topic=topic, server=server)
    process = Process.start("handler", [sys.executable, "-c", program], log=log)
    try:
        process.wait_until(lambda: log.read_text().count("worked") == RECORDS, within_s=WITHIN_S)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(within_s=WITHIN_S) == 0
    finally:
        process.stop()
    assert "ended" in log.read_text()
    with rota.Producer(server) as producer:
        producer.send(topic, b"999").result(10)
    with rota.Consumer(topic, group_id=topic, bootstrap_servers=server) as consumer:
        assert numbers(read(consumer, 1)) == [999]


SLOW_FOR_ONE_KEY = """
import os, rota, threading

@rota.handler({topic!r}, ordering="key", concurrency=8)
def work(record):
    threading.Event().wait(0.1 if record.key == b"7" else 0.001)
    os.write(1, b"worked %s\\n" % record.value)

rota.run(work, group_id={topic!r}, bootstrap_servers={server!r})
"""


def test_a_clean_stop_repeats_nothing_though_one_key_lies_behind(
    server: str, topic: str, tmp_path: Path
) -> None:
    program = SLOW_FOR_ONE_KEY.format(topic=topic, server=server)
    worked: list[int] = []
    while len(worked) < RECORDS:
        enough = min(40, RECORDS - len(worked))
        worked += work_until(program, enough, tmp_path / f"from-{len(worked)}.log")
    assert sorted(worked) == list(range(RECORDS))


def work_until(program: str, enough: int, log: Path) -> list[int]:
    """Run the program until it has processed so many records, and until it has shut down cleanly."""
    process = Process.start("handler", [sys.executable, "-c", program], log=log)
    try:
        process.wait_until(lambda: len(done_in(log)) >= enough, within_s=WITHIN_S)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(within_s=WITHIN_S) == 0
    finally:
        process.stop()
    return done_in(log)


def done_in(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("worked")]


CONSUMER = """
import rota, sys
consumer = rota.Consumer({topic!r}, group_id={topic!r}, bootstrap_servers={server!r})
while not consumer.poll(timeout_ms=1000):
    pass
print("sidecar", consumer._engine._sidecar._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_sidecar_ends_with_an_application_that_is_killed(server: str, topic: str) -> None:
    program = CONSUMER.format(topic=topic, server=server)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline().split()[1])
        watch = os.pidfd_open(pid)
        child.kill()
        ended, _, _ = select.select([watch], [], [], WITHIN_S)
        os.close(watch)
        assert ended, "the sidecar goes on without its application"


def test_each_reason_for_which_a_partition_stands_still_is_said_and_raised(
    server: str, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = server.removeprefix("rota://")
    rota.create_topics(server, {unique_name: 3})
    fill(address, unique_name, 3, standstill.RECORDS)
    delete_records(address, unique_name, standstill.EXPIRED, standstill.RECORDS)
    standstill.each_is_said(unique_name, server, caplog)


def test_a_server_that_is_away_is_said(caplog: pytest.LogCaptureFixture) -> None:
    standstill.a_server_that_is_away_is_said(f"rota://127.0.0.1:{free_port()}", caplog)
