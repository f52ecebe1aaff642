"""
Attackers in a process of their own, so that a test that measures beside them does not wait for their threads.

`python -m tests.security.attack ADDRESS FLOOD=TOKEN …` writes `sending`, sends all floods at the same time, writes `sent`, and keeps its
connections open until it is killed.
"""

import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.security.floods import FLOODS, Attacker, Flood
from tests.support.processes import Process

WITHIN_S = 60
MODULE = "tests.security.attack"


class Attack:
    """The process with the attackers."""

    def __init__(self, address: str, floods: Sequence[tuple[Flood, str]], log: Path) -> None:
        names = [f"{flood.__name__}={token}" for flood, token in floods]
        self._process = Process.start("attackers", [sys.executable, "-m", MODULE, address, *names], log=log)

    def wait_until(self, written: str) -> None:
        """Wait until it has written this line."""
        log = self._process.log
        self._process.wait_until(lambda: written in log.read_text().splitlines(), within_s=WITHIN_S)

    def end(self) -> None:
        """End it, and with it all its connections."""
        self._process.kill()


def send_all(address: str, floods: Sequence[tuple[Flood, str]]) -> None:
    """Send floods at the same time, each with its token; their connections stay open."""
    with ExitStack() as until_ended, ThreadPoolExecutor(len(floods)) as threads:
        attackers = [until_ended.enter_context(Attacker(address, token)) for _, token in floods]
        print("sending", flush=True)  # noqa: T201
        sending = [
            threads.submit(attacker.send, flood)
            for attacker, (flood, _) in zip(attackers, floods, strict=True)
        ]
        for each in sending:
            each.result()
        print("sent", flush=True)  # noqa: T201
        signal.pause()


if __name__ == "__main__":
    by_name = {flood.__name__: flood for flood in FLOODS}
    pairs = [given.split("=", 1) for given in sys.argv[2:]]
    send_all(sys.argv[1], [(by_name[name], token) for name, token in pairs])
