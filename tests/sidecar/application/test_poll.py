"""Poll: records for applications without streams."""

from pathlib import Path

import pytest

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from tests.sidecar.application.fakes import batch, batch_slice, handed
from tests.sidecar.application.talking import Code, Talk, goodbye, play, refused, values

pytestmark = pytest.mark.process


def poll(max_records: int, max_wait_ms: int = 0) -> pb.PollRequest:
    return pb.PollRequest(session=1, max_records=max_records, max_wait_ms=max_wait_ms)


def test_a_poll_brings_records_as_soon_as_there_are_any(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        call = talk.stub.Poll(poll(10, 20_000))
        await talk.deliveries.until(lambda: talk.deliveries.credit == 10)
        talk.deliveries.there.deliver([handed(batch_slice(batch(3, [b"a", b"b"])))])
        assert values((await call).partitions) == [(3, b"a"), (4, b"b")]

    play(tmp_path, story)


def test_a_poll_that_finds_nothing_is_empty(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        assert await talk.stub.Poll(poll(10, 5)) == pb.PollResponse()

    play(tmp_path, story)


def test_polls_do_not_add_up_credit_that_was_not_used(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        await talk.stub.Poll(poll(10))
        await talk.stub.Poll(poll(10))
        assert talk.deliveries.credit == 10
        await talk.stub.Poll(poll(12))
        assert talk.deliveries.credit == 12

    play(tmp_path, story)


def test_a_poll_brings_no_more_than_it_asks_for_and_the_next_one_the_rest(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        await talk.stub.Poll(poll(10))
        talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a", b"b", b"c", b"d", b"e"])))])
        assert values((await talk.stub.Poll(poll(2))).partitions) == [(0, b"a"), (1, b"b")]
        assert values((await talk.stub.Poll(poll(9))).partitions) == [(2, b"c"), (3, b"d"), (4, b"e")]

    play(tmp_path, story)


def test_one_poll_waits_at_a_time(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        first = talk.stub.Poll(poll(1, 20_000))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        code, details = await refused(talk.stub.Poll(poll(1)))
        assert code is Code.FAILED_PRECONDITION
        assert details.startswith("a Poll consumes the records of this attachment already")
        first.cancel()

    play(tmp_path, story)


def test_a_poll_ends_with_its_attachment(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        call = talk.stub.Poll(poll(1, 20_000))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        await stream.write(goodbye())
        assert await refused(call) == (Code.ABORTED, "the application said goodbye")

    play(tmp_path, story)
