"""`kubectl rota ui` serves the operator's page on a local port: with the caller's rights, and only under the URL that it prints."""

import asyncio
import json
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import WSMsgType, web

from tests.cli.kubectl.conftest import write_kubeconfig
from tests.operator.cluster.api_server import Answer, ApiServer, Sent, api_at, status
from tests.operator.cluster.page_world import LEADER, ORDERS, Groups, answer_of, serving_groups, token_for
from tests.support import applications
from tests.support.chromium import browsing
from tests.support.processes import Process

pytestmark = pytest.mark.process

WITHIN_S = 60
SHOWN = "[...document.querySelectorAll('[data-group]')].map((section) => section.dataset.group)"
CELLS = "document.querySelectorAll('.cells rect').length"
BUTTONS = "document.querySelectorAll('button').length"
IS_LIVE = "document.getElementById('connection').textContent.startsWith('live')"
CONNECTION = "document.getElementById('connection').textContent"


class Cluster(ApiServer):
    """An API server that forwards ports of pods, and requests tokens; what callers have sent is kept."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.leader = LEADER
        # By the name of the pod: the address of its page.
        self.pages: dict[str, str] = {}
        # Of forwarded ports: pod and credentials.
        self.forwarded: list[tuple[str, str]] = []
        self.may_forward = True
        self._sockets: set[web.WebSocketResponse] = set()

    async def cut(self) -> None:
        """End all forwarded connections."""
        await asyncio.gather(*(each.close() for each in tuple(self._sockets)))

    def _respond(self, sent: Sent) -> Answer:
        if "/namespaces/none/leases" in sent.path:
            is_list = sent.path.endswith("/leases")
            return (
                Answer(200, {"items": []})
                if is_list
                else status(404, "NotFound", "leases not found", name="rota-operator")
            )
        if sent.path.endswith("/leases"):
            spec = {"holderIdentity": f"{self.leader}_1234" if self.leader else ""}
            return Answer(200, {"items": [{"metadata": {"namespace": "rota", "name": "prod"}, "spec": spec}]})
        if sent.path.endswith("/serviceaccounts/shopkeeper/token"):
            (audience,) = sent.body["spec"]["audiences"]
            return Answer(201, {"status": {"token": token_for("shopkeeper", audience)}})
        return answer_of(sent)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Forward one connection as the kubelet does: data in channel 0, errors in channel 1, both begin with the port."""
        pod, port = request.match_info["pod"], int(request.query["ports"])
        self.forwarded.append((pod, request.headers.get("Authorization", "")))
        if not self.may_forward:
            said = f'pods "{pod}" is forbidden: User "clerk" cannot create resource "pods/portforward" in API group ""'
            return web.json_response({"kind": "Status", "message": said, "code": 403}, status=403)
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        self._sockets.add(socket)
        for channel in (b"\0", b"\1"):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        host, _, target = self.pages[pod].rpartition(":")
        assert int(target) == port
        reader, writer = await asyncio.open_connection(host, port)

        async def back() -> None:
            while data := await reader.read(65_536):
                await socket.send_bytes(b"\0" + data)
            await socket.close()

        copying = asyncio.ensure_future(back())
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            assert message.data[:1] == b"\0"
            writer.write(message.data[1:])
        writer.close()
        copying.cancel()
        self._sockets.discard(socket)
        return socket


class Served(NamedTuple):
    """The command, and the URL that it prints."""

    process: Process
    url: str


@asynccontextmanager
async def serving(cluster: Cluster, folder: Path) -> AsyncIterator[str]:
    """Serve the API server; yields its address."""
    forward = web.get("/api/v1/namespaces/rota/pods/{pod}/portforward", cluster.forward)
    async with applications.serving(cluster.handle, forward) as address:
        write_kubeconfig(folder / "config", address)
        yield address


def login(folder: Path, user: dict[str, str]) -> None:
    """Give the kubeconfig's user other credentials."""
    file = folder / "config"
    config = json.loads(file.read_text())
    config["users"][0]["user"] = user
    file.write_text(json.dumps(config))


