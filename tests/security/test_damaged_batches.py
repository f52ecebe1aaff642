"""A batch that a disk has damaged stops its own partition, is named wherever one looks, and can be got past."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from rota.log_reader import LogReader
from tests.cli.command import Rota
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator
from tests.support.records import AT_MS, batch, committed, produce
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.process

TOPIC = "events"
GROUP = "readers"
BAD = 1
PARTITIONS = (0, BAD, 2)
# So many batches of two records in each partition before one is damaged; it is the second one.
BATCHES = 3
REMEDY = "rota topics delete-records events --partition 1 --before 4"


def more(coordinator: Coordinator) -> None:
    """A batch of two records for each partition."""
    for partition in PARTITIONS:
        produce(coordinator.address, TOPIC, partition, batch(["a", "b"]))


def damage(file: Path) -> None:
    """Change a byte of a payload, as a disk would: no checksum is written anew."""
    connection = apsw.Connection(str(file))
    connection.execute(
        "UPDATE payloads SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE payload_id = "
        "(SELECT payload_id FROM headers WHERE base_offset = 2 AND log_id = "
        "(SELECT log_id FROM headers GROUP BY log_id ORDER BY log_id LIMIT 1 OFFSET ?))",
        (BAD,),
    )
    assert connection.changes() == 1
    connection.close()


@contextmanager
def damaged(folder: Path, program: str = "rota_coordinator") -> Iterator[Coordinator]:
    """A coordinator whose file was damaged while it did not run."""
    coordinator = Coordinator(folder, program=program)
    coordinator.start()
    try:
        coordinator.make_topic(TOPIC, len(PARTITIONS))
        for _ in range(BATCHES):
            more(coordinator)
        coordinator.stop()
        damage(coordinator.file)
        coordinator.start()
        yield coordinator
    finally:
        coordinator.stop()


def payload_of(file: Path, base_offset: int) -> bytes:
    """Return the payload in the file for the batch of the damaged partition."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(
        "SELECT data FROM payloads JOIN headers USING (payload_id) WHERE base_offset = ? AND log_id = "
        "(SELECT log_id FROM headers GROUP BY log_id ORDER BY log_id LIMIT 1 OFFSET ?)",
        (base_offset, BAD),
    ).get
    connection.close()
    assert isinstance(found, bytes)
    return found


def offsets_done(app: App, partition: int) -> list[int]:
    return sorted(offset for _, number, offset in app.done if number == partition)


def test_a_damaged_batch_stops_its_partition_alone_until_it_is_deleted(tmp_path: Path) -> None:
    with damaged(tmp_path) as coordinator:
        rota = Rota(f"rota://{coordinator.address}", tmp_path)
        # What was deleted on purpose is no reason to leave out what lies behind it.
        flags = (f"--topics={TOPIC}", "--commit-interval-ms=200", "--on-offset-expired=latest")
        sidecar = Deliverer(tmp_path, rota.servers, GROUP, flags)
        app = App(tmp_path, sidecar.address)
        with delivering(sidecar), attached(app):
            app.wait_until(lambda: [len(offsets_done(app, each)) for each in PARTITIONS] == [6, 2, 6])
            sidecar.wait_until(lambda: REMEDY in sidecar.unready_because)
            assert "events-1" in sidecar.unready_because
            more(coordinator)
            app.wait_until(lambda: [len(offsets_done(app, each)) for each in PARTITIONS] == [8, 2, 8])
            expected = {(TOPIC, 0): 8, (TOPIC, BAD): 2, (TOPIC, 2): 8}
            sidecar.wait_until(lambda: committed(coordinator.address, GROUP) == expected)

            (named,) = (line for line in rota("doctor").lines if "cannot be read" in line)
            assert named.startswith("warning")
            assert "events[1]" in named
            assert REMEDY in named
            assert any(REMEDY in line for line in rota("groups", "explain", GROUP).lines)
            assert rota("groups", "lag", GROUP).code == 0
            refused = rota("consume", TOPIC, "--from-beginning")
            assert REMEDY in refused.stderr

            assert "add --yes" in rota(*REMEDY.split()[1:]).error
            assert rota(*REMEDY.split()[1:], "--yes").lines == ["events[1] starts at offset 4"]
            app.wait_until(lambda: offsets_done(app, BAD) == [0, 1, 4, 5, 6, 7])
            sidecar.wait_until(lambda: sidecar.is_ready)
            assert not [line for line in rota("doctor").lines if "cannot be read" in line]


def test_with_a_dead_letter_topic_the_bytes_are_kept_there_and_the_partition_goes_on(tmp_path: Path) -> None:
    with damaged(tmp_path) as coordinator:
        coordinator.make_topic("dead", 1)
        servers = f"rota://{coordinator.address}"
        flags = (f"--topics={TOPIC}", "--commit-interval-ms=200", "--dead-letter-topic=dead")
        sidecar = Deliverer(tmp_path, servers, GROUP, flags)
        app = App(tmp_path, sidecar.address)
        with delivering(sidecar), attached(app):
            app.wait_until(lambda: [len(offsets_done(app, each)) for each in PARTITIONS] == [6, 4, 6])
            assert offsets_done(app, BAD) == [0, 1, 4, 5]
            ends = {(TOPIC, partition): 6 for partition in PARTITIONS}
            sidecar.wait_until(lambda: committed(coordinator.address, GROUP) == ends)
            assert sidecar.unready_because == ""
        with LogReader(servers) as reader:
            (dead_letter,) = (record for found in reader.read("dead", 0) for record in found)
        assert (dead_letter.key, dead_letter.value) == (None, payload_of(coordinator.file, 2))
        headers = dict(dead_letter.headers)
        assert b"cannot be read" in (headers.pop("rota-dlq-reason") or b"")
        assert headers == {
            "rota-batch-base-offset": b"2",
            "rota-batch-count": b"2",
            "rota-batch-codec": b"0",
            "rota-dlq-topic": TOPIC.encode(),
            "rota-dlq-partition": b"1",
            "rota-dlq-offset": b"2",
            "rota-dlq-timestamp": b"%d" % AT_MS,
            "rota-dlq-deliveries": b"0",
            "rota-dlq-group": GROUP.encode(),
        }
        assert dead_letter.timestamp_ms == AT_MS
