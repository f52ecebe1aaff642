"""kopf's watches as the operator sets them up, at an API server whose watches are silent, expired, refused, or end at once."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web

from rota_operator.cluster import handlers
from rota_operator.cluster.handlers import Handlers, WatchFailed, registry_of
from rota_operator.cluster.index import ResourceIndex
from rota_operator.cluster.kinds import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    DISRUPTION_BUDGET,
    WORKLOADS,
    ResourceKind,
)
from rota_operator.cluster.owned_index import OwnedIndex
from rota_operator.cluster.queues import Key
from tests.operator.cluster.test_index import group
from tests.support import applications
from tests.support.loops import run_in_thread

# kopf begins once it knows the last two.
KINDS = (
    CONSUMER_GROUP,
    *WORKLOADS,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    ResourceKind("v1", "Namespace", "namespaces"),
    ResourceKind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions"),
)
GROUPS_PATH = "/apis/rota.dev/v1alpha1/namespaces/shop/consumergroups"
SILENCE_S, WITHIN_S = 0.5, 20
ONE, TWO = Key("shop", "one"), Key("shop", "two")
# Answers one watch of ConsumerGroups; returning ends it.
WatchAnswer = Callable[["Server", web.Request, web.StreamResponse], Awaitable[None]]


@pytest.fixture(autouse=True)
def _all_is_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that each client that was opened is closed in the end."""
    opened: list[aiohttp.ClientSession] = []
    start = aiohttp.ClientSession.__init__

    def noted(self: aiohttp.ClientSession, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  as they are
        start(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(aiohttp.ClientSession, "__init__", noted)
    yield
    assert [each for each in opened if not each.closed] == []


def discovery_of(kinds: tuple[ResourceKind, ...]) -> Mapping[str, Any]:
    """The answers by which a client finds out which kinds there are."""
    found: dict[str, Any] = {"/api": {"versions": ["v1"]}, "/apis": {"groups": []}}
    for kind in kinds:
        name, _, version = kind.api_version.rpartition("/")
        path = f"/apis/{kind.api_version}" if name else "/api/v1"
        if name and path not in found:
            known = {"version": version}
            found["/apis"]["groups"].append({"name": name, "versions": [known], "preferredVersion": known})
        found.setdefault(path, {"resources": []})["resources"].append(
            {
                "name": kind.plural,
                "kind": kind.kind,
                "singularName": "",
                "namespaced": True,
                "verbs": ["list", "watch"],
            }
        )
    return found


async def silent(server: "Server", request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await server.idle()


async def unanswered(server: "Server", request: web.Request, response: web.StreamResponse) -> None:
    await server.idle()


async def expired(server: "Server", request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    await response.write(json.dumps(gone).encode() + b"\n")


async def refused(server: "Server", request: web.Request, response: web.StreamResponse) -> None:
    response.set_status(410)
    await response.prepare(request)


async def failed(server: "Server", request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    wrong = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError"}}
    await response.write(json.dumps(wrong).encode() + b"\n")


async def failed_while_another_waits(
    server: "Server", request: web.Request, response: web.StreamResponse
) -> None:
    await server.is_left_waiting.wait()
    await failed(server, request, response)


class Server:
    """
    ConsumerGroup `one` exists from the beginning, `two` is created while the first watch is open.

    `answer` answers the first watch of ConsumerGroups; each later one shows what has happened since its version. Watches of the kind
    `unanswered` get no answer at all.
    """

    def __init__(self, answer: WatchAnswer, unanswered: ResourceKind | None = None) -> None:
        self._first: list[WatchAnswer] = [answer]
        self._unanswered = unanswered
        self.is_left_waiting = asyncio.Event()
        self._discovery = discovery_of(KINDS)
        self.ended = threading.Event()
        self.lists = 0
        self.watched_from: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if (found := self._discovery.get(request.path)) is not None:
            return web.json_response(found)
        if "watch" in request.query:
            return await self._watch(request)
        items = []
        if request.path == GROUPS_PATH:
            self.lists += 1
            items = [group("one")] if self.lists == 1 else [group("one"), self.two]
        version = "10" if self.lists <= 1 else "20"
        return web.json_response({"items": items, "metadata": {"resourceVersion": version}})

    async def idle(self) -> None:
        """Keep a watch open until the test ends."""
        await asyncio.to_thread(self.ended.wait)

    @property
    def two(self) -> Any:  # noqa: ANN401  an object
        found = group("two")
        found["metadata"]["resourceVersion"] = "15"
        return found

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if self._unanswered is not None and request.path.endswith(f"/{self._unanswered.plural}"):
            self.is_left_waiting.set()
            await self.idle()
        if request.path == GROUPS_PATH:
            self.watched_from.append(request.query["resourceVersion"])
            if self._first:
                await self._first.pop()(self, request, response)
                return response
        await response.prepare(request)
        if request.path == GROUPS_PATH and int(request.query["resourceVersion"]) < 15:
            await response.write(json.dumps({"type": "ADDED", "object": self.two}).encode() + b"\n")
        await self.idle()
        return response


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Serve in a thread: kopf cancels what else runs on its loop when it ends."""
    loop, started, stop = asyncio.new_event_loop(), Future[str](), asyncio.Event()

    async def serve() -> None:
        async with applications.serving(server.handle) as address:
            started.set_result(address)
            await stop.wait()

    serving = run_in_thread(loop, serve())
    try:
        yield started.result(WITHIN_S)
    finally:
        server.ended.set()
        loop.call_soon_threadsafe(stop.set)
        serving.join(WITHIN_S)


def seen_of(server: Server) -> list[Key]:
    """Watch until both ConsumerGroups are seen; return them in this order. Raises WatchFailed."""
    keys: list[Key] = []

    async def story() -> None:
        both, stop = asyncio.Event(), asyncio.Event()

        def add(key: Key, *, is_own: bool) -> bool:
            keys.append(key)
            if TWO in keys:
                both.set()
            return True

        async def login(**_: object) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=address)

        found = Handlers(
            ResourceIndex(), add, lambda _kind, _version: None, lambda _problem: None, OwnedIndex(1.0)
        )
        waiting = asyncio.create_task(both.wait())
        watching = asyncio.create_task(
            handlers.watch(registry_of(found, login), ["shop"], stop, lambda: None)
        )
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            stop.set()
            await watching

    with serving(server) as address:
        asyncio.run(story())
    return keys


@pytest.mark.parametrize("answer", [silent, unanswered])
def test_a_change_during_a_silent_watch_is_seen_once_it_is_opened_again_where_it_was(
    answer: WatchAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "SILENCE_S", SILENCE_S)
    server = Server(answer)
    assert seen_of(server) == [ONE, TWO]
    assert (server.lists, server.watched_from) == (1, ["10", "10"])


def test_a_watch_whose_history_is_gone_begins_with_a_list() -> None:
    server = Server(expired)
    assert seen_of(server) == [ONE, TWO]
    assert (server.lists, server.watched_from[-1]) == (2, "20")


@pytest.mark.parametrize("answer", [refused, failed])
def test_an_answer_that_a_watch_cannot_be_gone_on_from_ends_all_watches(answer: WatchAnswer) -> None:
    with pytest.raises(WatchFailed, match="the API server cannot be watched"):
        seen_of(Server(answer))


def test_a_watch_that_takes_the_end_of_all_for_a_pause_of_its_own_does_not_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "ENDING_S", 0.5)
    with pytest.raises(WatchFailed, match="the API server cannot be watched"):
        seen_of(Server(failed_while_another_waits, unanswered=CONFIG_MAP))


def test_watches_that_are_cancelled_while_they_end_have_ended_afterwards() -> None:
    """kopf waits 5 s for tasks that go on; its end would take those of the next term for its own."""
    going_on: list[asyncio.Task[Any]] = []

    async def watches() -> None:
        others = asyncio.all_tasks()
        root = asyncio.create_task(asyncio.sleep(0))
        going_on.append(asyncio.create_task(asyncio.Event().wait()))
        await handlers._run([root], others)

    async def story() -> None:
        watching = asyncio.create_task(watches())
        while not going_on:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        watching.cancel()
        await asyncio.wait({watching})
        assert watching.cancelled()
        assert going_on[0].cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(story())
