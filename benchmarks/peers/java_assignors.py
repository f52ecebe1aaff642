"""Run Kafka's Java assignors in one JVM on the same groups. Used by the benchmark and by tests that compare plans."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from tests.support.java import java
from tests.support.kafka.jars import fetched

SOURCE = Path(__file__).with_name("Assignors.java")

ByMember = dict[str, dict[str, list[int]]]


class JavaAssignors:
    """A running JVM; serves one group at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def plan(self, strategy: str, group: Group) -> ByMember:
        """Return the assignment of each member."""
        answer = self._ask(strategy, group, 0)
        return {
            fields[1]: {
                topic: list(map(int, numbers.split(",")))
                for topic, numbers in (word.split(":") for word in fields[2:])
            }
            for fields in answer
        }

    def opened_ms(self, strategy: str, group: Group, runs: int) -> float:
        """Return the mean CPU time from subscriptions to finished lists, in ms."""
        return self._mean_ms(strategy, group, runs, "opened")

    def wire_ms(self, strategy: str, group: Group, runs: int) -> float:
        """Return the mean CPU time from encoded subscriptions to encoded assignments, in ms."""
        return self._mean_ms(strategy, group, runs, "wire")

    def _mean_ms(self, strategy: str, group: Group, runs: int, what: str) -> float:
        ((_, ms),) = self._ask(strategy, group, runs, what)
        return float(ms)

    def _ask(self, strategy: str, group: Group, runs: int, what: str = "opened") -> list[list[str]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("the JVM was started without pipes")
        stdin.writelines(f"{line}\n" for line in _lines(f"group {strategy} {runs} {what}", group))
        stdin.flush()
        answer: list[list[str]] = []
        for line in stdout:
            fields = line.split()
            if fields == ["end"]:
                return answer
            answer.append(fields)
        raise RuntimeError(f"Kafka's {strategy} ended without an answer: see what Java says above")


@contextmanager
def java_assignors(heap: str = "1g") -> Iterator[JavaAssignors]:
    """Start a JVM, which compiles `Assignors.java` in memory; it ends with the block."""
    command = [java().program, f"-Xmx{heap}", f"-Xms{heap}", "-XX:+UseSerialGC", "-cp", f"{fetched()}/*",
               "-Dorg.apache.logging.log4j.simplelog.level=OFF", "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory", str(SOURCE)]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield JavaAssignors(process)
        finally:
            process.kill()


def _lines(first: str, group: Group) -> Iterator[str]:
    yield first
    for name, topic in group.topics.items():
        if topic.partitions:
            yield f"topic {name} {','.join(_racks(topic))}"
    subscriptions: dict[tuple[str, ...], int] = {}
    for member in group.members.values():
        topics = tuple(member.topics)
        if topics not in subscriptions:
            subscriptions[topics] = len(subscriptions)
            yield " ".join(("topics", *topics))
    for name, member in group.members.items():
        yield _member(name, member, subscriptions[tuple(member.topics)])
    yield "end"


def _racks(topic: Topic) -> Iterator[str]:
    for number in range(topic.partitions):
        racks = topic.racks[number] if number < len(topic.racks) else frozenset()
        yield "+".join(sorted(racks)) or "-"


def _member(name: str, member: Subscriber, subscription: int) -> str:
    owned = [f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in member.owned.items() if numbers]
    return " ".join(("member", name, member.rack or "-", str(member.generation), str(subscription), *owned))
