"""In a real browser the page shows who has what, follows the group live, and its buttons scale."""

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from typing_extensions import override

from rota_operator.overview.description import STABLE, description_of, names_of, owners_in
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.operator.local.laptop import RECORDS, WITHIN_S, Laptop
from tests.support.chromium import Tab, browsing
from tests.support.processes import Process

pytestmark = pytest.mark.process

# Of the table of members: name, state and number of partitions of each row.
MEMBERS = """
[...document.querySelectorAll("[data-group] table")[0].querySelectorAll("tbody tr")].map(
  (row) => row.cells[0].querySelector(".swatch").nextSibling.data.trim() + " " + row.cells[1].innerText + " " + row.cells[2].querySelectorAll(".chip").length)
"""
MOMENTS = '[...document.querySelectorAll("ol.events li")].map((item) => item.dataset.kind + ": " + item.lastChild.innerText)'
PARTITIONS = """
[...document.querySelectorAll("[data-group] table")[1].querySelectorAll("tbody tr")].map(
  (row) => [...row.cells].map((cell) => cell.innerText))
"""
# Of the timeline: partitions, members of the legend and causes of rebalances.
TIMELINE = """
[document.querySelectorAll('.lane').length, [...document.querySelectorAll('.members-legend .swatch')].map((swatch) => swatch.nextSibling.data.trim()),
 [...document.querySelectorAll('.causes li')].filter((cause) => cause.textContent.includes('orders-2 left: ')).length]
"""
# By partition: the owner of the last cell, and that of the table, which is the coordinator's.
OWNERS = """
[[...document.querySelectorAll('.texts li')].map((item) => / (.*): (.*) from .* on$/.exec(' ' + item.textContent)).filter(Boolean).map(([, ...owner]) => owner),
 [...document.querySelectorAll("[data-group] table")[1].querySelectorAll("tbody tr")].map((row) => [row.cells[0].textContent, row.cells[1].querySelector(".swatch").nextSibling.data.trim()])]
"""
# All cells, as partition and owner.
SPANS = "[...document.querySelectorAll('.texts li')].map((item) => /^(.*?): (.*) from /.exec(item.textContent).slice(1))"
LAG_LINES = "[...document.querySelectorAll('.chart:first-child .plot .line, .sparkline .line')].filter((line) => line.getAttribute('d')).length"
REBALANCED = re.compile(r"rebalance: generation \d+: member orders-2 left: .+, paused ")
FEWER = "document.querySelector('[aria-label=\"remove a replica of orders\"]')"


# By partition.
Owners = Mapping[str, str]


def members(count: int, each: int) -> str:
    """Return True if exactly these members are shown, each with so many partitions."""
    rows = [f"orders-{number} Stable {each}" for number in range(count)]
    shown = "document.querySelector('[data-group] table')"
    return f"{shown} !== null && JSON.stringify({MEMBERS}) === JSON.stringify({rows})"


class Descriptions(threading.Thread):
    """Owners of the group's partitions in each stable description of the coordinator, in the order of their arrival."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.owners: list[Owners] = []
        self._channel = grpc.insecure_channel(address.removeprefix("rota://"))
        self._responses = AdminStub(self._channel).WatchGroup(WatchGroupRequest(group_id="shop.orders"))
        self.start()

    @override
    def run(self) -> None:
        with suppress(grpc.RpcError):
            for found in map(description_of, self._responses):
                if found.state == STABLE:
                    names = names_of(found.members)
                    self.owners.append(
                        {each.text: name for each, name in owners_in(found.members, names).items()}
                    )

    def stop(self) -> Sequence[Owners]:
        """Return them."""
        self._responses.cancel()
        self.join()
        self._channel.close()
        return self.owners


def history_of(descriptions: Sequence[Owners]) -> Mapping[str, Sequence[str]]:
    """Owners of each partition, one after the other."""
    found: dict[str, list[str]] = {}
    for owners in descriptions:
        for partition, owner in owners.items():
            history = found.setdefault(partition, [])
            if history[-1:] != [owner]:
                history.append(owner)
    return found


def history_of_cells(cells: Sequence[tuple[str, str]], first: Owners) -> Mapping[str, Sequence[str]]:
    """The same of cells, as partition and owner; from the cell on that has the first owner for the last time before others."""
    found = history_of([{partition: owner} for partition, owner in cells if owner != "unowned"])
    return {
        partition: owners[max(0, len(owners) - 1 - owners[::-1].index(first[partition])) :]
        for partition, owners in found.items()
    }


async def look(tab: Tab, laptop: Laptop, process: Process) -> None:
    await tab.until(members(3, 2), WITHIN_S)
    descriptions = Descriptions(laptop.address)
    await tab.until(f"({PARTITIONS}).every((cells) => cells[4] === '0')", WITHIN_S)
    rows = await tab.evaluate(PARTITIONS)
    assert [row[0] for row in rows] == [f"orders-{number}" for number in range(6)]
    assert {row[3] for row in rows} == {str(RECORDS // 6)}
    assert "live, " in await tab.evaluate("document.getElementById('connection').innerText")
    # The runner has recorded the lag of the group and of each partition.
    await tab.until(f"{LAG_LINES} === 7", WITHIN_S)

    await tab.evaluate(f"{FEWER}.click()")
    await tab.until(members(2, 3), WITHIN_S)
    events = await tab.evaluate(MOMENTS)
    assert "scale: orders scaled from 3 to 2 replicas" in events
    assert any(map(REBALANCED.match, events)), events
    names = [f"orders-{number}" for number in range(3)]
    assert await tab.evaluate(TIMELINE) == [6, names, 1]
    await tab.evaluate("document.querySelector('details summary').click()")
    await tab.until("document.querySelector('.texts') !== null", WITHIN_S)
    cells, table = await tab.evaluate(OWNERS)
    shown = [tuple(each) for each in await tab.evaluate(SPANS)]
    described = descriptions.stop()
    assert history_of_cells(shown, described[0]) == history_of(described), (shown, described)
    assert cells == table
    assert len(table) == 6
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await tab.evaluate(wide), "it has to be moved sideways"
    assert tab.errors == []

    await asyncio.to_thread(process.stop)
    await tab.until("document.getElementById('connection').className === 'bad'", WITHIN_S)
    said = await tab.evaluate("document.getElementById('connection').innerText")
    assert (
        said
        == "disconnected: the data shown is outdated; check that rota up, or kubectl rota ui, is still running"
    )


def test_the_page_follows_a_group_live(tmp_path: Path) -> None:
    laptop = Laptop(tmp_path)
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until((laptop.home / "page").exists, within_s=WITHIN_S)

    async def story() -> None:
        async with browsing(tmp_path, f"http://{laptop.page}/") as tab:
            try:
                await look(tab, laptop, process)
            finally:
                await tab.screenshot(tmp_path / "page.png")

    asyncio.run(story())
    assert process.exit_code == 0
