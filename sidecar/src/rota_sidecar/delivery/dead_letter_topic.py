"""
Check that the dead-letter topic exists, from the start of the sidecar on: the first dead letter would be too late.

Run by `serving`. Looks until the topic is there; what happens to it afterwards is said when a dead letter cannot be written.
"""

import asyncio
from collections.abc import Callable

from rota_sidecar.engines.port import Refused, Topics, Unreachable
from rota_sidecar.membership.driver import wait_until_set

LOOK_S = 2.0
TIMEOUT_S = 5.0


class DeadLetterTopic:
    """
    The check of one sidecar; to be made and used on a running loop.

    Invariant: a problem is passed to `warn` once as long as it lasts.
    """

    def __init__(self, topics: Topics, wanted: Callable[[], str], warn: Callable[[str], None]) -> None:
        self._topics = topics
        # The topic's name by the settings of now; empty = none.
        self._wanted = wanted
        self._warn = warn
        self._found = ""
        # What is wrong with it now; empty = nothing is known to be wrong.
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
                    f"dead-letter topic {topic} does not exist: create it, or name another one; a record that fails for "
                    "good stops its partition until its dead letter is written"
                )
        except Refused as refused:
            problem = f"dead-letter topic {topic} cannot be looked at: {refused}"
        except Unreachable:
            # Said by whoever needs the server now.
            return
        if problem:
            self._complain(problem)
        else:
            self._found, self.problem = topic, ""

    def _complain(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._warn(problem)
