"""A group of real processes is scaled, rebalanced, killed and reset: its page looks right, and its timeline is the coordinator's history."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pytest

import rota
from rota_operator.overview.description import STABLE, Description
from tests.operator.local.coordinator_watch import UNOWNED, CoordinatorWatch, DescribedOwners, history_of
from tests.operator.local.laptop import RECORDS, Laptop
from tests.operator.local.page_layout import SCHEMES, WIDTHS, looks_right
from tests.support.chromium import Tab, browsing
from tests.support.processes import wait_for
from tests.support.web import post

pytestmark = [pytest.mark.process, pytest.mark.soak("page"), pytest.mark.timeout(1_500)]

GROUP = "shop.orders"
WITHIN_S = 120
LOOK_AGAIN_S = 0.1
# As on the page.
WINDOW_MS = 900_000
# Of a soak. What is as old as the window is long may be shown, or not.
SCENARIO_S, EDGE_MS = 900, 60_000
REPLICAS_MAX, PARTITIONS_MAX = 5, 24
# Of rebalances that the page lists, at least: it keeps the last 200 events of all kinds.
REBALANCES_MIN = 20
# All of one moment: cells as drawn by partition, the same as text, the members' signs, and generations of rebalances, newest first.
SHOWN = """
(() => {
  const all = (selector, found) => [...document.querySelectorAll(selector)].map(found);
  const lanes = all('.lane', (lane) => lane.title);
  return {
    cells: all('.cells g', (lane, at) => [lanes[at], [...lane.querySelectorAll('rect')].map((cell) => cell.classList.contains('unowned') ? 'unowned' : cell.getAttribute('fill'))]),
    texts: all('.texts li', (item) => /^(.*?): (.*) from /.exec(item.textContent).slice(1)),
    signs: all('.members-legend .swatch', (swatch) => [swatch.textContent, swatch.nextSibling.data.trim()]),
    generations: all('.causes li', (item) => /generation ([0-9]+): /.exec(item.textContent)).filter(Boolean).map((found) => Number(found[1])),
  };
})()
"""
RESETS = "document.querySelectorAll('.cells path.reset').length"
TEXTS = "document.querySelector('.texts') !== null"


def balanced(found: Description, replicas: int, partitions: int, after: int) -> bool:
    """Return whether the members share all partitions, in a generation after this one."""
    shares = [len(each.partitions) for each in found.members]
    return (
        found.state == STABLE
        and (found.generation or 0) > after
        and (len(shares), sum(shares)) == (replicas, partitions)
        and max(shares) - min(shares) <= 1
    )


def number_of(sign: str) -> int:
    """Return the number of a member's sign: A is 0, Z is 25, AA is 26."""
    number = 0
    for character in sign:
        number = 26 * number + ord(character) - ord("A") + 1
    return number - 1


def shown_history(lanes: Sequence[tuple[str, Sequence[str]]]) -> Mapping[str, Sequence[str]]:
    """Return the owners of each partition, one after the other, from its first one on."""
    found = {}
    for partition, cells in lanes:
        owners = [owner for owner, _ in groupby(cells)]
        found[partition] = owners[1:] if owners[:1] == [UNOWNED] else owners
    return found


def difference(shown: Mapping[str, Any], described: Sequence[DescribedOwners], now_ms: int) -> str:
    """Compare the page with what the coordinator described; return what differs."""
    names = {f"url(#sign-{number_of(sign)})": name for sign, name in shown["signs"]}
    drawn = shown_history(
        [(lane, [names.get(fill, fill) for fill in fills]) for lane, fills in shown["cells"]]
    )
    by_partition = groupby(shown["texts"], key=lambda each: each[0])
    written = shown_history([(partition, [owner for _, owner in rows]) for partition, rows in by_partition])
    if drawn != written:
        return f"drawn are {drawn}, written are {written}"
    # In effect within the window, its edge apart.
    ended = sum(each.at_ms < now_ms - WINDOW_MS + EDGE_MS for each in described)
    whole, recent = history_of(described), history_of(described[max(0, ended - 1) :])
    if drawn.keys() != whole.keys():
        return f"drawn are {list(drawn)}, described are {list(whole)}"
    for partition, owners in drawn.items():
        if owners != whole[partition][-len(owners) :] or len(owners) < len(recent[partition]):
            return f"{partition}: shown are {owners}, described are {whole[partition]}, lately {recent[partition]}"
    # Without members there is no rebalance.
    generations = [each.generation for each in described if each.names][::-1]
    listed, lately = shown["generations"], sum(bool(each.names) for each in described[ended:])
    if listed != generations[: len(listed)] or len(listed) < min(lately, REBALANCES_MIN):
        return f"rebalances: shown are {listed}, described are {generations}"
    return ""


