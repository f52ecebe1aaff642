"""
A proxy in front of a cluster's API server: counts the write requests to each namespace, cuts a namespace off after some of them, holds
writes back (`held_writes`), and injects the faults of `api_faults`.

Used by tests of the operator, which connects to it in plain HTTP; the proxy has the client certificate of the kubeconfig. It runs in
a thread with an event loop of its own. Watches are streamed.
"""

import asyncio
import json
import re
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from tests.support import applications
from tests.support.cluster.api_faults import GONE_EVENT, ApiFaults, Refusal
from tests.support.cluster.held_writes import HeldWrites
from tests.support.cluster.served_versions import ServedVersions
from tests.support.loops import run_in_thread

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
NAMESPACE = re.compile(r"/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^?]+)")
# The plural of its kind, in a path of one of its versions.
KIND = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?(?P<kind>[a-z]+)")
EVENT = "POST events"
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
# Headers of a response that are of its connection alone.
OF_CONNECTION = frozenset({"connection", "content-length", "date", "transfer-encoding"})
STOP_S = 60
BODY_MAX = 4 * 1024 * 1024
# Between two looks at whether a watch is to end.
LOOK_S = 0.2


class Asked(NamedTuple):
    """A request; namespace and resource are empty for those of the whole cluster."""

    method: str
    namespace: str
    resource: str
    kind: str
    is_watch: bool
    body: bytes

    @property
    def is_write(self) -> bool:
        """True if it changes an object."""
        return self.method in WRITES

    @property
    def is_list(self) -> bool:
        """True if it lists objects of one kind."""
        return self.method == "GET" and not self.is_watch and "/" not in self.resource and bool(self.kind)


