"""Dead letters that a sidecar has written, for the tests of the command line on both engines."""

import os
import signal
import sys
from pathlib import Path

from rota import Producer
from tests.cli.command import Rota
from tests.support.processes import Process

WITHIN_S = 60
HANDLER = """
import os, rota

@rota.handler({topic!r})
def work(record):
    os.write(1, b"worked\\n")
    raise rota.DeadLetter("no price in " + record.value.decode())

rota.run(work, group_id={group!r}, bootstrap_servers={servers!r}, dead_letter_topic={dead_letter_topic!r})
"""


def fail_all(rota_command: Rota, topic: str, records: int, folder: Path) -> str:
    """
    Produce so many records, each with a key and a header, and have a handler reject each of them; return the dead-letter topic.
    The records are `0`, `1`, and so on, and their timestamps are that many seconds.
    """
    servers, dead_letter_topic = rota_command.servers, f"{topic}-dlq"
    assert rota_command("topics", "create", topic, "-p", "2").code == 0
    assert rota_command("topics", "create", dead_letter_topic, "-p", "2").code == 0
    with Producer(servers.removeprefix("kafka://")) as producer:
        for number in range(records):
            text = b"%d" % number
            producer.send(topic, text, text, timestamp_ms=1_000 * number, headers=[("number", text)])
    program = HANDLER.format(
        topic=topic,
        group=f"{topic}-group",
        servers=servers.removeprefix("kafka://"),
        dead_letter_topic=dead_letter_topic,
    )
    log = folder / "handler.log"
    process = Process.start("handler", [sys.executable, "-c", program], log=log)
    try:
        process.wait_until(lambda: log.read_text().count("worked") == records, within_s=WITHIN_S)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(within_s=WITHIN_S) == 0
    finally:
        process.stop()
    return dead_letter_topic


def check_list(rota_command: Rota, topic: str, folder: Path) -> None:
    """The dead letters of five records are listed with all that their sidecar knows, and chosen by it."""
    dead_letter_topic = fail_all(rota_command, topic, 5, folder)

    def listed(*flags: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = rota_command(
            "dead-letters", "list", dead_letter_topic, *flags, "-o", "json"
        ).data
        return sorted(found, key=lambda row: int(str(row["timestamp_ms"])))

    for number, row in enumerate(listed()):
        assert (row["origin_topic"], row["group"], row["deliveries"]) == (topic, f"{topic}-group", 1)
        assert (row["state"], row["remark"]) == ("pending", None)
        assert (row["reason"], row["timestamp_ms"]) == (f"no price in {number}", 1_000 * number)
    assert [row["reason"] for row in listed("--reason", "in 3")] == ["no price in 3"]
    assert len(listed("--topic", topic, "--group", f"{topic}-group")) == 5
    assert listed("--topic", dead_letter_topic) == listed("--group", "other") == []
    since = listed("--since", "1970-01-01T00:00:01Z", "--until", "1970-01-01T00:00:03Z")
    assert [row["timestamp_ms"] for row in since] == [1_000, 2_000]
    heading, *lines = rota_command("dead-letters", "list", dead_letter_topic).lines
    assert heading.split() == [
        *("PARTITION", "OFFSET", "TIME", "ORIGIN", "GROUP", "DELIVERIES", "STATE", "REASON", "REMARK")
    ]
    assert len(lines) == 5
    nothing = rota_command("dead-letters", "list", topic, "--group", "other")
    assert (nothing.code, nothing.stdout, nothing.stderr) == (0, "", f"no dead letters found in {topic}\n")
    assert rota_command("dead-letters", "list", "not-there").code == 4
