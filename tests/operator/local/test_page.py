"""The page of a laptop shows the state, follows it, and scales; it refuses requests from other origins and machines."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.page import Page
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import STABLE, DescribedMember, Description
from rota_operator.overview.offsets import PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import EventKind, WorkloadView
from rota_operator.page import server as pages
from rota_operator.page.server import BODY_BYTES_MAX, EVENT_STREAMS_MAX, serve_page
from rota_operator.resets.orders import Offsets
from tests.support.ports import free_port

pytestmark = pytest.mark.process

WITHIN_S = 60
# Names of files in links and imports; the icon is empty data.
OWN_FILES = re.compile(r"""(?:(?:src|href)="|from "\./)(?!data:,)([^"]+)\"""")
WORKLOAD = WorkloadView("shop", "orders", "Deployment", "orders", 3, 2, 1, ())


class PageClient:
    """A page, a browser that reads it, and the scale requests it made."""

    def __init__(self, browser: aiohttp.ClientSession, address: str) -> None:
        overview = Overview("rota://127.0.0.1:7070", [("orders", "shop/orders")])
        self.dashboard = DashboardState(overview, lambda: [WORKLOAD], lambda: 1_000)
        self.scaled: list[tuple[str, int]] = []
        self.was_reset: list[Offsets] = []
        self.page = Page(self.dashboard, self._scale, self._reset)
        self.address = address
        self.browser = browser

    def _scale(self, workload: str, replicas: int) -> str:
        if workload != "orders":
            return f'unknown workload "{workload}"; expected one of shop/orders'
        self.scaled.append((workload, replicas))
        return ""

    async def _reset(self, group: str, offsets: Offsets) -> str:
        if group != "orders":
            return f"group {group} has no running replica here; reset it after stopping its members"
        self.was_reset.append(offsets)
        return ""

    async def ask(
        self,
        method: str,
        path: str,
        **more: Any,  # noqa: ANN401  as aiohttp takes it
    ) -> tuple[int, Any]:
        async with self.browser.request(method, f"http://{self.address}{path}", **more) as answer:
            return answer.status, await answer.json()

    async def scale(self, body: object, **headers: str) -> tuple[int, Any]:
        return await self.ask("POST", "/api/scale", json=body, headers=headers)


def play(story: Callable[[PageClient], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        address = f"127.0.0.1:{free_port()}"
        async with asyncio.timeout(WITHIN_S), aiohttp.ClientSession() as browser:
            client = PageClient(browser, address)
            async with serve_page(client.page, address):
                await story(client)

    asyncio.run(run())


async def next_event(stream: aiohttp.ClientResponse) -> dict[str, Any]:
    line = await stream.content.readline()
    assert await stream.content.readline() == b"\n"
    found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    return found


def test_state_is_all_that_there_is() -> None:
    async def story(client: PageClient) -> None:
        status, state = await client.ask("GET", "/api/state")
        assert status == 200
        assert state.keys() == {"at_ms", "coordinator", "groups", "workloads", "groups_left_out"}
        assert state["workloads"][0]["wanted"] == 3
        assert state["groups"][0]["lag_records"] is None

    play(story)


def test_events_follow_what_happens() -> None:
    async def story(client: PageClient) -> None:
        async with client.browser.get(f"http://{client.address}/api/events") as stream:
            assert stream.content_type == "text/event-stream"
            assert (await next_event(stream))["groups"][0]["history"] == []
            client.dashboard.record_event("orders", EventKind.SCALE, "orders scaled")
            (event,) = (await next_event(stream))["groups"][0]["history"]
            assert (event["kind"], event["message"]) == ("scale", "orders scaled")

    play(story)


def test_however_much_happens_events_come_a_few_times_a_second() -> None:
    async def story(client: PageClient) -> None:
        async with client.browser.get(f"http://{client.address}/api/events") as stream:
            await next_event(stream)
            began_s = asyncio.get_running_loop().time()
            for _ in range(4):
                for number in range(50):
                    client.dashboard.record_event("orders", EventKind.SCALE, str(number))
                await next_event(stream)
            assert asyncio.get_running_loop().time() - began_s > 3 * pages.EVENT_EVERY_S

    play(story)


def test_event_streams_are_limited() -> None:
    async def story(client: PageClient) -> None:
        streams = [
            await client.browser.get(f"http://{client.address}/api/events") for _ in range(EVENT_STREAMS_MAX)
        ]
        status, said = await client.ask("GET", "/api/events")
        assert (status, said) == (503, {"error": "too many event streams (at most 32); close one"})
        for stream in streams:
            stream.close()

    play(story)


def test_who_may_scales() -> None:
    async def story(client: PageClient) -> None:
        assert (await client.scale({"workload": "orders", "replicas": 5}))[0] == 200
        own = {"Origin": f"http://{client.address}"}
        assert (await client.scale({"workload": "orders", "replicas": 0}, **own))[0] == 200
        assert client.scaled == [("orders", 5), ("orders", 0)]

    play(story)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], 'invalid request; expected {"workload": "NAME", "replicas": NUMBER}'),
        ({"workload": "orders"}, 'invalid request; expected {"workload": "NAME", "replicas": NUMBER}'),
        ({"workload": "orders", "replicas": 1, "more": 1}, 'invalid request; expected {"workload": "NAME", "replicas": NUMBER}'),
        ({"workload": 7, "replicas": 1}, "workload must be a string"),
        ({"workload": "orders", "replicas": "5"}, "replicas must be an integer"),
        ({"workload": "orders", "replicas": True}, "replicas must be an integer"),
        ({"workload": "others", "replicas": 1}, 'unknown workload "others"; expected one of shop/orders'),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_with_a_message(body: object, said: str) -> None:
    async def story(client: PageClient) -> None:
        assert await client.scale(body) == (400, {"error": said})
        assert client.scaled == []

    play(story)


def test_what_is_no_json_or_too_much_is_refused() -> None:
    async def story(client: PageClient) -> None:
        as_json = {"Content-Type": "application/json"}
        status, said = await client.ask("POST", "/api/scale", data=b"{", headers=as_json)
        assert status == 400
        assert said["error"].startswith("invalid JSON: ")
        much = b" " * (BODY_BYTES_MAX + 1)
        status, said = await client.ask("POST", "/api/scale", data=much, headers=as_json)
        assert (status, said) == (
            413,
            {"error": f"request body exceeds {BODY_BYTES_MAX} bytes"},
        )

    play(story)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
def test_what_a_form_of_another_page_could_send_is_refused(kind: str) -> None:
    async def story(client: PageClient) -> None:
        body = b'{"workload": "orders", "replicas": 0}'
        status, _ = await client.ask("POST", "/api/scale", data=body, headers={"Content-Type": kind})
        assert status == 415
        assert client.scaled == []

    play(story)


def test_offsets_are_reset_as_they_are_given() -> None:
    async def story(client: PageClient) -> None:
        body = {"group": "orders", "offsets": {"orders": {"0": 5, "12": 0}, "payments": {"1": 7}}}
        assert await client.ask("POST", "/api/reset", json=body) == (200, {"message": "done"})
        assert client.was_reset == [
            {Partition("orders", 0): 5, Partition("orders", 12): 0, Partition("payments", 1): 7}
        ]
        status, said = await client.ask("POST", "/api/reset", json={**body, "group": "others"})
        assert status == 409
        assert said["error"].startswith("group others has no running replica here")

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"group": "orders"},
        {"group": "orders", "offsets": {}},
        {"group": 5, "offsets": {"orders": {"0": 1}}},
        {"group": "orders", "offsets": {"orders": {"x": 1}}},
        {"group": "orders", "offsets": {"orders": {"0": -1}}},
        {"group": "orders", "offsets": {"orders": {"0": "1"}}},
        {"group": "orders", "offsets": {"orders": {"0": 1}}, "more": 1},
    ],
)
def test_what_is_no_reset_is_refused(body: object) -> None:
    async def story(client: PageClient) -> None:
        status, said = await client.ask("POST", "/api/reset", json=body)
        assert (status, client.was_reset) == (400, [])
        assert said["error"].startswith("invalid reset; expected {")

    play(story)


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/events", "/api/scale", "/api/reset"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rota.example.com"},
        {"Host": "127.0.0.1.example.com"},
        {"Origin": "http://example.com"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
    ],
)
def test_other_pages_see_and_do_nothing(path: str, headers: dict[str, str]) -> None:
    async def story(client: PageClient) -> None:
        method, body = (
            ("POST", {"workload": "orders", "replicas": 0}) if path.endswith("scale") else ("GET", None)
        )
        status, said = await client.ask(method, path, json=body, headers=headers)
        assert status == 403
        assert said.keys() == {"error"}
        assert client.scaled == []

    play(story)


