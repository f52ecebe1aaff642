"""A server on loopback that answers as the test says, and an `Api` that talks to it: for answers a real API server gives rarely."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from rota_operator.cluster.api import Api
from tests.support import applications

WITHIN_S = 60


class Sent(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    body: Any


class Answer(NamedTuple):
    """Response of the server; bytes are sent unchanged."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = {}


def written(sent: Sent, resource_version: str = "8") -> Answer:
    """The answer to an apply: the object."""
    metadata = {**sent.body.get("metadata", {}), "resourceVersion": resource_version}
    return Answer(body={**sent.body, "metadata": metadata})


class ApiServer:
    """Answers each request by `answer`, and keeps what was sent."""

    def __init__(self, answer: Callable[[Sent], Answer]) -> None:
        self.sent: list[Sent] = []
        self._answer = answer

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        sent = Sent(
            request.method, request.path, dict(request.query), request.content_type,
            json.loads(text) if text else None,
        )  # fmt: skip
        self.sent.append(sent)
        status, body, headers = self._answer(sent)
        payload = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return web.Response(
            status=status, body=payload, content_type="application/json", headers=dict(headers)
        )


@asynccontextmanager
async def serving(server: ApiServer) -> AsyncIterator[Api]:
    """Serve on a free port."""
    async with applications.serving(server.handle) as address:
        api = api_at(address)
        try:
            yield api
        finally:
            await api.close()


def api_at(address: str) -> Api:
    configuration = Configuration()
    configuration.host = address
    return Api(ApiClient(configuration))


def run(server: ApiServer, story: Callable[[Api], Awaitable[None]]) -> None:
    """Run a story against the server."""

    async def bounded() -> None:
        async with asyncio.timeout(WITHIN_S), serving(server) as api:
            await story(api)

    asyncio.run(bounded())


def status(code: int, reason: str, message: str, **details: object) -> Answer:
    """A Status object, as the API server refuses with."""
    said = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    return Answer(code, {**said, **({"details": details} if details else {})})
