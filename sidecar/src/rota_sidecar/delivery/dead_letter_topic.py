"""
Checks that the dead-letter topic exists, when the sidecar starts: at the first dead letter it would be too late.

Run by `process.sidecar`. Polls until the topic exists; later problems are reported when a dead letter cannot be written.
"""

import asyncio
from collections.abc import Callable

from rota_sidecar.engines.port import Refused, Topics, Unreachable
from rota_sidecar.membership.driver import wait_until_set

LOOK_S = 2.0
TIMEOUT_S = 5.0


class DeadLetterTopic:
    """
    Check of one sidecar; create and use it on a running loop.

    Invariant: a problem is passed to `warn` once for as long as it lasts.
    """

    def __init__(self, topics: Topics, wanted: Callable[[], str], warn: Callable[[str], None]) -> None:
        self._topics = topics
        # Returns the topic's name by the present settings; empty: none.
        self._wanted = wanted
        self._warn = warn
        self._found = ""
        # Present problem; empty: none is known.
        self.problem = ""

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            topic = self._wanted()
            if topic != self._found:
                await self._look(topic)
            await wait_until_set(asyncio.Event(), LOOK_S)

    async def _look(self, topic: str) -> None:
        problem = ""
        try:
            if topic and topic not in await self._topics.describe([topic], TIMEOUT_S):
                problem = (
                    f"dead-letter topic {topic} does not exist: create it, or configure another one; a record that fails "
                    "permanently stops its partition until its dead letter is written"
                )
        except Refused as refused:
            problem = f"dead-letter topic {topic} cannot be described: {refused}"
        except Unreachable:
            # Other calls of the same backend report the outage.
            return
        if problem:
            self._report(problem)
        else:
            self._found, self.problem = topic, ""

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._warn(problem)
