"""
One scenario of groups that lag, and what page, table, `rota groups lag` and Kafka's own tool say of it at the same moments.

Three groups have an application that hangs with a record in its hands: the sidecar commits, the application's transactions do, a
store does. A fourth has no replicas.
"""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

import rota
from rota_operator.local.table import partitions as partitions_table
from rota_operator.local.table import title
from rota_operator.overview.view import GroupView, MemberView, PartitionView
from tests.cli.command import Rota
from tests.operator.local.groups import ROTA, Groups
from tests.support.processes import ProcessFailed, wait_for
from tests.support.web import get

WITHIN_S = 60
APP = Path(__file__).with_name("lagging_app.py")
# Partition 0 has three records that are done and three that are not, partition 1 three and one.
FIRST = ("done",) * 3
REST = {0: ("hang", "later", "later"), 1: ("later",)}
HOUR_MS = 3_600_000


class Numbers(NamedTuple):
    """Values that are shown of one partition."""

    committed: int | None
    end: int | None
    lag: int | None


By = Mapping[tuple[str, int], Numbers]
# By group.
Tool = Callable[[Sequence[str]], Mapping[str, By]]


@dataclass(frozen=True, slots=True)
class Engine:
    """Address at which the groups are served."""

    servers: str
    # Set committed offsets of a group without members.
    commit: Callable[[str, Mapping[tuple[str, int], int]], None]
    # Join a group with another client, of the strategy range, by group and topic.
    foreign: Callable[[str, str], AbstractContextManager[object]]
    tool: Tool


class Scenario:
    """Groups of one `rota up`; all names begin with one of its own, so that servers can be shared."""

    def __init__(self, folder: Path, name: str) -> None:
        self.groups = Groups(folder)
        self.folder = folder
        self.name = name
        self._rota = Rota("", folder)

    def declare(self) -> None:
        """All groups; applications are told where the servers are that `rota up` puts in place of these."""
        modes = {"plain": "periodic", "transactional": "transactional", "external": "external"}
        for app, mode in modes.items():
            commit = {"mode": mode, **({"intervalSeconds": 1} if mode == "periodic" else {})}
            self._declare(app, {"offsets": {"commit": commit}}, app, ROTA)
        self._declare("idle", {"replicas": 0}, "plain", ROTA)

    def _declare(self, short: str, spec: Mapping[str, Any], *mode: str) -> None:
        topic = self.topic(short)
        always = {
            "groupId": topic,
            "topics": [topic],
            "assignment": {"strategy": "range"},
            "sidecar": {"terminationDrainSeconds": 1},
        }
        self.groups.add(topic, {**always, **spec}, *mode, program=APP)

    def topic(self, short: str) -> str:
        """Also the name of the group that reads it, and of its workload."""
        return f"{self.name}-{short}"

    @property
    def names(self) -> list[str]:
        return [self.topic(each) for each in ("plain", "transactional", "external", "idle")]

    def fill(self, engine: Engine) -> int:
        """Records of an hour ago, until all applications hang; the time in ms of those that are not done."""
        rota.create_topics(engine.servers, {"results": 1, **dict.fromkeys(self.names, 2)})
        old_ms = now_ms() - HOUR_MS
        with rota.Producer(engine.servers) as producer:
            self._send(producer, dict.fromkeys((0, 1), FIRST), old_ms - HOUR_MS)
            for name in self.names[:3]:
                wait_for(f"{name} is done", lambda: len(self.groups.values(name)) == 6, within_s=WITHIN_S)  # noqa: B023
            self._send(producer, REST, old_ms)
            for name in self.names[:3]:
                wait_for(f"{name} hangs", lambda: "hang" in self.groups.values(name), within_s=WITHIN_S)  # noqa: B023
        idle = self.topic("idle")
        engine.commit(idle, {(idle, 0): 4, (idle, 1): 3})
        return old_ms

    def _send(self, producer: rota.Producer, values: Mapping[int, Sequence[str]], at_ms: int) -> None:
        for name in self.names:
            for partition, each in values.items():
                for value in each:
                    producer.send(name, value.encode(), partition=partition, timestamp_ms=at_ms)
        producer.flush()

    # ---------------------------------------------------------------------------------------------- what is said

    def page(self) -> Mapping[str, GroupView]:
        """All groups, as the page has them."""
        file = self.groups.folder / ".rota" / "page"
        if not file.exists():
            return {}
        state = json.loads(get(file.read_text().strip().removeprefix("http://"), "/api/state").page)
        return {group["group_id"]: view_of(group) for group in state["groups"]}

    def lag(self, group: str) -> dict[str, Any]:
        """By the command line, which finds the servers in `.rota`."""
        found: dict[str, Any] = self._rota(
            "groups", "lag", group, "-o", "json", environment={"ROTA_BOOTSTRAP_SERVERS": ""}
        ).data
        return found

    def state(self, group: str) -> str:
        """By the command line."""
        done = self._rota(
            "groups", "describe", group, "-o", "json", environment={"ROTA_BOOTSTRAP_SERVERS": ""}
        )
        return str(done.data["state"])

    def all_say_the_same(self, groups: Sequence[str], tool: Tool, old_ms: int) -> None:
        """Once everything is at rest; the page may be a look behind."""
        last: list[Any] = []

        def same() -> bool:
            before_ms = now_ms()
            commands = {group: self.lag(group) for group in groups}
            views = self.page()
            after_ms = now_ms()
            said = [
                {group: by_page(views[group]) for group in groups},
                {group: by_table(views[group]) for group in groups},
                {group: by_command(commands[group]) for group in groups},
                tool(groups),
            ]
            last[:] = said
            ages = [
                before_ms - 2 <= old_ms + (seconds or 0) * 1000 <= after_ms + 2
                for group in groups
                if commands[group]["lag_records"]
                for seconds in (commands[group]["lag_seconds"], views[group].lag_seconds)
            ]
            sums = [views[group].lag_records == commands[group]["lag_records"] for group in groups]
            last.extend([ages, sums])
            return all(each == said[0] for each in said) and all(ages) and all(sums)

        try:
            wait_for("the same numbers everywhere", same, within_s=WITHIN_S)
        except ProcessFailed as failed:
            raise AssertionError(f"{failed}: {last}") from None


