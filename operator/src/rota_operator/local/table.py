"""Renders groups as tables in a terminal, updated whenever the dashboard state changes."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.overview.view import EventKind, GroupView, HistoryEvent, MemberView, View, WorkloadView

EVERY_S = 0.25
LINES_SHOWN = 4
EVENTS_SHOWN = 6
# Lines of the terminal that are not partitions: titles, headings, members, events, spacing.
RESERVED_HEIGHT = 22
PARTITIONS_SHOWN_MIN = 4
UNKNOWN = "–"
GOOD, BUSY, BAD, SOFT = "green", "yellow", "red", "dim"
STATE_STYLES = {
    "Stable": GOOD,
    "Running": GOOD,
    "Other client": SOFT,
    "Unknown": BAD,
    "Stopped": BAD,
    "Dead": BAD,
}


class Terminal:
    """Shows tables while it runs; lines printed meanwhile appear below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: deque[str] = deque(maxlen=LINES_SHOWN)
        self._is_live = False

    def print_line(self, line: str) -> None:
        """Print a line, or queue it below the tables."""
        if self._is_live:
            self._lines.append(line)
        else:
            # No wrapping at the edge: commands are copied from here.
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    async def show(self, dashboard: DashboardState) -> None:
        """Show the tables until cancelled."""
        self._is_live = True
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while True:
                    live.update(
                        render(dashboard.view(), list(self._lines), self._console.height), refresh=True
                    )
                    await self._wait_for_change(dashboard)
        finally:
            self._is_live = False
            for line in self._lines:
                self.print_line(line)

    async def _wait_for_change(self, dashboard: DashboardState) -> None:
        wait_for_change = asyncio.ensure_future(dashboard.wait_for_change())
        try:
            await asyncio.sleep(EVERY_S)
            await wait_for_change
        finally:
            wait_for_change.cancel()