async def ui(folder: Path, page: str, *flags: str) -> Served:
    """Start the command; return once it has printed the URL, or has ended."""
    log = folder / f"ui-{len(list(folder.glob('ui-*')))}.log"
    command = [
        sys.executable, "-m", "rota_cli.kubectl", "ui", f"--kubeconfig={folder / 'config'}",
        f"--page-port={page.rpartition(':')[2]}", *flags,
    ]  # fmt: skip
    process = Process.start("kubectl rota ui", command, log=log)

    def is_started() -> bool:
        return "http://127.0.0.1" in log.read_text() or process.exit_code is not None

    async with asyncio.timeout(WITHIN_S):
        while not is_started():
            await asyncio.sleep(0.05)
    found = re.search(r"^http://\S+$", log.read_text(), re.MULTILINE)
    return Served(process, found[0] if found else log.read_text().strip())


def play(folder: Path, story: Callable[[Cluster, Groups, str], Awaitable[None]]) -> None:
    """Serve the page of one operator, and a cluster that forwards its port."""

    async def run() -> None:
        cluster, groups = Cluster(), Groups()
        async with serving(cluster, folder) as address:
            api = api_at(address)
            async with serving_groups(api, groups) as page:
                cluster.pages[LEADER] = page
                login(folder, {"token": "shopkeeper"})
                await story(cluster, groups, page)
            await api.close()

    asyncio.run(run())


async def get(url: str, **headers: str) -> tuple[int, Any]:
    def fetch() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), timeout=WITHIN_S
            ) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    return await asyncio.to_thread(fetch)


def test_the_page_shows_in_a_browser_what_the_caller_may_see(tmp_path: Path) -> None:
    async def story(cluster: Cluster, groups: Groups, page: str) -> None:
        served = await ui(tmp_path, page)
        assert served.url.endswith("/?namespace=shop")
        async with browsing(tmp_path, f"{served.url}#shop/orders") as tab:
            await tab.until(f"JSON.stringify({SHOWN}) === '[\"shop/orders\"]'", WITHIN_S)
            assert await tab.evaluate("[...document.querySelectorAll('nav a')].map((link) => link.innerText)") == [
                "all groups", "shop/orders", "shop/returns",
            ]  # fmt: skip
            await tab.until(f"{CELLS} === 4", WITHIN_S)
            # Read-only.
            assert await tab.evaluate(BUTTONS) == 0
            header = await tab.evaluate("document.getElementById('coordinator').innerText")
            assert header == f"{LEADER}, read-only for shopkeeper"
            # It follows the group.
            groups.now_ms += 1_000
            groups.stable(ORDERS, 7, "a", "b", "c")
            await tab.until("document.body.innerText.includes('generation 7')", WITHIN_S)
            assert tab.errors == []
        assert {pod for pod, _ in cluster.forwarded} == {LEADER}
        served.process.stop(first=signal.SIGINT)
        assert served.process.exit_code == 0
        # The caller's token is in no output; the URL has a key of this run.
        assert "shopkeeper" not in served.process.log.read_text()

    play(tmp_path, story)


def test_nobody_reads_with_the_rights_of_the_caller_without_the_url(tmp_path: Path) -> None:
    async def story(cluster: Cluster, groups: Groups, page: str) -> None:
        served = await ui(tmp_path, page, "-A")
        assert (await get(f"{served.url}api/state"))[0] == 200
        before = len(cluster.forwarded)
        origin, _, key = served.url.rstrip("/").rpartition("/")
        other_key = key[:-1] + ("y" if key.endswith("x") else "x")
        for url in (
            f"{origin}/",
            f"{origin}/api/state",
            f"{origin}/{other_key}/api/state",
            f"{origin}/{key}",
        ):
            assert (await get(url))[0] == 403, url
        assert (await get(f"{served.url}api/state", Host="evil.example"))[0] == 403
        assert (await get(f"{served.url}api/state", Origin="http://evil.example"))[0] == 403
        assert len(cluster.forwarded) == before
        served.process.stop(first=signal.SIGINT)

    play(tmp_path, story)


