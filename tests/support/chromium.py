"""
Headless Chromium, unpacked from Debian's package: what a page looks like, and does, in a real browser.

`prepare` is what `make test` calls before the tests, and what every start calls again. It is driven by its own protocol
(DevTools), over a web socket: no driver, and nothing in the page that is there for tests alone.
"""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.support import debian
from tests.support.processes import Process
from tests.support.workdir import logs

PROGRAM = "usr/lib/chromium/chromium-headless-shell"
# Where the package of one of its libraries keeps another one.
MORE_LIBRARIES = "usr/lib/x86_64-linux-gnu/pulseaudio"
LISTENING = re.compile(r"DevTools listening on ws://(127\.0\.0\.1:\d+)/")
READY_S = 30
ANSWER_S = 15
LOOK_AGAIN_S = 0.05
WIDTH, HEIGHT = 1280, 1600


class ScriptFailed(Exception):
    """Evaluation of a script failed; the message is the browser's own."""


def prepare() -> debian.Unpacked:
    """The program, and letters for it; fetched on the first call."""
    return debian.unpack("chromium", "chromium-headless-shell", "fonts-dejavu-core")


class Tab:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        # What the browser has complained about: scripts that fail, what a policy forbids, what cannot be loaded.
        self.errors: list[str] = []

    async def open(self, url: str) -> None:
        """Go there."""
        for domain in ("Log", "Runtime", "Page"):
            await self._ask(f"{domain}.enable")
        await self._ask("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:  # noqa: ANN401  whatever JSON has
        """Its value, in the page; of a promise what it is resolved with."""
        answer = await self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if (failed := answer.get("exceptionDetails")) is not None:
            raise ScriptFailed(json.dumps(failed))
        return answer["result"].get("value")

    async def until(self, expression: str, within_s: float) -> None:
        """Return as soon as it is true in the page."""
        try:
            async with asyncio.timeout(within_s):
                while not await self.evaluate(expression):
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"not after {within_s:g} s: {expression}; the page says:\n{text}") from None

    async def resize(self, width: int, height: int = HEIGHT) -> None:
        """Give the window this size in CSS pixels."""
        await self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def prefer_color_scheme(self, scheme: str) -> None:
        """Ask pages for `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self._ask("Emulation.setEmulatedMedia", features=features)

    async def processor_s(self) -> Mapping[str, float]:
        """Processor time of the page's thread since its start, as Chromium names it: tasks of all kinds, and parts of them."""
        await self._ask("Performance.enable", timeDomain="threadTicks")
        metrics = (await self._ask("Performance.getMetrics"))["metrics"]
        return {each["name"]: each["value"] for each in metrics if each["name"].endswith("Duration")}

    async def screenshot(self, file: Path) -> None:
        """As a PNG, for people."""
        answer = await self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    async def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401  as the protocol has them
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(ANSWER_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number:
                    if "error" in message:
                        raise ScriptFailed(json.dumps(message["error"]))
                    result: dict[str, Any] = message["result"]
                    return result
                self._on_event(message)

    def _on_event(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Log.entryAdded":
            self.errors.append(message["params"]["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(message["params"]["exceptionDetails"]))


@asynccontextmanager
async def browsing(folder: Path, url: str) -> AsyncIterator[Tab]:
    """A browser of one's own, with that page."""
    # Here, and not in another thread: with that it would end.
    process = _start(folder)
    try:
        found = LISTENING.search(process.log.read_text())
        assert found is not None, process.tail()
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://{found[1]}/json/new?about:blank") as made:
                address = (await made.json())["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                await tab.open(url)
                yield tab
    finally:
        process.kill()


def _start(folder: Path) -> Process:
    unpacked = prepare()
    environment = unpacked.environment()
    environment["LD_LIBRARY_PATH"] += f":{unpacked.root / MORE_LIBRARIES}"
    command: list[str | Path] = [
        unpacked.root / PROGRAM,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'browser'}",
        # It runs as root in containers, and shows our own page only.
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        # Shared memory is small in containers.
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        f"--window-size={WIDTH},{HEIGHT}",
    ]
    process = Process.start("chromium", command, log=logs(folder) / "chromium.log", env=environment)
    process.wait_until(lambda: LISTENING.search(process.log.read_text()) is not None, within_s=READY_S)
    return process
