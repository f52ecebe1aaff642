"""A look at the topics says something about those that it asked for, and answers the doubts that were there before it."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping

import pytest

from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.delivery.events import FetchError
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka import topic_watch
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topic_watch import TopicWatch
from rota_sidecar.engines.port import Unreachable

HERE = Partition("orders", 0)
THERE = Topic(2, (), b"first")
ANEW = Topic(2, (), b"second")


class Broker:
    """Answers when the test says so."""

    def __init__(self, _settings: KafkaSettings) -> None:
        self.asked: asyncio.Queue[tuple[Collection[str], asyncio.Future[Mapping[str, Topic]]]] = (
            asyncio.Queue()
        )

    async def describe(self, names: Collection[str], _within_s: float) -> Mapping[str, Topic]:
        answer: asyncio.Future[Mapping[str, Topic]] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((names, answer))
        return await answer

    async def close(self) -> None:
        """It has no connection."""


class Scene:
    """A watch, what it told, and its broker."""

    def __init__(self) -> None:
        self.told: list[tuple[Partition, FetchError]] = []
        self.watch = TopicWatch(
            KafkaSettings(("127.0.0.1:9092",)),
            lambda partition, fetch_error: self.told.append((partition, fetch_error)),
        )
        broker = self.watch._topics
        assert isinstance(broker, Broker)
        self._broker = broker

    async def answer(
        self, topics: Mapping[str, Topic], *, before: Callable[[], None] = lambda: None
    ) -> list[str]:
        """What is asked for next, answered after `before`; the names."""
        names, answer = await asyncio.wait_for(self._broker.asked.get(), 5)
        before()
        answer.set_result(topics)
        # Whoever asked goes on.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return list(names)

    async def fail(self) -> None:
        _, answer = await asyncio.wait_for(self._broker.asked.get(), 5)
        answer.set_exception(Unreachable("nobody is there"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def play(monkeypatch: pytest.MonkeyPatch, story: Callable[[Scene], Coroutine[None, None, None]]) -> None:
    monkeypatch.setattr(topic_watch, "KafkaTopics", Broker)

    async def run() -> None:
        scene = Scene()
        try:
            await story(scene)
        finally:
            await scene.watch.close()

    asyncio.run(run())


def test_a_topic_that_is_another_one_now_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        assert await scene.answer({"orders": THERE}) == ["orders"]
        scene.watch.doubt()
        await scene.answer({"orders": ANEW})
        assert scene.told == [(HERE, FetchError.OTHER_TOPIC)]

    play(monkeypatch, story)


def test_a_doubted_topic_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({"orders": THERE})
        scene.watch.doubt()
        await scene.answer({})
        assert scene.told == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)


def test_a_look_says_nothing_of_what_it_did_not_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        other = Partition("payments", 0)
        scene.watch.watch(other)

        def meanwhile() -> None:
            scene.watch.watch(HERE)
            scene.watch.doubt()

        assert await scene.answer({"payments": THERE}, before=meanwhile) == ["payments"]
        assert scene.told == []
        # But the next one does, and it is about that doubt.
        assert await scene.answer({"payments": THERE}) == ["orders", "payments"]
        assert scene.told == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)


def test_a_doubt_that_comes_while_it_is_asked_is_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({}, before=scene.watch.doubt)
        assert scene.told == []
        await scene.answer({"orders": THERE})
        assert scene.told == []

    play(monkeypatch, story)


def test_a_doubt_that_nobody_answers_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({"orders": THERE})
        scene.watch.doubt()
        await scene.fail()
        looking = asyncio.ensure_future(scene.watch.look())
        await scene.answer({})
        await looking
        assert scene.told == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)


def test_what_one_look_misses_is_told_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({})
        assert scene.told == []
        looking = asyncio.ensure_future(scene.watch.look())
        await scene.answer({})
        await looking
        assert scene.told == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)
