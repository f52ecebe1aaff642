"""
A proxy in front of a cluster's API server: counts the write requests to each namespace, and cuts a namespace off after some of them.

Used by tests of the operator, which connects to it in plain HTTP; the proxy has the client certificate of the kubeconfig. It runs in
a thread with an event loop of its own. Watches are streamed.
"""

import asyncio
import json
import re
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
NAMESPACE = re.compile(r"/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^?]+)")
EVENT = "POST events"
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
# Headers of a response that are of its connection alone.
OF_CONNECTION = frozenset({"connection", "content-length", "date", "transfer-encoding"})
STOP_S = 10
# Watches have no end of their own.
CLEANUP_S = 1
BODY_MAX = 4 * 1024 * 1024


class ApiProxy:
    """
    A running proxy, see `proxied`; its methods are called from the test's thread.

    Invariant: once a namespace is cut off, no request to it reaches the API server until `reconnect`.
    """

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        self.kubeconfig = Path()
        self._server = server
        self._tls = tls
        self._lock = threading.Lock()
        # Per namespace: method and resource of each write that was carried out; reads of each ConsumerGroup.
        self._writes: dict[str, list[str]] = defaultdict(list)
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

    async def serve(self, stop: asyncio.Event, started: "asyncio.Future[int]") -> None:
        """Serve until `stop` is set."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=NO_TIMEOUT) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._forward(request, session)

            application = web.Application(client_max_size=BODY_MAX)
            application.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(application, shutdown_timeout=CLEANUP_S, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            started.set_result(runner.addresses[0][1])
            await stop.wait()
            await runner.cleanup()
        # Watches of an operator that was killed.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _forward(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        found = NAMESPACE.search(request.path)
        namespace = "" if found is None else found["namespace"]
        body = await request.read()
        if not self._admit(request.method, namespace, "" if found is None else found["resource"]):
            raise web.HTTPServiceUnavailable(text="cut off by the test")
        headers = {
            name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers
        }
        # Compressed chunks of a watch would wait for each other.
        headers["Accept-Encoding"] = "identity"
        url = f"{self._server}{request.raw_path}"
        async with session.request(
            request.method, url, data=body or None, headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer:
            kept = {
                name: value for name, value in answer.headers.items() if name.lower() not in OF_CONNECTION
            }
            response = web.StreamResponse(status=answer.status, headers=kept)
            try:
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            except ConnectionResetError:
                # The operator has been killed, or has cancelled the request.
                pass
            return response

    def _admit(self, method: str, namespace: str, resource: str) -> bool:
        """Count a request, unless its namespace is cut off."""
        with self._lock:
            if self._is_cut(namespace):
                return False
            if namespace and method in WRITES:
                self._writes[namespace].append(f"{method} {resource}")
            elif namespace:
                self._reads[f"{namespace}/{resource}"] += 1
            return True


@contextmanager
def proxied(kubeconfig: Path, folder: Path) -> Iterator[ApiProxy]:
    """A proxy in front of the API server of a kubeconfig; its own kubeconfig is in `folder`."""
    config = json.loads(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    proxy = ApiProxy(cluster["server"], tls)
    loop = asyncio.new_event_loop()
    stop, started = asyncio.Event(), loop.create_future()
    serving = threading.Thread(target=loop.run_until_complete, args=[proxy.serve(stop, started)], daemon=True)
    serving.start()
    port = asyncio.run_coroutine_threadsafe(waited(started), loop).result(STOP_S)
    config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
    config["users"][0]["user"] = {}
    proxy.kubeconfig = folder / "kubeconfig-of-proxy"
    proxy.kubeconfig.write_text(json.dumps(config))
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        serving.join(STOP_S)
        loop.close()


async def waited(started: "asyncio.Future[int]") -> int:
    """Wait on the loop of a future."""
    return await started