def now_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


def view_of(group: Mapping[str, Any]) -> GroupView:
    """The value that was sent as JSON."""
    found = {each.name: group[each.name] for each in fields(GroupView)}
    members = tuple(
        MemberView(**{**each, "partitions": tuple(each["partitions"])}) for each in group["members"]
    )
    partitions = tuple(PartitionView(**each) for each in group["partitions"])
    return GroupView(**{**found, "members": members, "partitions": partitions, "history": ()})


def by_page(group: GroupView) -> By:
    return {
        (each.topic, each.partition): Numbers(each.committed, each.end, each.lag_records)
        for each in group.partitions
    }


def by_table(group: GroupView) -> By:
    """As it stands in a terminal."""
    console = Console(file=io.StringIO(), width=200)
    console.print(title(group, ()), partitions_table(group, 100))
    assert isinstance(console.file, io.StringIO)
    found = {}
    for line in console.file.getvalue().splitlines():
        topic, _, number = line.split()[0].rpartition("-")
        if topic == group.group_id:
            committed, end, lag = (None if each == "–" else int(each) for each in line.split()[2:5])
            found[topic, int(number)] = Numbers(committed, end, lag)
    return found


def by_command(lag: Mapping[str, Any]) -> By:
    return {
        (each["topic"], each["partition"]): Numbers(each["committed"], each["end"], each["lag_records"])
        for each in lag["partitions"]
    }


def numbers_are_the_same(scenario: Scenario, engine: Engine) -> None:
    """The story: at rest; then with foreign members, in the middle of a rebalance, and scaled to none."""
    old_ms = scenario.fill(engine)
    scenario.all_say_the_same(scenario.names, engine.tool, old_ms)
    views = scenario.page()
    assert {name: view.state for name, view in views.items()} == {
        **dict.fromkeys(scenario.names[:3], "Stable"),
        scenario.topic("idle"): "Empty",
    }
    # What a crash would find: a record that hangs is not committed, by whoever commits.
    for short in ("transactional", "external"):
        assert views[scenario.topic(short)].partitions[0].lag_records == 3
    assert all(view.lag_seconds and view.lag_seconds > HOUR_MS / 1000 - 1 for view in views.values())

    plain, idle = scenario.topic("plain"), scenario.topic("idle")
    scenario.groups.scale(scenario.topic("transactional"), 0)
    # The member in the middle of a record gives its partitions up when that is done: the round waits for it.
    with engine.foreign(plain, plain), engine.foreign(idle, idle):
        wait_for(
            "a rebalance", lambda: scenario.page()[plain].state == "PreparingRebalance", within_s=WITHIN_S
        )
        wait_for("a foreign owner", lambda: scenario.page()[idle].unowned == 0, within_s=WITHIN_S)
        empty = scenario.topic("transactional")
        wait_for("no members", lambda: scenario.page()[empty].state == "Empty", within_s=WITHIN_S)
        scenario.all_say_the_same([plain, idle, empty], engine.tool, old_ms)
        views = scenario.page()
        assert views[plain].state == scenario.state(plain) == "PreparingRebalance"
        (member,) = views[idle].members
        assert (member.state, len(member.partitions)) == ("Other client", 2)
