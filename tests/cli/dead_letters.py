"""Dead letters that a sidecar has written, for the tests of the command line on both engines."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from rota import Producer, errors
from rota.addresses import address_of
from rota.records import Headers, TopicPartition
from rota_cli.clusters.connection import Connection
from rota_cli.clusters.open import open_cluster
from rota_cli.clusters.port import Cluster
from tests.cli.command import Rota
from tests.cli.commands.dead_letter_fakes import dead_letter_headers
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


def time_of(number: int) -> int:
    """Timestamp of a record in ms; librdkafka takes 0 for none."""
    return 1_000 * (number + 1)


def fail_all(rota_command: Rota, topic: str, records: int, folder: Path) -> str:
    """
    Produce so many records, each with a key and a header, and have a handler reject each of them; return the dead-letter topic.
    The records are `0`, `1`, and so on; see `time_of` for their timestamps.
    """
    servers, dead_letter_topic = rota_command.servers, f"{topic}-dlq"
    # The records have timestamps of 1970.
    for each in (topic, dead_letter_topic):
        assert rota_command("topics", "create", each, "-p", "2", "--retention", "forever").code == 0
    with Producer(servers.removeprefix("kafka://")) as producer:
        for number in range(records):
            text = b"%d" % number
            producer.send(topic, text, text, timestamp_ms=time_of(number), headers=[("number", text)])
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


def synthesize(rota_command: Rota, topic: str, dead_letters: int) -> str:
    """Produce so many dead letters of `topic`, whose values are their numbers; return the dead-letter topic."""
    dead_letter_topic = f"{topic}-dlq"
    for each in (topic, dead_letter_topic):
        assert rota_command("topics", "create", each, "-p", "2", "--retention", "forever").code == 0
    with Producer(rota_command.servers.removeprefix("kafka://")) as producer:
        for number in range(dead_letters):
            headers = dead_letter_headers(topic, number % 2, number)
            producer.send(dead_letter_topic, b"%d" % number, partition=number % 2, headers=headers)
    return dead_letter_topic


def values(rota_command: Rota, topic: str) -> list[int]:
    """All values that a reader of committed records is given, sorted."""
    found = rota_command("consume", topic, "--from-beginning", "--read-committed", "--value-only").lines
    return sorted(int(line) for line in found)


def check_replay(rota_command: Rota, topic: str, folder: Path) -> None:
    """Dead letters of a sidecar are in their topic again as they were, each once, also with filters in between."""
    dead_letter_topic = fail_all(rota_command, topic, 5, folder)
    command = ("dead-letters", "replay", dead_letter_topic)
    assert rota_command(*command).code == 2
    dry = rota_command(*command, "--dry-run")
    assert (len(dry.lines), dry.stderr) == (6, "dry run, nothing changed; use --execute to apply\n")
    assert values(rota_command, topic) == list(range(5))
    some = rota_command(*command, "--reason", "in 3", "--execute")
    assert some.stderr == f"replayed 1 dead letter of {dead_letter_topic}\n"
    assert values(rota_command, topic) == [0, 1, 2, 3, 3, 4]
    done = rota_command(*command, "--execute", "-o", "json").data
    assert (done["executed"], done["replayed"], done["skipped"]) == (True, 4, 0)
    assert {row["state"] for row in done["dead_letters"]} == {"replayed"}
    again = rota_command(*command, "--execute")
    assert (again.code, again.stdout) == (0, "")
    assert again.stderr == (
        f"no dead letters to replay in {dead_letter_topic}\nreplayed 0 dead letters of {dead_letter_topic}\n"
    )
    assert values(rota_command, topic) == sorted([*range(5), *range(5)])
    shown = rota_command("consume", topic, "--from-beginning", "--read-committed", "-o", "json").lines
    records = [json.loads(line) for line in shown]
    for record in records:
        assert record["key"] == record["value"]
        assert record["timestamp_ms"] == time_of(int(record["value"]))
        assert record["headers"] == [{"name": "number", "value": record["value"]}]
    # The record and its replay are in the same partition.
    assert len({(record["partition"], record["value"]) for record in records}) == 5
    listed = rota_command("dead-letters", "list", dead_letter_topic, "--include-replayed", "-o", "json").data
    assert [row["state"] for row in listed] == ["replayed"] * 5
    assert rota_command("dead-letters", "list", dead_letter_topic).stdout == ""


def check_kills(rota_command: Rota, topic: str, folder: Path) -> None:
    """A replay that is killed half-way, and then runs in two processes at once, replays each dead letter once."""
    records = 10_000
    dead_letter_topic = synthesize(rota_command, topic, records)
    command = [sys.executable, "-m", "rota_cli", "dead-letters", "replay", dead_letter_topic, "--execute"]

    def start(name: str) -> Process:
        return Process.start(name, command, log=folder / name, env=rota_command.environment())

    with open_cluster(Connection(address_of(rota_command.servers), "the test")) as cluster:
        for number in range(2):
            before = end_of(cluster, topic)
            process = start(f"killed-{number}")
            try:
                while end_of(cluster, topic) == before:
                    process.check_running()
            finally:
                process.stop(first=signal.SIGKILL)
            assert process.exit_code == -signal.SIGKILL
    both = [start("first"), start("second")]
    try:
        codes = [process.wait(within_s=WITHIN_S) for process in both]
    finally:
        for process in both:
            process.kill()
    assert 0 in codes
    for process, code in zip(both, codes, strict=True):
        assert code == 0 or "another replay of" in process.log.read_text(), process.log.read_text()
    assert values(rota_command, topic) == list(range(records))
    assert rota_command("dead-letters", "list", dead_letter_topic).stdout == ""


def end_of(cluster: Cluster, topic: str) -> int:
    """The number of records in a topic of two partitions, of open and aborted transactions too."""
    ranges = cluster.records.ranges([TopicPartition(topic, number) for number in range(2)])
    return sum(each.end for each in ranges.values())


def check_fencing(rota_command: Rota, topic: str) -> None:
    """A replay aborts what another one has not committed, and that one can commit it no more."""
    dead_letter_topic = synthesize(rota_command, topic, 3)
    servers = rota_command.servers.removeprefix("kafka://")
    with Producer(servers, transactional_id=f"{dead_letter_topic}.rota-replay") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"0", partition=0)
        producer.send(dead_letter_topic, None, partition=0, headers=[("rota-dlq-replayed", b"0")])
        producer.flush(WITHIN_S)
        assert rota_command("dead-letters", "replay", dead_letter_topic, "--execute").code == 0
        with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
            producer.commit_transaction()
    assert values(rota_command, topic) == [0, 1, 2]


def check_open_transaction(rota_command: Rota, topic: str) -> None:
    """Behind another producer's open transaction nothing is replayed; after its end, everything once."""
    dead_letter_topic = synthesize(rota_command, topic, 3)
    servers = rota_command.servers.removeprefix("kafka://")
    command = ("dead-letters", "replay", dead_letter_topic, "--execute", "--timeout", "5")
    with Producer(servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        headers = dead_letter_headers(topic, 1, 9)
        producer.send(dead_letter_topic, b"9", partition=1, headers=headers).result(WITHIN_S)
        refused = rota_command(*command)
        assert (refused.code, "as behind an open transaction" in refused.error) == (3, True)
        assert values(rota_command, topic) == []
        producer.commit_transaction()
    assert rota_command(*command).code == 0
    assert values(rota_command, topic) == [0, 1, 2, 9]


def check_skipped(rota_command: Rota, topic: str) -> None:
    """Dead letters whose topic or partition is gone, or whose headers are not ours, are skipped by name."""
    dead_letter_topic = synthesize(rota_command, topic, 2)
    gone: list[Headers] = [
        dead_letter_headers(f"{topic}-gone"),
        dead_letter_headers(topic, 7),
        dead_letter_headers(dead_letter_topic),
        [("kind", b"x")],
    ]
    with Producer(rota_command.servers.removeprefix("kafka://")) as producer:
        for headers in gone:
            producer.send(dead_letter_topic, b"9", partition=1, headers=headers)
    done = rota_command("dead-letters", "replay", dead_letter_topic, "--execute", "-o", "json").data
    assert (done["replayed"], done["skipped"]) == (2, 4)
    assert [row["remark"] for row in done["dead_letters"] if row["remark"]] == [
        f"its topic {topic}-gone does not exist",
        f"its topic {topic} has no partition 7 (it has 2)",
        "its origin is the dead-letter topic itself",
        "not a dead letter of Rota: the header rota-dlq-topic is missing",
    ]
    assert values(rota_command, topic) == [0, 1]
    table = rota_command("dead-letters", "replay", dead_letter_topic, "--dry-run")
    assert table.stderr.startswith("4 dead letters cannot be replayed: see the remarks\n")


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
        assert (row["reason"], row["timestamp_ms"]) == (f"no price in {number}", time_of(number))
    assert [row["reason"] for row in listed("--reason", "in 3")] == ["no price in 3"]
    assert len(listed("--topic", topic, "--group", f"{topic}-group")) == 5
    assert listed("--topic", dead_letter_topic) == listed("--group", "other") == []
    since = listed("--since", "1970-01-01T00:00:02Z", "--until", "1970-01-01T00:00:04Z")
    assert [row["timestamp_ms"] for row in since] == [2_000, 3_000]
    heading, *lines = rota_command("dead-letters", "list", dead_letter_topic).lines
    assert heading.split() == [
        *("PARTITION", "OFFSET", "TIME", "ORIGIN", "GROUP", "DELIVERIES", "STATE", "REASON", "REMARK")
    ]
    assert len(lines) == 5
    nothing = rota_command("dead-letters", "list", topic, "--group", "other")
    assert (nothing.code, nothing.stdout, nothing.stderr) == (0, "", f"no dead letters found in {topic}\n")
    assert rota_command("dead-letters", "list", "not-there").code == 4
