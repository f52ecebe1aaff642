"""Checks of a consumer with a sidecar of its own: records, messages to the application, and what other users can read."""

import asyncio
import re
from pathlib import Path

import pytest

import rota
from rota import errors
from rota.consumer.options import Settings
from rota.consumer.sidecar_process import SidecarProcess

POLL_MS = 1_000
# As many polls as the application may have to make before it is told; a process starts in between.
POLLS_MAX = 15


def values(consumer: rota.Consumer, count: int) -> list[int]:
    """So many, each a number, in order."""
    found: list[int] = []
    for _ in range(POLLS_MAX):
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            found += [int(record.value) for record in records]
        if len(found) >= count:
            break
    return sorted(found)


def failure_message(topic: str, settings: Settings) -> str:
    """The one sentence that the application is told in time when its sidecar is refused."""
    consumer = rota.Consumer(topic, **settings)
    try:
        with pytest.raises(errors.SidecarFailed) as raised:
            values(consumer, 1)
    finally:
        consumer.close()
    message = str(raised.value)
    assert "\n" not in message
    assert re.match("the consumer's own sidecar exited with code 1: [^{]", message), message
    return message


def shown_to_all(consumer: rota.Consumer) -> str:
    """All that other users of the machine can read of the running sidecar."""
    return Path(f"/proc/{process_of(consumer).pid}/cmdline").read_text()


def process_of(consumer: rota.Consumer) -> asyncio.subprocess.Process:
    """Of the sidecar."""
    sidecar = consumer._engine._sidecar
    assert isinstance(sidecar, SidecarProcess)
    assert sidecar._process is not None
    return sidecar._process
