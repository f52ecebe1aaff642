"""
Where others come in: the application over gRPC, or records out to it by HTTP; probes and metrics; who asks for a drain.

Opened and closed by `serving`.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rota_service.event_log import EventLog
from rota_service.http_server import HttpServer, Paths
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.engines.batch_slicing import BatchSlicer

if TYPE_CHECKING:
    import grpc.aio

# For calls that are under way when the sidecar ends.
GRACE_S = 1


class Doors:
    """Closed to begin with."""

    def __init__(self, options: argparse.Namespace, driver: DeliveryDriver, event_log: EventLog) -> None:
        self._options = options
        self._driver = driver
        self._event_log = event_log
        self._server: grpc.aio.Server | None = None
        self._page: HttpServer | None = None
        self._drains: HttpServer | None = None

    async def open(self, paths: Paths, drain: Paths, slicer: BatchSlicer) -> None:
        """All that are asked for; `drain` is served on the drain socket alone. Raises BindError."""
        options = self._options
        if options.drain_socket:
            self._drains = HttpServer(drain, "--drain-socket", checks_host=True)
            await self._drains.start_on_socket(Path(options.drain_socket))
        if options.http_listen:
            self._page = HttpServer(paths, "--http-listen", checks_host=True)
            address = await self._page.start(options.http_listen)
            self._event_log.info("http", f"http on {address}")
        if not options.delivery_url and (options.listen or options.listen_socket):
            await self._open_to_application(slicer)

    async def close(self) -> None:
        """Whoever is inside is told."""
        if self._server is not None:
            await self._server.stop(GRACE_S)
        for page in (self._page, self._drains):
            if page is not None:
                await page.stop()

    async def _open_to_application(self, slicer: BatchSlicer) -> None:
        from rota_sidecar.application import listening
        from rota_sidecar.application.service import ConsumerService, make_server

        options = self._options
        server = make_server(ConsumerService(self._driver, slicer, self._event_log.info))
        addresses: list[str] = []
        if options.listen:
            insecure = options.insecure
            addresses.append(listening.bind_port(server, options.listen, insecure=insecure))
        if options.listen_socket:
            addresses.append(listening.bind_socket(server, Path(options.listen_socket)))
        await server.start()
        self._server = server
        for address in addresses:
            self._event_log.info("listening", f"listening on {address}")
