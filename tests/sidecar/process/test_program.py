"""The sidecar with an application beside it, on Rota's coordinator: records flow, are committed, and none is repeated."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import ProcessFailed
from tests.support.records import batch, committed, fill, produce, values_in
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.process
PARTITIONS = 4
RECORDS = 500


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as running:
        yield running


@pytest.fixture
def topic(coordinator: Coordinator, request: pytest.FixtureRequest) -> str:
    """A topic for each test, with records; a group of the same name."""
    name = str(request.node.name).removeprefix("test_")[:80]
    coordinator.make_topic(name, PARTITIONS)
    fill(coordinator.address, name, PARTITIONS, RECORDS)
    return name


def sidecar_on(
    folder: Path, coordinator: Coordinator, topic: str, *flags: str, name: str = "sidecar"
) -> Deliverer:
    more = (f"--topics={topic}", "--commit-interval-ms=200", *flags)
    return Deliverer(folder, f"rota://{coordinator.address}", topic, more, name=name)


def everything(topic: str, records: int = RECORDS) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for partition in range(PARTITIONS) for offset in range(records)]


def ends(topic: str, records: int = RECORDS) -> dict[tuple[str, int], int]:
    return {(topic, partition): records for partition in range(PARTITIONS)}


def verdicts(sidecar: Deliverer) -> int:
    """The number of verdicts that it has read."""
    return sum(
        int(value) for series, value in sidecar.metrics().items() if series.startswith("rota_records_total")
    )


def test_records_flow_in_order_and_are_committed(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) == PARTITIONS * RECORDS)
        assert sorted(app.done) == everything(topic)
        for partition in range(PARTITIONS):
            mine = [offset for _, number, offset in app.done if number == partition]
            assert mine == sorted(mine)
        sidecar.wait_until(lambda: committed(coordinator.address, topic) == ends(topic))
        produce(coordinator.address, topic, 0, batch(["later"]))
        app.wait_until(lambda: app.done[-1] == (topic, 0, RECORDS))


def test_on_sigterm_it_commits_leaves_and_repeats_nothing(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    first = sidecar_on(tmp_path, coordinator, topic, "--commit-interval-ms=60000")
    second = sidecar_on(tmp_path, coordinator, topic, name="second")
    apps = [
        App(tmp_path, each.address, ["--pause-ms=1", "--credit=100"], name=each.name)
        for each in (first, second)
    ]
    with delivering(first, second), attached(*apps):
        apps[0].wait_until(lambda: len(apps[0].done) > 100)
        assert first.terminate() == 0
        apps[1].wait_until(lambda: len(apps[0].done + apps[1].done) >= PARTITIONS * RECORDS)
        assert sorted(apps[0].done + apps[1].done) == everything(topic)
        assert len(apps[1].partitions) == PARTITIONS


def test_what_a_killed_application_held_comes_again(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    app = App(tmp_path, sidecar.address, ["--pause-ms=1", "--credit=100"])
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) > 100)
        app.kill()
        sidecar.wait_until(lambda: sidecar.has_said("detached"))
        # Verdicts that the sidecar has not read died with the application.
        unread = len(app.done) - verdicts(sidecar)
        app.start()
        app.wait_until(lambda: set(app.done) == set(everything(topic)))
        assert len(app.done) - PARTITIONS * RECORDS <= unread, "a record with a verdict is not repeated"


def test_a_record_that_fails_for_good_goes_to_the_dead_letter_topic(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    coordinator.make_topic(f"{topic}.dlq", 1)
    flags = (f"--dead-letter-topic={topic}.dlq", "--retries=2", "--backoff-ms=10")
    sidecar = sidecar_on(tmp_path, coordinator, topic, *flags)
    rules = '--rules={"7": "retry", "8": "dead-letter", "9": "retry-once", "10": "skip"}'
    app = App(tmp_path, sidecar.address, [rules])
    with delivering(sidecar), attached(app):
        sidecar.wait_until(lambda: committed(coordinator.address, topic) == ends(topic))
        assert sorted(values_in(coordinator.address, f"{topic}.dlq")) == ["7"] * 4 + ["8"] * 4
        last = [event for event in app.events if event["event"] == "done" and event["value"] == "7"]
        assert {event["deliveries"] for event in last} == {1, 2, 3}


def test_an_application_that_a_record_kills_gets_rid_of_it_and_of_no_other(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    coordinator.make_topic(f"{topic}.dlq", 1)
    produce(coordinator.address, topic, 2, batch(["poison", "after"]))
    flags = (f"--dead-letter-topic={topic}.dlq", "--retries=1", "--backoff-ms=10")
    sidecar = sidecar_on(tmp_path, coordinator, topic, *flags)
    app = App(tmp_path, sidecar.address, ['--rules={"poison": "die"}'])
    with delivering(sidecar), attached(app):

        def is_done() -> bool:
            if not app.is_running:
                app.start()
            return committed(coordinator.address, topic) == ends(topic) | {(topic, 2): RECORDS + 2}

        sidecar.wait_until(is_done, within_s=60)
        assert values_in(coordinator.address, f"{topic}.dlq") == ["poison"]


def test_a_sidecar_that_is_killed_with_its_application_repeats_only_what_was_not_committed(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(
        tmp_path, coordinator, topic, "--commit-mode=sync", f"--state-folder={tmp_path}/state"
    )
    app = App(tmp_path, sidecar.address, ["--pause-ms=1", "--credit=50"])
    with delivering(sidecar), attached(app):
        app.wait_until(lambda: len(app.done) > 100)
        app.kill()
        sidecar.kill()
        before = committed(coordinator.address, topic)
        had = len(app.done)
        sidecar.start()
        app.start()
        app.wait_until(lambda: set(app.done) == set(everything(topic)), within_s=60)
        again = app.done[had:]
        assert all(offset >= before.get((name, number), 0) for name, number, offset in again)


def test_a_listener_that_cannot_be_opened_ends_the_program_with_one_line(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    sidecar = sidecar_on(tmp_path, coordinator, topic)
    with delivering(sidecar):
        other = sidecar_on(tmp_path, coordinator, topic, f"--http-listen={sidecar.http}", name="other")
        with pytest.raises(ProcessFailed, match="cannot be listened on"):
            other.start()
        other.close()


class Hook(BaseHTTPRequestHandler):
    """Takes every record."""

    taken: ClassVar[list[str]] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.taken.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    @override
    def log_message(self, format: str, *values: object) -> None:
        """Nothing."""


def test_without_grpc_records_go_out_by_http(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    serving_http = threading.Thread(target=server.serve_forever)
    serving_http.start()
    sidecar = sidecar_on(
        tmp_path, coordinator, topic, f"--delivery-url=http://127.0.0.1:{server.server_port}/in"
    )
    try:
        sidecar.begin_start()
        sidecar.wait_until(lambda: committed(coordinator.address, topic) == ends(topic))
        assert sorted(Hook.taken, key=int) == sorted([str(n) for n in range(RECORDS)] * PARTITIONS, key=int)
        sidecar.wait_until(lambda: sidecar.has_said("attached"))
        assert sidecar.terminate() == 0
    finally:
        sidecar.close()
        server.shutdown()
        server.server_close()
        serving_http.join()


def test_it_ends_with_whoever_started_it_for_itself(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    command = [sys.executable, "-m", "rota_sidecar", f"--bootstrap-servers=rota://{coordinator.address}"]
    command += [f"--group-id={topic}", f"--topics={topic}", "--listen=127.0.0.1:0", "--http-listen="]
    with subprocess.Popen(
        [*command, "--ends-with-stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            assert child.stdin is not None
            assert child.stderr is not None
            while b"assigned" not in (line := child.stderr.readline()):
                assert line, "it has ended"
            child.stdin.close()
            assert child.wait(20) == 0
            assert (
                b"standard input has ended: the process that started the sidecar is gone"
                in child.stderr.read()
            )
        finally:
            child.kill()


def test_a_state_folder_of_another_sidecar_is_refused_in_one_line(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    flag = f"--state-folder={tmp_path}/state"
    first, second = (
        sidecar_on(tmp_path, coordinator, topic, flag, name=name) for name in ("first", "second")
    )
    with delivering(first):
        first.wait_until(lambda: first.has_said("assigned"))
        second.begin_start()
        assert second.process.wait(within_s=60) == 1
        log = second.process.log.read_text()
        assert "is in use by another sidecar" in log
        assert "Traceback" not in log
        assert "Warning" not in log
        second.close()


def test_settings_are_read_before_anything_is(tmp_path: Path, coordinator: Coordinator, topic: str) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"topics": [topic], "suspend": True}))
    sidecar = Deliverer(tmp_path, f"rota://{coordinator.address}", topic, [f"--settings={settings}"])
    app = App(tmp_path, sidecar.address)
    with delivering(sidecar), attached(app):
        app.wait("assigned")
        sidecar.wait_until(lambda: sidecar.is_ready)
        lag = f'rota_lag_records{{group="{topic}",partition="0",topic="{topic}"}}'
        sidecar.wait_until(lambda: lag in sidecar.metrics())
        assert app.done == []
        assert sidecar.metrics()[lag] == RECORDS
        assert sidecar.terminate() == 0
