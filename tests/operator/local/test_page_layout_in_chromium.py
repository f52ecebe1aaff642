"""The page is readable in wide and narrow windows, light and dark: nothing is outside of the window, and texts have contrast."""

import asyncio
from pathlib import Path

import pytest

from rota_operator.overview.view import EventKind, ReplicaView, WorkloadView
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.local.page_layout import OUTSIDE, PALE, TOO_WIDE, WIDTHS, looks_right
from tests.operator.local.staged import WITHIN_S, Stage, browsing_stage

pytestmark = pytest.mark.process

GROUP, OTHER = "shop.orders-enricher-with-a-long-name", "billing.invoices"
PARTITIONS, MEMBERS = 12, 4
CONTROLS = f"""
(() => {{
  const made = document.createElement("div");
  made.append("pale");
  made.style.cssText = "width: 110vw; color: grey; background: grey";
  document.querySelector("main").append(made);
  const found = [{TOO_WIDE}, ({OUTSIDE}).length, ({PALE}).length];
  made.remove();
  return found;
}})()
"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
MEMBER = """
[...document.querySelector('[data-group] table tbody tr').cells].filter((cell) => ['client id', 'host', 'dead letters'].includes(cell.dataset.head)).map((cell) => cell.innerText)
"""
SHOWN = "[...document.querySelectorAll('[data-group]')].map((section) => section.dataset.group)"


def staged() -> Stage:
    """15 minutes of a group that is scaled, loses a member, and is reset; beside it one without members."""
    stage = Stage(GROUP, OTHER)
    names = [f"orders-enricher-with-a-long-name-{number}" for number in range(MEMBERS)]
    replicas = tuple(ReplicaView(name, "Up", "Up", 1) for name in names)
    stage.workloads = [
        WorkloadView("shop", "orders-enricher", "Deployment", GROUP, MEMBERS, 3, 1, replicas),
        WorkloadView("shop", "producer-without-a-group", "Deployment", None, 1, 1, 0, ()),
    ]
    for minute in range(15):
        count = 2 + minute % (MEMBERS - 1)
        shares = {name: range(number, PARTITIONS, count) for number, name in enumerate(names[:count])}
        stage.preparing(GROUP, minute, names[:count], f"member {names[0]}-id left: session timeout")
        stage.pass_time(2)
        stage.stable(GROUP, minute + 1, shares, f"member {names[0]}-id left: session timeout")
        if minute == 7:
            stage.dashboard.record_event(GROUP, EventKind.RESET, "offsets of orders-0 to orders-11 reset")
        for second in range(58):
            stage.offsets(GROUP, [1_000 * minute + 10 * second] * PARTITIONS, 20_000, stage.now_ms - 90_000)
            for name, numbers in shares.items():
                member = pb.MemberReport(
                    state=pb.MEMBER_STATE_STABLE,
                    generation_id=minute + 1,
                    records_done=60 * minute + second,
                    dead_letters=minute,
                    problems=[
                        "topic orders-enricher-with-a-long-name-dead-letters does not exist: create it"
                    ],
                )
                stage.report(GROUP, member, name, numbers)
            stage.pass_time(1)
    return stage


@pytest.fixture
def stage() -> Stage:
    return staged()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_outside_of_the_window(tmp_path: Path, stage: Stage, scheme: str) -> None:
    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            await tab.prefer_color_scheme(scheme)
            for width in WIDTHS:
                await looks_right(tab, width)
                await tab.screenshot(tmp_path / f"{scheme}-{width}.png")
            # The controls: something too wide, and pale text, are found.
            assert await tab.evaluate(CONTROLS) == [True, 1, 1]
            is_light = await tab.evaluate(BACKGROUND) == "rgb(245, 247, 249)"
            assert is_light == (scheme == "light")

    asyncio.run(story())


def test_members_have_client_id_host_and_dead_letters(tmp_path: Path, stage: Stage) -> None:
    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate(MEMBER) == ["orders-enricher-with-a-long-name-0", "127.0.0.1", "14"]

    asyncio.run(story())


def test_scroll_positions_survive_updates(tmp_path: Path, stage: Stage) -> None:
    boxes = (
        "[document.scrollingElement, document.querySelector('ol.events'), document.querySelector('.causes')]"
    )

    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            await tab.resize(400, 600)
            await tab.until(f"{boxes}.every((box) => box.scrollHeight > box.clientHeight + 30)", WITHIN_S)
            await tab.evaluate(f"{boxes}.forEach((box) => box.scrollTo(0, 30))")
            stage.dashboard.record_event(GROUP, EventKind.SCALE, "scaled for the test")
            await tab.until("document.body.innerText.includes('scaled for the test')", WITHIN_S)
            assert await tab.evaluate(f"{boxes}.map((box) => box.scrollTop)") == [30, 30, 30]

    asyncio.run(story())


def test_a_link_shows_one_group_alone(tmp_path: Path, stage: Stage) -> None:
    async def story() -> None:
        async with browsing_stage(tmp_path, stage, fragment=f"#{OTHER}") as tab:
            assert await tab.evaluate(SHOWN) == [OTHER]
            await tab.evaluate("document.querySelector('nav a').click()")
            await tab.until(f"({SHOWN}).length === 2", WITHIN_S)
            await tab.evaluate("document.querySelector('h2 a').click()")
            await tab.until(f"({SHOWN}).length === 1", WITHIN_S)
            assert await tab.evaluate("location.hash") == f"#{GROUP}"
            assert await tab.evaluate("document.querySelector('nav [aria-current]').innerText") == GROUP
            await tab.evaluate("location.hash = '#gone%'")
            await tab.until(f"({SHOWN}).length === 2", WITHIN_S)
            text = await tab.evaluate("document.querySelector('main').firstChild.innerText")
            assert text == "unknown group gone%; all groups are shown"

    asyncio.run(story())