def test_what_is_not_there_is_said() -> None:
    async def story(client: PageClient) -> None:
        status, said = await client.ask("GET", "/nothing")
        assert status == 404
        assert said["error"].startswith("unknown endpoint GET /nothing; available: ")
        assert (await client.ask("GET", "/api/scale"))[0] == 405

    play(story)


def test_the_page_needs_nothing_from_elsewhere_and_lets_nothing_else_run() -> None:
    async def story(client: PageClient) -> None:
        texts = {}
        for path, (_, content_type) in pages.FILES.items():
            async with client.browser.get(f"http://{client.address}{path}") as answer:
                assert (answer.status, answer.content_type) == (200, content_type)
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
                assert "unsafe" not in policy
                texts[path] = await answer.text()
        for path, text in texts.items():
            assert {f"/{name}" for name in OWN_FILES.findall(text)} <= texts.keys(), path
            assert re.findall(r"https?://|url\((?!#)", text) == [], path
            # Styles and handlers in attributes would need a weaker policy, and so would what is written as text.
            assert re.findall(r"""\sstyle=|\son[a-z]+=["']|innerHTML|<style|<script>""", text) == [], path

    play(story)


def test_an_event_has_what_was_recorded_since_the_one_before() -> None:
    async def story(client: PageClient) -> None:
        async with client.browser.get(f"http://{client.address}/api/events") as stream:
            (first,) = (await next_event(stream))["recorded"]
            nothing = {"group_id": "orders", "samples": [], "changes": [], "signs": {}}
            assert first == {**nothing, "is_complete": True}
            partition = Partition("orders", 0)
            client.dashboard.update_offsets("orders", {partition: PartitionOffsets(90, 0, 120, 500)})
            member = DescribedMember("a-id", "a", frozenset([partition]))
            client.dashboard.update_description(Description("orders", STABLE, 1, "range", [member]))
            while not (sent := (await next_event(stream))["recorded"][0])["samples"]:
                pass
            values = [30, 0.5, None, None]
            sample = {"at_ms": 1_000, "group": values, "names": ["orders-0"], "partitions": [values]}
            assert sent["samples"] == [sample]
            assert sent["changes"] == [{"at_ms": 1_000, "owners": {"orders-0": "a"}}]
            client.dashboard.notify()
            (after,) = (await next_event(stream))["recorded"]
            assert after == {**nothing, "is_complete": False, "signs": {"a": 0}}

    play(story)
