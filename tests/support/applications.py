"""Serves an application of aiohttp to a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Handler

HOST = "127.0.0.1"
# For requests that are being answered at the end: watches have no end of their own.
CLEANUP_S = 0.2
# Turns of the loop until it has begun to accept every connection that was made before.
TURNS = 2
# The coroutine in which asyncio accepts a connection.
ACCEPTING = "_accept_connection2"


@asynccontextmanager
async def serving(handle: Handler, *others: web.RouteDef, body_max: int = 1024**2) -> AsyncIterator[str]:
    """Serve on a free port within the block: `handle` answers what the other routes do not; yields the URL."""
    application = web.Application(client_max_size=body_max)
    application.add_routes([*others, web.route("*", "/{path:.*}", handle)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLEANUP_S)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    try:
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await _accept_all()
        await runner.cleanup()


async def _accept_all() -> None:
    """
    Return when all connections that were made are accepted.

    asyncio loses one that it accepts while the server closes: its socket stays open until it is collected, in whichever test runs then.
    """
    for _ in range(TURNS):
        await asyncio.sleep(0)
    accepting = [each for each in asyncio.all_tasks() if each.get_coro().__name__ == ACCEPTING]  # type: ignore[union-attr]
    await asyncio.gather(*accepting, return_exceptions=True)
