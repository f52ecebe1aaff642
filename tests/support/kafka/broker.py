"""
One Kafka broker (and controller: every node is both) as a child process.

`running` in `brokers.py` makes these; tests of crashes kill, stop and start them.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.support.java import java
from tests.support.kafka import wire
from tests.support.kafka.jars import fetched
from tests.support.kafka.layout import Layout
from tests.support.kafka.storage import lay_out
from tests.support.processes import Process, current_owner

LOGGING = Path(__file__).with_name("log4j2.properties")
OPTIONS = (
    "-XX:+UseSerialGC",
    # It lives for a test: what the thorough compiler costs at the start would never come back.
    "-XX:TieredStopAtLevel=1",
    "-Xms256m",
    "-Xmx256m",
    f"-Dlog4j2.configurationFile={LOGGING}",
)
READY_S = 60


class Broker:
    """One node."""

    def __init__(self, number: int, layout: Layout, java_option: str) -> None:
        self.number = number
        self.address = layout.address(number)
        self.address_of_brokers = layout.address_of_brokers(number)
        self.address_for_pods = layout.address_for_pods(number)
        self._layout = layout
        self._java_option = java_option
        self._properties = layout.folder / f"node-{number}.properties"
        self._properties.write_text(layout.properties(number))
        lay_out(layout, number)
        self._server: Process | None = None
        self._owner = current_owner()

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> Path:
        """Its log, over all its starts."""
        return self._layout.logs / f"node-{self.number}.log"

    @property
    def data(self) -> Path:
        """Its data: a folder for each partition."""
        return self._layout.data(self.number)

    def begin_start(self) -> None:
        """Start it on the data it has; returns at once, for a cluster's nodes become ready together or not at all."""
        options = (
            *OPTIONS,
            *self._layout.security.java_options(),
            self._java_option,
            "-cp",
            f"{fetched()}/*",
        )
        command: list[str | Path]
        command = [*self._layout.namespace.enter, java().program, *options, "kafka.Kafka", self._properties]
        self._server = Process.start(self._name, command, log=self.log, owner=self._owner)

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
        """End it at once, as a crash would; the others notice when its session has expired: have it `MORTAL`."""
        self._running().kill()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP freezes it, SIGCONT wakes it."""
        os.killpg(self.pid, number)

    def stop(self, *, within_s: float = 15) -> None:
        """End it in good order: the leadership of its partitions moves to other nodes first."""
        self._running().stop(within_s=within_s)

    def end(self) -> None:
        """End whatever of it runs; it need not have been started."""
        if self._server is not None:
            self._server.kill()

    @property
    def _name(self) -> str:
        return f"Kafka node {self.number}"

    def _running(self) -> Process:
        if self._server is None:
            raise RuntimeError(f"{self._name} was never started: call start first")
        return self._server
