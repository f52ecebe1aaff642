"""
Listens for the application over gRPC and in frames, for probes and metrics over HTTP, and for drain requests on a unix socket.

Opened and closed by `process.sidecar`. With HTTP delivery no application attaches, so gRPC is not served.
"""

from typing import TYPE_CHECKING

from rota_service.event_log import EventLog
from rota_service.http_server import HttpServer, Paths
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.engines.batch_slicing import BatchSlicer

if TYPE_CHECKING:
    import grpc.aio

    from rota_sidecar.application.frames import FramesServer
    from rota_sidecar.application.service import Samples

# For calls that are in progress when the sidecar ends.
GRACE_S = 1


class Listeners:
    """The listeners of one sidecar. Invariant: none is open before `open`, and after `close`."""

    def __init__(self, config: SidecarConfig, driver: DeliveryDriver, event_log: EventLog) -> None:
        self._config = config
        self._driver = driver
        self._event_log = event_log
        self._server: grpc.aio.Server | None = None
        self._frames: FramesServer | None = None
        self._page: HttpServer | None = None
        self._drains: HttpServer | None = None

    async def open(self, paths: Paths, drain: Paths, slicer: BatchSlicer, samples: "Samples") -> None:
        """
        Open the configured listeners; `drain` is served on the drain socket alone, `samples` returns the values of the metrics.
        Raises BindError.
        """
        listeners = self._config.listeners
        if listeners.drain_socket is not None:
            self._drains = HttpServer(drain, "--drain-socket", checks_host=True)
            await self._drains.start_on_socket(listeners.drain_socket)
        if listeners.http:
            self._page = HttpServer(paths, "--http-listen", checks_host=True)
            address = await self._page.start(listeners.http)
            self._event_log.info("http", f"http on {address}")
        if not self._config.http_delivery.url and (listeners.application or listeners.application_socket):
            await self._open_to_application(slicer, samples)

    async def close(self) -> None:
        """Close all listeners; calls in progress end within GRACE_S."""
        if self._server is not None:
            await self._server.stop(GRACE_S)
        if self._frames is not None:
            self._frames.stop()
        for page in (self._page, self._drains):
            if page is not None:
                await page.stop()

    async def _open_to_application(self, slicer: BatchSlicer, samples: "Samples") -> None:
        from rota_sidecar.application import listening
        from rota_sidecar.application.frames import FramesServer
        from rota_sidecar.application.service import ConsumerService, make_server

        listeners = self._config.listeners
        path, mode = listeners.application_socket, listeners.application_socket_mode
        beside = None if path is None else listening.frames_path(path)
        name = "" if beside is None else beside.name
        service = ConsumerService(self._driver, slicer, self._event_log.info, samples, name)
        server = make_server(service)
        addresses: list[str] = []
        if listeners.application:
            insecure = self._config.security.is_insecure
            addresses.append(listening.bind_port(server, listeners.application, insecure=insecure))
        if path is not None:
            addresses.append(listening.bind_socket(server, path, mode))
        if beside is not None:
            self._frames = FramesServer(service.attached)
            await self._frames.start(beside, mode)
        await server.start()
        self._server = server
        for address in addresses:
            self._event_log.info("listening", f"listening on {address}")
