"""Kafka's own tools, run as the classes they are: what an administrator sees of a group, and the console's consumer."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.java import java
from tests.support.kafka.brokers import Kafka, prepare
from tests.support.kafka.jars import fetched
from tests.support.processes import Process, ProcessFailed

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")
TOOL_S = 60
# Two columns are apart by blanks, and some names of columns hold one.
COLUMNS = re.compile(r"COORDINATOR \(ID\)|\S+")

CELL = re.compile(r"\S+ +\(\d+\)|\S+")

Row = dict[str, str]


def describe_group(kafka: Kafka, group: str, *what: str) -> list[Row]:
    """Rows of `kafka-consumer-groups --describe`, by column name."""
    command = _command(GROUPS, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", group, *what)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S)
    if done.returncode != 0:
        raise ProcessFailed(f"{GROUPS} ended with code {done.returncode}: {done.stdout} {done.stderr}")
    return rows(done.stdout)


def describe_groups(kafka: Kafka, groups: Sequence[str]) -> list[Row]:
    """The same of several groups, in one run."""
    named = [word for group in groups for word in ("--group", group)]
    command = _command(GROUPS, "--bootstrap-server", kafka.bootstrap, "--describe", *named)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S)
    if done.returncode != 0:
        raise ProcessFailed(f"{GROUPS} ended with code {done.returncode}: {done.stdout} {done.stderr}")
    # Each group has a table of its own, and one without members a sentence before it.
    lines = [line for line in done.stdout.splitlines() if line.split(" ")[0] in {"GROUP", *groups}]
    heads = [line for line in lines if line.startswith("GROUP ")]
    return rows("\n".join([*heads[:1], *(line for line in lines if line not in heads)]))


def export_offsets(kafka: Kafka, groups: Sequence[str]) -> str:
    """Committed offsets of groups, as `kafka-consumer-groups --reset-offsets --to-current --export` writes them."""
    return _reset_offsets(kafka, groups, "--all-topics", "--to-current", "--dry-run", "--export")


def import_offsets(kafka: Kafka, groups: Sequence[str], file: Path) -> str:
    """Output of `kafka-consumer-groups --reset-offsets --from-file`, executed, as it exports what it has set."""
    return _reset_offsets(kafka, groups, "--from-file", str(file), "--execute", "--export")


def _reset_offsets(kafka: Kafka, groups: Sequence[str], *more: str) -> str:
    named = [word for group in groups for word in ("--group", group)]
    command = _command(GROUPS, "--bootstrap-server", kafka.bootstrap, "--reset-offsets", *named, *more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S)
    if done.returncode != 0 or "Error" in done.stdout:
        raise ProcessFailed(f"{GROUPS} ended with code {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout


def rows(table: str) -> list[Row]:
    """The lines of a table below its head."""
    head, *lines = [line for line in table.splitlines() if line.strip()]
    names = COLUMNS.findall(head)
    values = [CELL.findall(line) for line in lines]
    return [dict(zip(names, each, strict=True)) for each in values]


def console_consumer(kafka: Kafka, topic: str, group: str, properties: Sequence[str], log: Path) -> Process:
    """The console consumer, running until it is terminated; the records that it reads are in its log."""
    more = [word for each in properties for word in ("--command-property", each)]
    where = ("--bootstrap-server", kafka.bootstrap, "--topic", topic, "--group", group)
    return Process.start(
        "the console's consumer",
        _command(CONSOLE_CONSUMER, *where, *more, options=kafka.security.java_options()),
        log=log,
    )


def _command(name: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    # The archive is the brokers', which know most of the classes.
    options = (*OPTIONS, *options, f"-XX:SharedArchiveFile={prepare()}", "-cp", f"{fetched()}/*")
    return [str(java().program), *options, name, *arguments]