class ApiProxy:
    """
    A running proxy, see `proxied`; its methods are called from the test's thread.

    Invariant: once a namespace is cut off, no request to it reaches the API server until `reconnect`.
    """

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        self.kubeconfig = Path()
        self.faults = ApiFaults()
        self.served = ServedVersions()
        self.held = HeldWrites()
        # The first list of each path and query.
        self._past: dict[str, bytes] = {}
        self._server = server
        self._tls = tls
        self._lock = threading.Lock()
        # Per namespace: method and resource of each write that was carried out, and its time; reads of each ConsumerGroup.
        self._writes: dict[str, list[str]] = defaultdict(list)
        self._times: dict[str, list[float]] = defaultdict(list)
        self._reads: dict[str, int] = defaultdict(int)
        # Number of writes after which a namespace is cut off.
        self._limits: dict[str, int] = {}

    def writes(self, namespace: str) -> list[str]:
        """Method and resource of each write request to a namespace that was carried out."""
        with self._lock:
            return list(self._writes[namespace])

    def state_writes(self, namespace: str) -> list[str]:
        """Return the writes but those of Events, of which a lost one loses no state."""
        with self._lock:
            return self._state_writes(namespace)

    def written_s(self, namespace: str, write: str) -> list[float]:
        """Return when writes of this method and resource were carried out, by the machine's steady clock."""
        with self._lock:
            made = zip(self._writes[namespace], self._times[namespace], strict=True)
            return [at_s for each, at_s in made if each == write]

    def last_write_s(self, namespace: str) -> float:
        """Return when the last write but those of Events was carried out, by the machine's steady clock."""
        with self._lock:
            made = zip(self._writes[namespace], self._times[namespace], strict=True)
            return max((at_s for each, at_s in made if each != EVENT), default=0.0)

    def reads(self, namespace: str, resource: str) -> int:
        """Number of times that an object, such as consumergroups/orders, was read."""
        with self._lock:
            return self._reads[f"{namespace}/{resource}"]

    def cut_after(self, namespace: str, more_writes: int) -> None:
        """Cut a namespace off after this many further `state_writes`."""
        with self._lock:
            self._limits[namespace] = len(self._state_writes(namespace)) + more_writes

    def is_cut(self, namespace: str) -> bool:
        """Return True once all writes have been carried out that `cut_after` allows."""
        with self._lock:
            return self._is_cut(namespace)

    def reconnect(self) -> None:
        """Let all requests through again."""
        with self._lock:
            self._limits.clear()

    def _is_cut(self, namespace: str) -> bool:
        limit = self._limits.get(namespace)
        return limit is not None and len(self._state_writes(namespace)) >= limit

    def _state_writes(self, namespace: str) -> list[str]:
        return [each for each in self._writes[namespace] if each != EVENT]

    async def serve(self, stop: asyncio.Event, started: "Future[str]") -> None:
        """Serve until `stop` is set."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        async with aiohttp.ClientSession(
            connector=connector, timeout=NO_TIMEOUT, read_bufsize=BODY_MAX
        ) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._forward(request, session)

            async with applications.serving(handle, body_max=BODY_MAX) as address:
                started.set_result(address)
                await stop.wait()
        # Watches of an operator that was killed.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _forward(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        found = NAMESPACE.search(request.path)
        kind = KIND.search(request.path)
        asked = Asked(
            request.method,
            "" if found is None else found["namespace"],
            "" if found is None else found["resource"],
            "" if kind is None else kind["kind"],
            request.query.get("watch") == "true",
            await request.read(),
        )
        if (instead := await self._sabotaged(request, asked)) is not None:
            return instead
        held = (
            self.held.find(asked.namespace, asked.method, asked.resource, asked.body)
            if asked.is_write
            else None
        )
        if held is not None and not (held.is_carried_out and not held.is_reached):
            raise web.HTTPServiceUnavailable(text="held back by the test")
        if not self._admit(asked.method, asked.namespace, asked.resource):
            raise web.HTTPServiceUnavailable(text="cut off by the test")
        if asked.is_write:
            self.served.written(asked.namespace, asked.resource, asked.body)
        headers = {
            name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers
        }
        # Compressed chunks of a watch would wait for each other.
        headers["Accept-Encoding"] = "identity"
        url = f"{self._server}{request.raw_path}"
        async with session.request(
            request.method, url, data=asked.body or None, headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer:
            kept = {
                name: value for name, value in answer.headers.items() if name.lower() not in OF_CONNECTION
            }
            if asked.is_watch:
                response = web.StreamResponse(status=answer.status, headers=kept)
                await self._stream(request, asked, answer, response)
                return response
            whole = await answer.read()
        if held is not None:
            await self.held.wait(held)
        self.served.served(asked.kind, whole)
        if asked.is_list:
            self._past.setdefault(request.raw_path, whole)
        return web.Response(status=answer.status, headers=kept, body=whole)

    async def _sabotaged(self, request: web.Request, asked: Asked) -> web.StreamResponse | None:
        """Return the answer to a request with a fault."""
        faults = self.faults
        if asked.is_watch:
            is_expired = faults.is_watch_expired()
            return web.Response(body=GONE_EVENT, content_type="application/json") if is_expired else None
        if asked.is_list and request.raw_path in self._past and faults.is_from_past(asked.namespace):
            past = self._past[request.raw_path]
            self.served.served(asked.kind, past)
            return web.Response(body=past, content_type="application/json")
        if faults.hangs(asked.namespace):
            while faults.are_on:
                await asyncio.sleep(LOOK_S)
            raise web.HTTPServiceUnavailable(text="it has hung")
        instead = faults.refusal(asked.namespace, is_write=asked.is_write)
        return None if instead is None else refused(instead)

    async def _stream(
        self,
        request: web.Request,
        asked: Asked,
        answer: aiohttp.ClientResponse,
        response: web.StreamResponse,
    ) -> None:
        """Pass a watch on, line by line, until one side ends it or a fault does."""
        since_s = time.monotonic()
        try:
            await response.prepare(request)
            reading: asyncio.Task[bytes] | None = None
            while not self.faults.is_watch_ended(since_s):
                reading = reading or asyncio.create_task(answer.content.readline())
                done, _ = await asyncio.wait({reading}, timeout=LOOK_S)
                if not done:
                    continue
                line, reading = reading.result(), None
                if not line:
                    break
                self.served.served(asked.kind, line)
                await response.write(line)
            if reading is not None:
                reading.cancel()
            await response.write_eof()
        except (ConnectionResetError, aiohttp.ClientError):
            # The operator has been killed, or has cancelled the request; or the API server has ended the watch.
            pass

    def _admit(self, method: str, namespace: str, resource: str) -> bool:
        """Count a request, unless its namespace is cut off."""
        with self._lock:
            if self._is_cut(namespace):
                return False
            if namespace and method in WRITES:
                self._writes[namespace].append(f"{method} {resource}")
                self._times[namespace].append(time.monotonic())
            elif namespace:
                self._reads[f"{namespace}/{resource}"] += 1
            return True


def refused(refusal: Refusal) -> web.Response:
    """Return a refusal as the API server sends it."""
    return web.Response(
        status=refusal.status,
        body=refusal.body,
        headers=dict(refusal.headers),
        content_type="application/json",
    )


@contextmanager
def proxied(kubeconfig: Path, folder: Path) -> Iterator[ApiProxy]:
    """A proxy in front of the API server of a kubeconfig; its own kubeconfig is in `folder`."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    proxy = ApiProxy(cluster["server"], tls)
    loop = asyncio.new_event_loop()
    stop, started = asyncio.Event(), Future[str]()
    serving = run_in_thread(loop, proxy.serve(stop, started))
    config["clusters"][0]["cluster"] = {"server": started.result(STOP_S)}
    config["users"][0]["user"] = {}
    proxy.kubeconfig = folder / "kubeconfig-of-proxy"
    proxy.kubeconfig.write_text(json.dumps(config))
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        serving.join(STOP_S)
