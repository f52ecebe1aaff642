"""Whatever is sent to the page of a laptop is answered with a sentence, never with a 500; markup in names is shown as text."""

import asyncio
import gzip
import json
from pathlib import Path

import aiohttp
import pytest

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.page import Page
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import STABLE, DescribedMember, Description
from rota_operator.overview.overview import Overview
from rota_operator.overview.view import EventKind, ReplicaView, WorkloadView
from rota_operator.page.server import BODY_BYTES_MAX, serve_page
from tests.operator.local.test_page import PageClient, play
from tests.support.chromium import browsing
from tests.support.ports import free_port

pytestmark = pytest.mark.process

WITHIN_S = 60
JSON = {"Content-Type": "application/json"}
BIG = 2**70


def reset(offsets: object) -> bytes:
    return json.dumps({"group": "orders", "offsets": offsets}).encode()


def scale(replicas: str) -> bytes:
    return f'{{"workload": "orders", "replicas": {replicas}}}'.encode()


BODIES = {
    "an offset of 71 bits": reset({"orders": {"0": BIG}}),
    "an offset of 64 bits": reset({"orders": {"0": 2**63}}),
    "an offset that is no number": b'{"group": "orders", "offsets": {"orders": {"0": NaN}}}',
    "an offset with a point": reset({"orders": {"0": 1.0}}),
    "a partition of 64 bits": reset({"orders": {str(2**63): 1}}),
    "one partition twice": reset({"orders": {"0": 1, "00": 2}}),
    "a topic with NUL": reset({"a\0b": {"0": 1}}),
    "a topic with half a character": b'{"group": "orders", "offsets": {"a\\ud800": {"0": 1}}}',
    "a group with half a character": b'{"group": "a\\ud800", "offsets": {"orders": {"0": 1}}}',
    "replicas of 5000 digits": scale("9" * 5_000),
    "replicas beyond floats": scale("1e999"),
    "replicas that are no number": scale("NaN"),
    "no replicas": scale("null"),
    "fields for a name": b'{"workload": {}, "replicas": []}',
    "lists in lists": b"[" * 100_000,
    "objects in objects": b'{"a":' * 20_000,
    "depth in its place": reset({"orders": 0}).replace(b"0", b'{"0":' * 3_000 + b"1" + b"}" * 3_000),
    "no text": b"\xff\xfe\xff",
    "nothing": b"",
    "null": b"null",
    "a number": b"1",
}


@pytest.mark.parametrize("path", ["/api/scale", "/api/reset"])
def test_every_wrong_body_is_refused_with_a_message(path: str) -> None:
    async def story(client: PageClient) -> None:
        for name, body in BODIES.items():
            status, said = await client.ask("POST", path, data=body, headers=JSON)
            assert (status, set(said)) == (400, {"error"}), (name, status, said)
            assert said["error"].isprintable(), name
        assert (client.scaled, client.was_reset) == ([], [])

    play(story)


def test_what_is_packed_is_no_larger_than_what_is_not() -> None:
    async def story(client: PageClient) -> None:
        packed = {**JSON, "Content-Encoding": "gzip"}
        bomb = gzip.compress(b" " * (100 * BODY_BYTES_MAX))
        status, said = await client.ask("POST", "/api/scale", data=bomb, headers=packed)
        assert (status, said["error"]) == (413, f"request body exceeds {BODY_BYTES_MAX} bytes")
        status, said = await client.ask("POST", "/api/scale", data=b"abcd", headers=packed)
        assert (status, said["error"].partition(";")[0]) == (400, "cannot decode the request body")

    play(story)


async def raw(client: PageClient, request: bytes) -> tuple[int, dict[str, str]]:
    """The answer to what no client would send."""
    host, _, port = client.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b"Content-Security-Policy" in head, head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    "lines",
    [
        *(b"Content-Length: " + length for length in (b"-1", b"abc", b"1.5", b"9" * 30, b"5, 5", b"+5", b"0x5", b"", b"\xff")),
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\n\r\nzz",
        b"X: " + b"a" * 20_000,
        b"X: a\0b",
        b"Host: elsewhere",
    ],
)  # fmt: skip
def test_requests_other_than_http_are_refused_with_a_message(
    lines: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(client: PageClient) -> None:
        host = client.address.encode()
        request = b"POST /api/scale HTTP/1.1\r\nHost: " + host + b"\r\nContent-Type: application/json\r\n"
        status, said = await raw(client, request + lines + b"\r\n\r\n{}")
        assert (status, set(said)) == (400, {"error"})
        assert said["error"].startswith("invalid HTTP request: ")
        assert said["error"].isprintable()

    play(story)
    assert caplog.records == [], "a stranger writes into the log"


HOSTILE = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>'\"`${document.title='pwned'}&lt;"
SHOWN = f"document.body !== null && document.body.textContent.split({json.dumps(HOSTILE)}).length - 1"


def hostile_state() -> DashboardState:
    """Every text that is not Rota's own is markup."""
    replica = ReplicaView(HOSTILE, "Up", "Up", 0)
    workload = WorkloadView(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1, 1, 0, (replica,))
    dashboard = DashboardState(Overview(HOSTILE, [(HOSTILE, HOSTILE)]), lambda: [workload], lambda: 1_000)
    partition = Partition(HOSTILE, 0)
    members = [
        DescribedMember("some-id", HOSTILE, frozenset([partition])),
        DescribedMember(HOSTILE, f"other {HOSTILE}"),
    ]
    dashboard.update_description(Description(HOSTILE, STABLE, 1, HOSTILE, members, reason=HOSTILE))
    for kind in EventKind:
        dashboard.record_event(HOSTILE, kind, HOSTILE)
    return dashboard


def test_markup_in_names_is_text_in_a_browser(tmp_path: Path) -> None:
    async def refuse(group: str, offsets: object) -> str:
        raise AssertionError("nothing is reset here")

    async def story() -> None:
        address = f"127.0.0.1:{free_port()}"
        page = Page(hostile_state(), lambda workload, replicas: HOSTILE, refuse)
        async with (
            serve_page(page, address),
            browsing(tmp_path, f"http://{address}/") as tab,
            aiohttp.ClientSession() as browser,
            browser.get(f"http://{address}/api/state") as answer,
        ):
            state = await answer.json()
            assert json.dumps(state).count("onerror") > 10, "there is nothing to show"
            # Of the group, its member, its partition and owner, the workload, and what has happened.
            await tab.until(f"{SHOWN} > 10", WITHIN_S)
            await tab.evaluate("[...document.querySelectorAll('button')].forEach((button) => button.click())")
            await tab.until(f"{SHOWN} > 11", WITHIN_S)
            assert (
                await tab.evaluate("document.querySelectorAll('img, body script:not(:last-of-type)').length")
                == 0
            )
            assert "pwned" not in await tab.evaluate("document.title")
            # A button whose scaling is refused is what it may complain about.
            assert [each for each in tab.errors if "400" not in each] == []

    asyncio.run(story())
