"""A sidecar that delivers by HTTP, as a process on Rota's coordinator: verdicts, dead letters, and nothing repeated."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from tests.support.coordinator import serving
from tests.support.processes import Process
from tests.support.records import batch, committed, produce, values_in

pytestmark = pytest.mark.process

RECORDS = 20
WITHIN_S = 60


class Application(ThreadingHTTPServer):
    """Takes everything, but one record at the second time only, and one never."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posted: list[tuple[str, str]] = []
        self.lock = threading.Lock()

    def answer(self, record: str, deliveries: str) -> tuple[int, bytes]:
        with self.lock:
            self.posted.append((record, deliveries))
        if record == "orders/0/3" and deliveries == "1":
            return 503, b"in a moment"
        if record == "orders/0/5":
            return 422, b"no such customer"
        return 200, b"ok"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Application

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, body = self.server.answer(self.headers["ce-id"], self.headers["rota-deliveries"])
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def answering() -> Iterator[Application]:
    application = Application()
    thread = threading.Thread(target=application.serve_forever)
    thread.start()
    try:
        yield application
    finally:
        application.shutdown()
        thread.join()
        application.server_close()


@contextmanager
def posting(folder: Path, servers: str, port: int, *flags: str) -> Iterator[Process]:
    """A sidecar, until the end of the block."""
    command = [
        *(sys.executable, "-m", "rota_sidecar", f"--bootstrap-servers={servers}", "--group-id=orders"),
        *("--topics=orders", "--dead-letter-topic=orders.dlq", "--commit-interval-ms=200", "--http-listen="),
        *(f"--delivery-url=http://127.0.0.1:{port}/records", "--log-format=json", *flags),
    ]
    process = Process.start("sidecar", command, log=folder / "sidecar.log")
    try:
        yield process
        process.stop(within_s=WITHIN_S)
        assert process.exit_code == 0
    finally:
        process.stop()


def test_each_record_is_posted_until_it_is_taken_and_then_never_again(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator, answering() as application:
        servers = f"rota://{coordinator.address}"
        coordinator.make_topic("orders", 1)
        coordinator.make_topic("orders.dlq", 1)
        produce(coordinator.address, "orders", 0, batch([str(number) for number in range(RECORDS)]))

        def committed_all() -> bool:
            return committed(coordinator.address, "orders") == {("orders", 0): RECORDS}

        with posting(tmp_path, servers, application.server_port) as sidecar:
            sidecar.wait_until(committed_all, within_s=WITHIN_S)
        once = [(f"orders/0/{number}", "1") for number in range(RECORDS)]
        assert application.posted == [*once[:4], ("orders/0/3", "2"), *once[4:]]
        assert values_in(coordinator.address, "orders.dlq") == ["5"]
        said = [json.loads(line) for line in (tmp_path / "sidecar.log").read_text().splitlines()]
        assert any(line["event"] == "attached" for line in said)

        application.posted.clear()
        produce(coordinator.address, "orders", 0, batch(["one more"]))
        with posting(tmp_path, servers, application.server_port) as sidecar:
            sidecar.wait_until(lambda: bool(application.posted), within_s=WITHIN_S)
        assert application.posted == [(f"orders/0/{RECORDS}", "1")]
