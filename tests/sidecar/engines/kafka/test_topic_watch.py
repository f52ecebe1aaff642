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
        """Do nothing: the fake has no connection."""


class Scene:
    """A watch, what it told, and its broker."""

    def __init__(self) -> None:
        self.errors: list[tuple[Partition, FetchError]] = []
        self.watch = TopicWatch(
            KafkaSettings(("127.0.0.1:9092",)),
            lambda partition, fetch_error: self.errors.append((partition, fetch_error)),
        )
        broker = self.watch._topics
        assert isinstance(broker, Broker)
        self._broker = broker

    async def answer(
        self, topics: Mapping[str, Topic], *, before: Callable[[], None] = lambda: None
    ) -> list[str]:
        """Answer the next request after `before`; return the names that it asks for."""
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


def test_a_recreated_topic_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        assert await scene.answer({"orders": THERE}) == ["orders"]
        scene.watch.suspect()
        await scene.answer({"orders": ANEW})
        assert scene.errors == [(HERE, FetchError.OTHER_TOPIC)]

    play(monkeypatch, story)


def test_a_suspected_topic_that_does_not_exist_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({"orders": THERE})
        scene.watch.suspect()
        await scene.answer({})
        assert scene.errors == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)


def test_a_check_says_nothing_about_topics_that_it_did_not_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        other = Partition("payments", 0)
        scene.watch.watch(other)

        def meanwhile() -> None:
            scene.watch.watch(HERE)
            scene.watch.suspect()

        assert await scene.answer({"payments": THERE}, before=meanwhile) == ["payments"]
        assert scene.errors == []
        # But the next one does, and it is about that doubt.
        assert await scene.answer({"payments": THERE}) == ["orders", "payments"]
        assert scene.errors == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)


def test_a_suspicion_during_a_check_is_for_the_next_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({}, before=scene.watch.suspect)
        assert scene.errors == []
        await scene.answer({"orders": THERE})
        assert scene.errors == []

    play(monkeypatch, story)


def test_a_suspicion_stays_when_the_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({"orders": THERE})
        scene.watch.suspect()
        await scene.fail()
        checking = asyncio.ensure_future(scene.watch.check())
        await scene.answer({})
        await checking
        assert scene.errors == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)


def test_a_topic_missing_in_two_checks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: Scene) -> None:
        scene.watch.watch(HERE)
        await scene.answer({})
        assert scene.errors == []
        checking = asyncio.ensure_future(scene.watch.check())
        await scene.answer({})
        await checking
        assert scene.errors == [(HERE, FetchError.UNKNOWN_TOPIC)]

    play(monkeypatch, story)