def render(view: View, said: Sequence[str], height: int) -> RenderableType:
    """Render one snapshot for a terminal of the given height."""
    parts: list[RenderableType] = []
    for group in view.groups:
        own = [workload for workload in view.workloads if workload.group_id == group.group_id]
        rows = max(PARTITIONS_SHOWN_MIN, height // len(view.groups) - RESERVED_HEIGHT)
        parts += [
            title(group, own),
            *(autoscaling(each) for each in own if each.decisions),
            members(group, own),
            *problems(group),
        ]
        parts += [partitions(group, rows), events(group.history), ""]
    others = [workload for workload in view.workloads if workload.group_id is None]
    if others:
        parts.append(Text(", ".join(f"{each.name}: {replicas_text(each)}" for each in others), style=SOFT))
    parts += [plain_text(line, SOFT) for line in said]
    return Group(*parts)


def title(group: GroupView, workloads: Sequence[WorkloadView]) -> Text:
    """Summary of a group, in two lines."""
    first = Text.assemble((group.group_id, "bold"), " ", (group.state, STATE_STYLES.get(group.state, BUSY)))
    first.append(f"  generation {count(group.generation)}")
    first.append(f", {group.strategy}" if group.strategy else "")
    first.append("".join(f", {replicas_text(each)}" for each in workloads))
    sums = [
        f"lag {count(group.lag_records)} records, {seconds(group.lag_seconds)}",
        f"arrival rate {rate(group.arrival_rate)}",
        f"processing rate {rate(group.done_rate)}",
        f"rebalances {group.rebalances}",
    ]
    return first.append("\n" + ", ".join(sums))


def autoscaling(workload: WorkloadView) -> Text:
    """The autoscaler's last decision, in one line."""
    last = workload.decisions[0]
    number = (
        f"{last.before} replicas"
        if last.before == last.replicas
        else f"{last.before} → {last.replicas} replicas"
    )
    dry_run = " (dry run)" if last.dry_run else ""
    return plain_text(f"autoscaling{dry_run}: {number}, {last.reason}: {last.explanation}", SOFT)


def members(group: GroupView, workloads: Sequence[WorkloadView]) -> Table:
    """Table of the members."""
    restarts = {replica.name: replica.restarts for each in workloads for replica in each.replicas}
    table = new_table("member", "state", "partitions", ">in flight", ">processed", ">rate", ">restarts")
    for member in group.members:
        state = display_state(member)
        table.add_row(
            plain_text(member.name),
            Text(state, STATE_STYLES.get(state, BUSY)),
            plain_text(" ".join(partitions_by_topic(member)) or "none"),
            count(member.in_flight),
            count(member.records_done),
            rate(member.done_rate),
            count(restarts.get(member.name)),
        )
    return table


def display_state(member: MemberView) -> str:
    """State to display: draining and suspended take precedence over the member's own state."""
    if member.draining:
        return "Draining"
    return "Suspended" if member.suspended else member.state


def problems(group: GroupView) -> Iterator[Text]:
    """Problems of the members, one line each."""
    for member in group.members:
        for says in member.problems:
            yield plain_text(f"{member.name}: {says}", BAD)


def partitions_by_topic(member: MemberView) -> Iterator[str]:
    """Yield the member's partitions, grouped by topic."""
    topics: dict[str, list[str]] = defaultdict(list)
    for name in member.partitions:
        topic, _, number = name.rpartition("-")
        topics[topic].append(number)
    for topic, numbers in topics.items():
        yield f"{topic} {','.join(numbers)}"


def partitions(group: GroupView, rows: int) -> Table:
    """Table of at most `rows` partitions; if there are more, unknown and largest lag come first."""
    table = new_table(
        "partition", "owner", ">committed offset", ">end offset", ">lag", ">lag time", ">arrival rate"
    )
    chosen = list(group.partitions)
    if len(chosen) > rows:
        # Unknown values need attention most.
        worst = sorted(chosen, key=lambda each: (each.lag_records is not None, -(each.lag_records or 0)))
        chosen = worst[: rows - 1]
    for each in chosen:
        table.add_row(
            plain_text(f"{each.topic}-{each.partition}"),
            Text("unowned", BAD) if each.owner is None else plain_text(each.owner),
            count(each.committed),
            count(each.end),
            count(each.lag_records),
            seconds(each.lag_seconds),
            rate(each.arrival_rate),
        )
    more = len(group.partitions) - len(chosen) + group.partitions_left_out
    if more:
        table.add_row(Text(f"and {more} more with less lag", SOFT))
    return table


def events(history: Sequence[HistoryEvent]) -> Text:
    """The newest events, one line each."""
    lines = Text()
    for event in history[:EVENTS_SHOWN]:
        # Local time.
        at = datetime.fromtimestamp(event.at_ms / 1000)  # noqa: DTZ006
        style = BUSY if event.kind is EventKind.REBALANCE else ""
        lines.append(f"{at:%H:%M:%S} ", SOFT).append_text(plain_text(describe_event(event), style)).append(
            "\n"
        )
    lines.rstrip()
    return lines


def describe_event(event: HistoryEvent) -> str:
    """Describe an event in one line."""
    if event.kind is not EventKind.REBALANCE:
        return event.message
    pause = "" if event.pause_ms is None else f", paused {event.pause_ms} ms"
    moved = f"{event.moved} partitions moved"
    # Kafka's brokers report no generation.
    what = "rebalance" if event.generation is None else f"generation {event.generation}"
    return f"{what}: {event.message}{pause}, {moved}"


def plain_text(text: str, style: str = "") -> Text:
    """Text without control characters: clients choose their names."""
    return Text("".join(each if each.isprintable() else "?" for each in text), style)


def new_table(*heads: str) -> Table:
    """Table without a frame; columns that begin with > are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style=SOFT)
    for head in heads:
        table.add_column(head.removeprefix(">"), justify="right" if head.startswith(">") else "left")
    return table


def replicas_text(workload: WorkloadView) -> str:
    """Running and desired replicas."""
    return f"{workload.running} of {workload.wanted} replicas"


def count(value: int | None) -> str:
    """Format a number."""
    return UNKNOWN if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Format a rate per second."""
    return UNKNOWN if value is None else f"{value:,.1f}/s"


def seconds(value: float | None) -> str:
    """Format a duration in seconds."""
    return UNKNOWN if value is None else f"{value:,.1f} s"
