"""The verdict for an HTTP answer, or for none; on real sockets."""

import asyncio

import pytest

from rota_sidecar.core.ledger.rules import Verdict
from tests.sidecar.application.endpoint import Posted, answer, listening
from tests.sidecar.application.fakes import FakeDeliveries, batch, batch_slice, damaged, handed
from tests.sidecar.application.posting import STORY_S, Scene, delivery, one, play

pytestmark = pytest.mark.process


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_is_ack(status: int) -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers.append(answer(f"{status} Fine"))
        playing.hand(one())
        assert (await playing.verdict()).verdict is Verdict.ACK

    play(story)


@pytest.mark.parametrize(
    "status", [408, 409, 429, 404, 500, 502, 503, 504, 301, 302, 304, 401, 403, 405, 410]
)
def test_what_may_be_mended_is_retry(status: int) -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers.append(answer(f"{status} Hm", Location="/elsewhere"))
        playing.hand(one())
        verdict = await playing.verdict()
        assert (verdict.verdict, verdict.retry_after_ms, verdict.reason) == (
            Verdict.RETRY,
            None,
            f"{status} Hm",
        )

    play(story)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_an_error_of_the_record_is_a_dead_letter_with_the_answers_text(status: int) -> None:
    async def story(playing: Scene) -> None:
        body = b"no such\r\n\tcustomer\x00 \xff" + b"x" * 1_000
        playing.endpoint.answers.append(answer(f"{status} Bad", body))
        playing.hand(one())
        verdict = await playing.verdict()
        assert verdict.verdict is Verdict.DEAD_LETTER
        assert verdict.reason.startswith(f"{status} Bad: no such customer \ufffdxxx")
        assert len(verdict.reason) == len(f"{status} Bad: ") + 200

    play(story)


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"Retry_After": "3"}, 3_000),
        ({"Retry_After": "999999999999"}, 3_600_000),
        ({"Retry_After": "soon"}, None),
        (
            {"Retry_After": "Wed, 21 Oct 2015 07:28:05 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"},
            5_000,
        ),
        ({"Retry_After": "Wed, 21 Oct 2015 07:28:05 GMT"}, None),
    ],
)
def test_retry_after_is_obeyed_as_far_as_it_can_be_understood(
    headers: dict[str, str], wait_ms: int | None
) -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers.append(answer("503 Busy", b"", **headers))
        playing.hand(one())
        assert (await playing.verdict()).retry_after_ms == wait_ms

    play(story)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade, close\r\n\r\n",
    ],
    ids=["nothing", "another protocol", "half an answer", "endless headers", "another protocol from here"],
)
def test_what_is_no_answer_is_retry(data: bytes) -> None:
    async def story(playing: Scene) -> None:
        # On a connection that was kept nothing at all is no answer yet: it is tried on another one.
        playing.endpoint.answers += [data, data]
        playing.hand(one())
        verdict = await playing.verdict()
        assert verdict.verdict is Verdict.RETRY
        assert verdict.reason

    play(story, timeout_s=1)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\nhm",
        b"HTTP/1.1 422 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\nm\r\n0\r\n\r\n",
        b"HTTP/1.0 422 No\r\nConnection: close\r\n\r\nhm",
    ],
    ids=["announced", "in chunks", "until the end"],
)
def test_an_answer_may_come_in_every_way_that_http_knows(data: bytes) -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers.append(data)
        playing.hand(one())
        verdict = await playing.verdict()
        assert (verdict.verdict, verdict.reason) == (Verdict.DEAD_LETTER, "422 No: hm")

    play(story)


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async def story(playing: Scene) -> None:
        playing.endpoint.answers.append(answer("200 OK", b"x" * 5_000_000))
        playing.hand(one())
        assert (await playing.verdict()).verdict is Verdict.ACK

    play(story)


def test_an_answer_that_takes_too_long_is_retry() -> None:
    async def never(posted: Posted) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def story(playing: Scene) -> None:
        playing.endpoint.answering = never
        playing.hand(one())
        verdict = await playing.verdict()
        assert (verdict.verdict, verdict.reason) == (Verdict.RETRY, "no answer within 0.1 s")

    play(story, timeout_s=0.1)


def test_an_application_that_restarts_within_the_time_of_a_call_costs_no_retry() -> None:
    async def run() -> None:
        deliveries = FakeDeliveries()
        async with asyncio.timeout(STORY_S):
            async with listening() as first:
                running = asyncio.create_task(delivery(deliveries, first.url, []).run())
                await deliveries.until(lambda: deliveries.events)
            deliveries.there.deliver([one()])
            async with listening(port=first.port) as second:
                await second.until(1)
                await deliveries.until(lambda: deliveries.judgements)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [each.verdict for each in deliveries.judgements] == [Verdict.ACK]

    asyncio.run(run())


def test_an_application_that_stays_away_is_retry() -> None:
    async def run() -> None:
        deliveries = FakeDeliveries()
        async with asyncio.timeout(STORY_S):
            async with listening() as gone:
                running = asyncio.create_task(delivery(deliveries, gone.url, [], timeout_s=0.1).run())
                await deliveries.until(lambda: deliveries.events)
            deliveries.there.deliver([one()])
            await deliveries.until(lambda: deliveries.judgements)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [each.verdict for each in deliveries.judgements] == [Verdict.RETRY]

    asyncio.run(run())


def test_records_that_cannot_be_posted_are_dead_letters() -> None:
    async def story(playing: Scene) -> None:
        playing.hand(handed(batch_slice(damaged(1, 1))))
        assert (await playing.verdict()).verdict is Verdict.DEAD_LETTER
        playing.hand(handed(batch_slice(batch(2, [b"v"], keys=[b"k" * 40_000]))))
        verdict = await playing.verdict(2)
        assert verdict.verdict is Verdict.DEAD_LETTER
        assert "an HTTP request has at most 32768" in verdict.reason
        assert playing.endpoint.posted == []

    play(story)
