"""
One Kafka broker (and controller: every node is both) as a child process.

`running` in `brokers.py` makes these; tests of crashes kill, stop and start them.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.support.java import java
from tests.support.kafka import wire
from tests.support.kafka.jars import prepare
from tests.support.kafka.layout import Layout
from tests.support.processes import Process, ProcessFailed

# Part of every broker's metadata; any 16 bytes in URL-safe base 64 will do.
CLUSTER_ID = "Um90YS10ZXN0cy1LYWZrYQ"
LOGGING = Path(__file__).with_name("log4j2.properties")
# A second and a half of work: the slower compiler would only cost.
FORMAT_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BROKER_OPTIONS = ("-XX:+UseSerialGC", "-Xms256m", "-Xmx256m", f"-Dlog4j2.configurationFile={LOGGING}")
FORMAT_S = 60
READY_S = 60


class Broker:
    """One node. Each `begin_…` returns at once, so that the nodes of a cluster can do it side by side."""

    def __init__(self, number: int, layout: Layout) -> None:
        self.number = number
        self.address = layout.address(number)
        self.address_for_pods = layout.address_for_pods(number)
        self._layout = layout
        self._properties = layout.folder / f"node-{number}.properties"
        self._properties.write_text(layout.properties(number))
        self._format: Process | None = None
        self._server: Process | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> Path:
        """What it wrote, over all its starts."""
        return self._layout.logs / f"node-{self.number}.log"

    def begin_format(self) -> None:
        """Write the cluster's id and users into its empty folder: Kafka starts from no other."""
        self._format = self._java(
            FORMAT_OPTIONS, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._properties,
            *self._layout.security.format_arguments(),
        )  # fmt: skip

    def end_format(self) -> None:
        """Return when its folder is formatted."""
        if self._format is None:
            raise RuntimeError(f"{self._name} was not being formatted: call begin_format first")
        code = self._format.wait(within_s=FORMAT_S)
        if code != 0:
            raise ProcessFailed(f"formatting {self._name} ended with code {code}:\n{self._format.tail()}")

    def begin_start(self) -> None:
        """Start it on the data it has; a cluster's nodes become ready together or not at all."""
        self._server = self._java(BROKER_OPTIONS, "kafka.Kafka", self._properties)

    def end_start(self, beside: Sequence["Broker"] = ()) -> None:
        """Return when it answers a request of its protocol; those `beside` it are starting with it."""
        host, port = self.address.split(":")
        tls = self._layout.security.tls()
        self._running().wait_until(
            lambda: wire.answers(host, int(port), tls),
            within_s=READY_S,
            beside=[broker._running() for broker in beside],
        )

    def start(self) -> None:
        """Start it again; returns when it answers."""
        self.begin_start()
        self.end_start()

    def kill(self) -> None:
        """End it at once, as a crash would; the others notice after the session timeout of 2 s."""
        self._running().kill()

    def stop(self) -> None:
        """End it in good order: the leadership of its partitions moves to other nodes first."""
        self._running().stop()

    def end(self) -> None:
        """End whatever of it runs; it need not have been started."""
        for process in (self._format, self._server):
            if process is not None:
                process.kill()

    @property
    def _name(self) -> str:
        return f"Kafka node {self.number}"

    def _running(self) -> Process:
        if self._server is None:
            raise RuntimeError(f"{self._name} was never started: call start first")
        return self._server

    def _java(self, options: tuple[str, ...], main: str, *arguments: str | Path) -> Process:
        place = self._layout.place
        command = [*place.enter, java().program, *options, *("-cp", f"{prepare()}/*"), main, *arguments]
        return Process.start(self._name, command, log=self.log)
