"""The response to a call: when its callback is called."""

import asyncio
from collections.abc import Callable

import pytest

from rota_coordinator.runtime.calls import Answer
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

REPLY = pb.HeartbeatResponse()


def play(story: Callable[[], None]) -> None:
    """Run a story within one turn of an event loop."""

    async def body() -> None:
        story()

    asyncio.run(body())


@pytest.mark.parametrize("reply", [REPLY, None])
def test_a_callback_is_called_in_the_turn_of_the_response(reply: pb.HeartbeatResponse | None) -> None:
    def story() -> None:
        called: list[object] = []
        answer = Answer()
        answer.when_done(lambda done: called.append(done.result()))
        assert called == []
        answer.set_result(reply)
        assert called == [reply]

    play(story)


def test_a_callback_is_called_at_once_when_there_is_a_response() -> None:
    def story() -> None:
        called: list[object] = []
        answer = Answer()
        answer.set_result(REPLY)
        answer.when_done(called.append)
        assert called == [answer]

    play(story)


def test_a_callback_is_called_with_an_exception_too() -> None:
    def story() -> None:
        called: list[BaseException | None] = []
        answer = Answer()
        answer.when_done(lambda done: called.append(done.exception()))
        error = ValueError()
        answer.set_exception(error)
        assert called == [error]

    play(story)
