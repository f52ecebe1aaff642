"""
The application of the disrupted pods: works for some time on each record, and writes what it does to a file on the disk of its node.

Run in pods, by its text; the file survives pod and node. A line is written before the verdict of its record: what was done may be
repeated after a kill, and is not forgotten. Times are the machine's steady clock, which all pods share.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import rota
from rota import errors
from rota.handlers.runner import Runner
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

FOLDER = Path("/events")
KINDS = {pb.ASSIGNED: "assigned", pb.REVOKING: "revoking", pb.REVOKED: "revoked", pb.LOST: "lost"}


def now_ms() -> int:
    """Milliseconds of the machine's steady clock."""
    return time.monotonic_ns() // 1_000_000


class Events:
    """The file of this process: one line of JSON for each event, written at once."""

    def __init__(self) -> None:
        pod = os.uname().nodename
        self._file = (FOLDER / f"{pod}.{now_ms()}").open("w", buffering=1)

    def write(self, event: str, **fields: object) -> None:
        self._file.write(json.dumps({"event": event, **fields, "monotonic_ms": now_ms()}) + "\n")


def note_rebalances(events: Events) -> None:
    """Write each event of the sidecar before the runner of the handlers takes it."""
    on_event = Runner.on_event

    async def noted(self: Runner, event: pb.AttachResponse.Event) -> None:
        partitions: dict[str, list[int]] = {}
        for each in event.partitions:
            partitions.setdefault(each.topic, []).append(each.partition)
        tenure = event.tenure
        events.write(
            KINDS[event.kind],
            partitions=partitions,
            generation=tenure.generation_id,
            incarnation=tenure.incarnation,
            reason=event.reason,
        )
        await on_event(self, event)

    Runner.on_event = noted  # type: ignore[method-assign]


def note_disconnects(events: Events) -> None:
    """Write when the sidecar is gone: it reports no partition that is revoked before the next one attaches."""
    on_detached = Runner._on_detached

    def noted(self: Runner, error: errors.RotaError) -> None:
        events.write("detached")
        on_detached(self, error)

    Runner._on_detached = noted  # type: ignore[method-assign]


def main(topic: str, work_ms: str, ordering: Any) -> None:  # noqa: ANN401  of the command line
    """Handle the topic's records until SIGTERM."""
    events = Events()
    note_rebalances(events)
    note_disconnects(events)

    @rota.handler(topic, ordering=ordering)
    async def work(record: rota.Record[Any, Any]) -> None:
        about = {"topic": record.topic, "partition": record.partition, "first": record.offset}
        events.write("begun", **about)
        await asyncio.sleep(int(work_ms) / 1000)
        value = (record.value or b"").decode()
        events.write("done", **about, last=record.offset, verdict="ACK", value=value)

    events.write("started")
    rota.run(work)
    events.write("ended")


if __name__ == "__main__":
    # The first process of a container ignores what it has no handler for: until the handlers run, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(*sys.argv[1:])