def test_a_service_account_shows_the_operator_a_token_for_the_page_alone(tmp_path: Path) -> None:
    async def story(cluster: Cluster, groups: Groups, page: str) -> None:
        # As a client certificate: no token of the caller.
        login(tmp_path, {"username": "admin", "password": "secret"})
        refused = await ui(tmp_path, page)
        assert "has no bearer token" in refused.url
        assert "--service-account" in refused.url
        served = await ui(tmp_path, page, "--service-account=shopkeeper")
        code, body = await get(f"{served.url.partition('?')[0]}api/state")
        assert (code, len(json.loads(body)["groups"])) == (200, 2)
        reviewed = [each.body["spec"] for each in cluster.sent if each.path.endswith("/tokenreviews")]
        assert [each["audiences"] for each in reviewed] == [["rota-page"]]
        served.process.stop(first=signal.SIGINT)

    play(tmp_path, story)


def test_after_a_change_of_the_leader_the_page_goes_on(tmp_path: Path) -> None:
    async def story(cluster: Cluster, groups: Groups, page: str) -> None:
        served = await ui(tmp_path, page, "-A")
        async with browsing(tmp_path, served.url) as tab:
            await tab.until(f"{SHOWN}.length === 2", WITHIN_S)
            # Another pod leads, whose page is the same here; the former one has ended.
            cluster.leader = "rota-operator-b"
            cluster.pages = {"rota-operator-b": page}
            await cluster.cut()
            await tab.until(IS_LIVE, WITHIN_S)
            # The leader has ended, and the Lease is free: the page says why it shows nothing new, and goes on by itself.
            cluster.leader = ""
            await cluster.cut()
            await tab.until(f"{CONNECTION}.includes('no operator leads')", WITHIN_S)
            cluster.leader, before = "rota-operator-b", len(cluster.forwarded)
            await tab.until(IS_LIVE, WITHIN_S)
            assert {pod for pod, _ in cluster.forwarded[before:]} == {"rota-operator-b"}
        served.process.stop(first=signal.SIGINT)

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("user", "flags", "message", "code"),
    [
        ("clerk", ("-n", "billing"), "clerk may not get consumergroups.rota.dev in namespace billing", 1),
        ("nobody", (), "the API server rejects the token", 1),
        ("shopkeeper", ("--operator-namespace=none",), "namespace none has no Lease of an operator: install the operator", 4),
        ("shopkeeper", ("--operator-lease=",), "--operator-lease must not be empty", 2),
        ("shopkeeper", ("--service-account=a/b/c",), '--service-account "a/b/c" is not a valid name', 2),
        ("shopkeeper", ("--port={taken}",), "cannot be listened on (Address already in use): choose another with --port", 1),
    ],
)  # fmt: skip
def test_an_error_is_one_line(
    tmp_path: Path, user: str, flags: tuple[str, ...], message: str, code: int
) -> None:
    async def story(cluster: Cluster, groups: Groups, page: str) -> None:
        login(tmp_path, {"token": user})
        taken = page.rpartition(":")[2]
        ended = await ui(tmp_path, page, *(each.format(taken=taken) for each in flags))
        assert message in ended.url
        assert len(ended.url.splitlines()) == 1
        assert ended.process.exit_code == code

    play(tmp_path, story)


def test_a_right_to_forward_ports_that_is_missing_is_named(tmp_path: Path) -> None:
    async def story(cluster: Cluster, groups: Groups, page: str) -> None:
        cluster.may_forward = False
        ended = await ui(tmp_path, page)
        assert "clerk may not create pods/portforward in namespace rota" in ended.url
        cluster.leader = ""
        assert "Lease rota/prod is not held, so no operator leads" in (await ui(tmp_path, page)).url

    play(tmp_path, story)
