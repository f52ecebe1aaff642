"""In a terminal there are tables, of what is known; elsewhere there are lines."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from rota_operator.local.table import RESERVED_HEIGHT, render
from rota_operator.overview.view import (
    EventKind,
    GroupView,
    HistoryEvent,
    MemberView,
    PartitionView,
    ReplicaView,
    ScaleDecisionView,
    View,
    WorkloadView,
)
from tests.support.processes import Process
from tests.support.tree import REPO

WITHIN_S = 40
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
MEMBER = MemberView("orders-0", "id", "Stable", 4, ("orders-0", "orders-3"), 1_234, 30.25, 2)
SILENT = MemberView("orders-1", None, "Unknown", None, ())
MOMENT = HistoryEvent(0, EventKind.REBALANCE, "orders-0 joined", 4, 294, 2)


def group(
    partitions: Sequence[PartitionView] = (),
    members: Sequence[MemberView] = (MEMBER, SILENT),
    history: Sequence[HistoryEvent] = (MOMENT,),
) -> GroupView:
    return GroupView(
        "shop.orders", "shop/orders", "Stable", 4, "cooperative-sticky", tuple(members), tuple(partitions),
        0, 0, None, None, 99.5, None, 1, tuple(history),
    )  # fmt: skip


def lines(
    found: GroupView,
    height: int = 50,
    said: Sequence[str] = (),
    decisions: Sequence[ScaleDecisionView] = (),
) -> list[str]:
    """As they stand in a terminal of that height."""
    own = WorkloadView(
        "shop",
        "orders",
        "Deployment",
        "shop.orders",
        3,
        2,
        1,
        (ReplicaView("orders-0", "Running", "Running", 7),),
        tuple(decisions),
    )
    other = WorkloadView("shop", "shop", "Deployment", None, 1, 1, 0, ())
    console = Console(file=io.StringIO(), width=130)
    console.print(render(View(0, "rota://127.0.0.1:7070", (found,), (own, other)), said, height))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_members_have_their_partitions_and_what_is_unknown_is_no_number() -> None:
    found = lines(group())
    assert found[0] == "shop.orders Stable generation 4, cooperative-sticky, 2 of 3 replicas"
    assert found[1] == "lag – records, –, arrival rate 99.5/s, processing rate –, rebalances 1"
    assert found[3] == "orders-0 Stable orders 0,3 2 1,234 30.2/s 7"
    assert found[4] == "orders-1 Unknown none – – – –"
    assert any(
        line.endswith(" generation 4: orders-0 joined, paused 294 ms, 2 partitions moved") for line in found
    )
    assert found[-1] == "shop: 1 of 1 replicas"


def test_the_last_decision_of_the_autoscaler_stands_below_the_title() -> None:
    grown = ScaleDecisionView(0, 3, 6, "LoadAboveTarget", "load", dry_run=False, inputs={})
    held = ScaleDecisionView(0, 3, 3, "Rebalancing", "the group rebalances", dry_run=True, inputs={})
    assert lines(group(), decisions=[grown, held])[2] == "autoscaling: 3 → 6 replicas, LoadAboveTarget: load"
    assert lines(group(), decisions=[held])[2] == (
        "autoscaling (dry run): 3 replicas, Rebalancing: the group rebalances"
    )


def test_what_keeps_a_member_from_reading_stands_below_the_members() -> None:
    stuck = MemberView(
        "orders-0", "id", "Stable", 4, ("orders-0",), problems=("orders-0: nothing is committed; seek",)
    )
    found = lines(group(members=[stuck]))
    assert found[4] == "orders-0: orders-0: nothing is committed; seek"


def test_partitions_say_who_has_them_and_how_far_behind_they_are() -> None:
    owned = PartitionView("orders", 0, "orders-0", 10, 9, 12_000, 11_991, 4.25, 1.0, 1)
    found = lines(group([owned, PartitionView("orders", 1, None)]))
    assert "orders-0 orders-0 9 12,000 11,991 4.2 s 1.0/s" in found
    assert "orders-1 unowned – – – – –" in found


def test_a_rebalance_on_kafka_has_no_generation() -> None:
    found = lines(group(history=[HistoryEvent(0, EventKind.REBALANCE, "orders-0 joined", moved=2)]))
    assert any(line.endswith(" rebalance: orders-0 joined, 2 partitions moved") for line in found)


def test_where_there_is_no_room_those_that_are_unknown_or_behind_come_first() -> None:
    many = [PartitionView("orders", number, "orders-0", lag_records=number) for number in range(20)]
    found = lines(group([*many, PartitionView("orders", 20, None)]), height=RESERVED_HEIGHT + 5)
    shown_ones = [line.split()[0] for line in found if line.startswith("orders-") and " – – " in line]
    assert [name for name in shown_ones if name != "orders-1"] == [
        "orders-20",
        "orders-19",
        "orders-18",
        "orders-17",
    ]
    assert "and 17 more with less lag" in found


def test_names_are_shown_as_they_are() -> None:
    """Not as markup, and not as what moves the cursor."""
    tricky = MemberView("[red]orders[/red]\x1b[2J", None, "Stable", 1, ("[b]-0",))
    (row,) = (line for line in lines(group(members=[tricky])) if "[red]orders[/red]" in line)
    assert "\x1b" not in row
    assert "Stable [b] 0" in row
    assert lines(group(), said=["[bold]said"])[-1] == "[bold]said"


class Terminal:
    """A terminal in which the runner runs."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        command = [
            sys.executable, "-m", "rota_operator", "local", f"--home={home}", f"-f={REPO / 'examples' / 'orders'}",
            "--listen=127.0.0.1:0", "--page=127.0.0.1:0", *arguments,
        ]  # fmt: skip
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "130", "LINES": "50"}
        # What it shows.
        self._log = home.with_name("terminal.log")
        self._log.touch()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        self._process = Process("rota up", child, self._log)
        os.close(theirs)
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        try:
            with self._log.open("ab", buffering=0) as log:
                while read := os.read(self._ours, 65536):
                    log.write(read)
        except OSError:
            # That is how a terminal ends.
            return

    @property
    def text(self) -> str:
        return COLOURS.sub("", self._log.read_bytes().decode(errors="replace"))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        self._process.wait_until(holds, within_s=WITHIN_S)

    def end(self) -> int:
        """As with Ctrl-C."""
        os.kill(self._process.pid, signal.SIGINT)
        code = self._process.wait(within_s=WITHIN_S)
        self._reading.join(WITHIN_S)
        os.close(self._ours)
        return code


@pytest.mark.process
def test_a_terminal_follows_the_group(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / ".rota")
    # A third of the partitions; which ones depends on the order in which the replicas joined.
    table = re.compile(r"orders-enricher-0 +Stable +orders \d+(,\d+){3} ")
    terminal.wait_until(lambda: table.search(terminal.text) is not None)
    assert terminal.end() == 0
    assert terminal.text.splitlines()[-1] == "coordinator: stopped"


@pytest.mark.process
def test_whoever_wants_lines_has_them(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / ".rota", "--plain")
    terminal.wait_until(lambda: "web page: http://" in terminal.text)
    assert terminal.end() == 0
    assert "member" not in terminal.text
