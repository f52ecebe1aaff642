"""A dead-letter topic that is missing is said at the start, once, and looked for until it is there."""

import asyncio
from collections.abc import Collection, Mapping

import pytest
from typing_extensions import override

from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.delivery import dead_letter_topic
from rota_sidecar.delivery.dead_letter_topic import DeadLetterTopic
from rota_sidecar.engines.port import Refused, Topics, Unreachable

TOPIC = "orders.dlq"
Answer = Mapping[str, Topic] | Exception


class Scripted(Topics):
    """Gives one answer after the other; the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.was_asked_often = asyncio.Event()

    @override
    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        assert names == [TOPIC]
        self.asked += 1
        if self.asked == len(self._answers) + 3:
            self.was_asked_often.set()
        answer = self._answers[min(self.asked, len(self._answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @override
    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_topic, "LOOK_S", 0.001)


async def warnings(topics: Scripted) -> list[str]:
    """All that was said until the topic was asked for a few times more than there are answers."""
    warned: list[str] = []
    running = asyncio.ensure_future(DeadLetterTopic(topics, lambda: TOPIC, warned.append).run())
    async with asyncio.timeout(10):
        await topics.was_asked_often.wait()
    running.cancel()
    await asyncio.wait([running])
    return warned


def test_a_missing_topic_is_said_once_and_names_the_remedy() -> None:
    async def story() -> None:
        (said,) = await warnings(Scripted({}))
        assert said.startswith(f"dead-letter topic {TOPIC} does not exist: create it")

    asyncio.run(story())


def test_a_server_that_is_away_says_nothing_of_the_topic() -> None:
    async def story() -> None:
        assert len(await warnings(Scripted(Unreachable("nobody listens"), {}))) == 1

    asyncio.run(story())


def test_a_topic_that_is_not_for_this_client_is_said() -> None:
    async def story() -> None:
        (said,) = await warnings(Scripted(Refused("grant it to this client")))
        assert said.endswith("cannot be described: grant it to this client")

    asyncio.run(story())


def test_a_topic_that_is_there_is_not_asked_for_again_until_another_one_is_set() -> None:
    async def story() -> None:
        topics = Scripted({TOPIC: Topic(1)})
        looks, names = asyncio.Event(), [TOPIC, TOPIC, TOPIC, TOPIC]

        def wanted() -> str:
            if not names:
                looks.set()
                return TOPIC
            return names.pop()

        running = asyncio.ensure_future(DeadLetterTopic(topics, wanted, pytest.fail).run())
        async with asyncio.timeout(10):
            await looks.wait()
        running.cancel()
        await asyncio.wait([running])
        assert topics.asked == 1

    asyncio.run(story())


def test_without_a_dead_letter_topic_nothing_is_asked() -> None:
    async def story() -> None:
        topics = Scripted()
        looked = asyncio.Event()

        def wanted() -> str:
            looked.set()
            return ""

        running = asyncio.ensure_future(DeadLetterTopic(topics, wanted, pytest.fail).run())
        async with asyncio.timeout(10):
            await looked.wait()
        running.cancel()
        await asyncio.wait([running])
        assert topics.asked == 0

    asyncio.run(story())
