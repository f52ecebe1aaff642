"""A process of handlers whose partitions do not move on ends within its drain time after SIGTERM, and leaves its group."""

import os
import signal
import sys
from pathlib import Path

import pytest

import rota
from tests.support.coordinator import serving
from tests.support.processes import Process

pytestmark = pytest.mark.process
WITHIN_S = 60
DRAIN_S = 3
# For a busy machine.
SLACK_S = 8

PROGRAM = """
import logging, sys, threading
import rota

logging.basicConfig(level=logging.INFO)
body, more = {body!r}, {more!r}

@rota.handler({topic!r})
def work(record):
    print("begins", flush=True)
    if body == "fail":
        raise rota.DeadLetter("bad")
    if body == "hang":
        threading.Event().wait()

rota.run(work, group_id={group!r}, bootstrap_servers={server!r}, drain_timeout_ms={drain_ms}, **more)
print("ended", flush=True)
"""
# Group: what its handler does with a record, settings, and what its log says when it is stuck.
STATES: dict[str, tuple[str, rota.consumer.options.Settings | dict[str, str], str]] = {
    "no-dead-letter-topic": ("fail", {}, "failed permanently"),
    "dead-letter-topic-missing": ("fail", {"dead_letter_topic": "nope"}, "dead letters cannot be written"),
    "topic-missing": ("return", {}, "topics that do not exist"),
    "nothing-committed": ("return", {"auto_offset_reset": "none"}, "nothing is committed"),
    "handler-hangs": ("hang", {}, "begins"),
    "no-server": ("return", {}, "cannot be reached"),
}


def started(group: str, server: str, topic: str, folder: Path) -> Process:
    body, more, _ = STATES[group]
    program = PROGRAM.format(
        body=body, more=more, topic=topic, group=group, server=server, drain_ms=DRAIN_S * 1000
    )
    return Process.start(group, [sys.executable, "-c", program], log=folder / f"{group}.log")


def test_handlers_end_and_leave_whatever_they_are_stuck_in(tmp_path: Path) -> None:
    with serving(tmp_path) as coordinator:
        server = f"rota://{coordinator.address}"
        rota.create_topics(server, {"orders": 1})
        with rota.Producer(server) as producer:
            producer.send("orders", b"x").result(WITHIN_S)
        processes = {
            group: started(
                group,
                "rota://127.0.0.1:1" if group == "no-server" else server,
                "absent" if group == "topic-missing" else "orders",
                tmp_path,
            )
            for group in STATES
        }
        try:
            for group, process in processes.items():
                sign = STATES[group][2]
                process.wait_until(lambda: sign in process.log.read_text(), within_s=WITHIN_S)  # noqa: B023  called before the next turn
            for process in processes.values():
                os.kill(process.pid, signal.SIGTERM)
            codes = {group: process.wait(within_s=DRAIN_S + SLACK_S) for group, process in processes.items()}
        finally:
            for process in processes.values():
                process.stop()
        assert codes == dict.fromkeys(STATES, 0)
        logs = {group: process.log.read_text() for group, process in processes.items()}
        assert [group for group, log in logs.items() if "ended" not in log] == []
        assert [group for group, log in logs.items() if "is killed" in log] == []
        assert {group: coordinator.members_of(group) for group in STATES} == dict.fromkeys(STATES, 0)
        assert "orders[0] at offset 0: the handler did not return" in logs["handler-hangs"]
