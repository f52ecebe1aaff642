"""
An application for tests of what the fields of a ConsumerGroup do: notes each record that it is given, and when.

`poll` asks for records, `handle` has a handler called, `serve` is sent them by HTTP. A value that begins with "fail" fails, one
that begins with "hang" is worked on for ever.
"""

import http.server
import sys
import threading
import time
from pathlib import Path

import rota

NOTES, MODE, MORE = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]


def note(topic: str, value: str) -> None:
    """A line for the test: when, of which topic, and what."""
    with NOTES.open("a") as notes:
        at_ms = int(time.monotonic() * 1000)  # noqa: TID251  the test compares them
        notes.write(f"{at_ms} {topic} {value}\n")


def poll() -> None:
    """As a loop that asks."""
    with rota.Consumer() as consumer:
        while True:
            for records in consumer.poll(timeout_ms=1_000).values():
                for record in records:
                    value = (record.value or b"").decode()
                    note(record.topic, value)
                    if value.startswith("hang"):
                        threading.Event().wait()


def handle() -> None:
    """As a handler of these topics."""
    ordering, concurrency, *topics = MORE

    @rota.handler(*topics, ordering=ordering, concurrency=int(concurrency))  # type: ignore[arg-type]  # as it is given
    def work(record: rota.Record) -> None:
        value = (record.value or b"").decode()
        note(record.topic, value)
        if value.startswith("fail"):
            raise ValueError("it always fails")

    rota.run(work)


class Served(http.server.BaseHTTPRequestHandler):
    """Is given a record, and is done with it."""

    def do_POST(self) -> None:
        """One record."""
        value = self.rfile.read(int(self.headers["Content-Length"])).decode()
        note(self.headers["ce-source"].removeprefix("/topics/"), value)
        if value.startswith("hang"):
            threading.Event().wait()
        self.send_response(204)
        self.end_headers()


if MODE == "serve":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(MORE[0])), Served).serve_forever()
else:
    {"poll": poll, "handle": handle}[MODE]()