class Scenario:
    """The group, its page, and a watch of it at the coordinator. Every phase ends when the members share all partitions."""

    def __init__(self, laptop: Laptop, watch: CoordinatorWatch, tab: Tab) -> None:
        self._laptop = laptop
        self._watch = watch
        self._tab = tab
        self._replicas, self._partitions, self._resets = 3, 6, 0

    async def scale(self, replicas: int) -> None:
        self._replicas = replicas
        await self._rebalance(lambda: self._laptop.scale(replicas))

    async def restart_sidecar(self, number: int) -> None:
        """One member leaves, and joins again."""
        await self._rebalance(lambda: os.kill(self._sidecar(number), signal.SIGTERM))

    async def lose(self, number: int) -> None:
        """One member is killed and its state is lost, as with the machine: its session ends, and a new member joins."""

        def lose() -> None:
            (self._laptop.home / "state" / f"orders-{number}" / "member.json").unlink()
            self._laptop.kill(f"orders-{number}")

        await self._rebalance(lose)

    async def kill(self, number: int) -> None:
        """One member is killed and resumes as the same one, with a rebalance only where its session has ended."""
        before = self._sidecar(number)
        await asyncio.to_thread(self._laptop.kill, f"orders-{number}")

        def is_back() -> bool:
            # Between two processes there is no file.
            with suppress(FileNotFoundError, ValueError):
                return self._sidecar(number) != before and self._all_report()
            return False

        await asyncio.to_thread(wait_for, "the killed member is back", is_back, within_s=WITHIN_S)
        await self.wait_balanced(0)

    async def freeze(self, number: int) -> None:
        """One member stands still until its session has ended."""
        sidecar = self._sidecar(number)

        def freeze() -> None:
            os.kill(sidecar, signal.SIGSTOP)
            try:
                self._watch.wait_until(lambda found: len(found.members) < self._replicas, WITHIN_S)
            finally:
                os.kill(sidecar, signal.SIGCONT)

        await self._rebalance(freeze)

    async def add_partitions(self) -> None:
        self._partitions += 2

        def add() -> None:
            with rota.Topics(self._laptop.address) as topics:
                topics.add_partitions({"orders": self._partitions})

        await self._rebalance(add)

    async def reset(self) -> None:
        # A reset is refused while a member of the group has not connected to the runner yet.
        await asyncio.to_thread(wait_for, "all members report", self._all_report, within_s=WITHIN_S)
        offsets = {str(number): 0 for number in range(self._partitions)}
        body = {"group": GROUP, "offsets": {"orders": offsets}}
        answer = await asyncio.to_thread(post, self._laptop.page, "/api/reset", body)
        assert answer.status == 200, answer.page
        self._resets += 1
        await self._tab.until(f"{RESETS} >= 1", WITHIN_S)

    async def look(self, width: int, scheme: str) -> None:
        """Check what the page looks like, and wait until it shows the coordinator's history."""
        await self._tab.prefer_color_scheme(scheme)
        await looks_right(self._tab, width)
        wrong = ""
        try:
            async with asyncio.timeout(WITHIN_S):
                while wrong := await self.difference():
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            raise AssertionError(f"not after {WITHIN_S} s: {wrong}") from None

    async def difference(self, without: int = 0) -> str:
        """Compare the page with the coordinator's history, without the last few entries; return what differs."""
        shown = await self._tab.evaluate(SHOWN)
        described = self._watch.described[: len(self._watch.described) - without]
        return difference(shown, described, time.time_ns() // 1_000_000)

    def phases(self, draw: random.Random) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return what may happen next, each with what was drawn for it."""
        number = draw.randrange(self._replicas)
        other = draw.choice([each for each in range(1, REPLICAS_MAX + 1) if each != self._replicas])
        found: list[Callable[[], Awaitable[None]]] = [
            lambda: self.scale(other),
            lambda: self.restart_sidecar(number),
            lambda: self.lose(number),
            lambda: self.kill(number),
            self.reset,
        ]
        if self._replicas > 1:
            found.append(lambda: self.freeze(number))
        if self._partitions < PARTITIONS_MAX:
            found.append(self.add_partitions)
        return found

    async def _rebalance(self, cause: Callable[[], None]) -> None:
        before = self._watch.described[-1].generation
        await asyncio.to_thread(cause)
        await asyncio.to_thread(self._laptop.send, RECORDS)
        await self.wait_balanced(before)

    async def wait_balanced(self, after: int) -> None:
        """Wait until all replicas share all partitions in a later generation."""
        await asyncio.to_thread(
            self._watch.wait_until,
            lambda found: balanced(found, self._replicas, self._partitions, after),
            WITHIN_S,
        )

    def _all_report(self) -> bool:
        return self._laptop.owners().keys() == {f"orders-{number}" for number in range(self._replicas)}

    def _sidecar(self, number: int) -> int:
        return int((self._laptop.home / "logs" / f"orders-{number}.sidecar.pid").read_text())


async def short(scenario: Scenario) -> None:
    """Each kind of phase once."""
    await scenario.scale(4)
    await scenario.restart_sidecar(1)
    await scenario.lose(0)
    await scenario.kill(2)
    await scenario.reset()
    await scenario.scale(2)


async def long(scenario: Scenario, seed: int, report: list[str]) -> None:
    """15 minutes of phases that the seed draws; after each the page is looked at, in windows of all kinds by turns."""
    clock_s = asyncio.get_running_loop().time
    draw, end_s, phases = random.Random(seed), clock_s() + SCENARIO_S, 0
    windows = list(product(WIDTHS, SCHEMES))
    while clock_s() < end_s:
        await draw.choice(scenario.phases(draw))()
        await scenario.look(*windows[phases % len(windows)])
        phases += 1
    report.append(f"page: {phases} phases in {SCENARIO_S} s")


def test_the_timeline_is_the_history_that_the_coordinator_tells(
    tmp_path: Path, in_soak: bool, seed: int, report: list[str]
) -> None:
    laptop = Laptop(tmp_path)
    process = laptop.start()
    process.wait_until((laptop.home / "page").exists, within_s=WITHIN_S)
    watch = CoordinatorWatch(laptop.address, GROUP)
    laptop.fill(process, RECORDS)

    async def story() -> None:
        async with browsing(tmp_path, f"http://{laptop.page}/#{GROUP}") as tab:
            scenario = Scenario(laptop, watch, tab)
            try:
                await scenario.wait_balanced(0)
                await tab.until("document.querySelector('details summary') !== null", WITHIN_S)
                await tab.evaluate("document.querySelector('details summary').click()")
                await tab.until(TEXTS, WITHIN_S)
                await (long(scenario, seed, report) if in_soak else short(scenario))
                for width, scheme in product(WIDTHS, SCHEMES):
                    await scenario.look(width, scheme)
                    await tab.screenshot(tmp_path / f"{scheme}-{width}.png")
                # The control: a history that lacks the last rebalance is another one.
                assert await scenario.difference(without=1) != ""
                assert tab.errors == []
            finally:
                await tab.screenshot(tmp_path / "page.png")

    try:
        asyncio.run(story())
    finally:
        watch.stop()
    process.stop()
    assert process.exit_code == 0
