"""Streams of Deliver: who may open one, and what their ends mean."""

import grpc
import grpc.aio
import pytest

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from tests.sidecar.application.fakes import batch, batch_slice, handed
from tests.sidecar.application.talking import (
    Code,
    DeliverStream,
    Play,
    Talk,
    credit,
    ended,
    goodbye,
    judged,
    judgement,
    refused,
    values,
)

pytestmark = pytest.mark.process
LIMIT = 4 << 20


async def message_of(stream: DeliverStream) -> pb.DeliverResponse:
    response = await stream.read()
    assert isinstance(response, pb.DeliverResponse)
    return response


def test_deliver_needs_an_attachment_of_that_session(play: Play) -> None:
    async def story(talk: Talk) -> None:
        details = "no application is attached with session {}; open Attach first"
        assert await ended(await talk.deliver()) == (Code.FAILED_PRECONDITION, details.format(1))
        await talk.attach()
        assert await ended(await talk.deliver(2)) == (Code.FAILED_PRECONDITION, details.format(2))

    play(story)


def test_who_reads_by_itself_gets_no_records(play: Play) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach(reads_itself=True)
        code, details = await ended(await talk.deliver())
        assert code is Code.FAILED_PRECONDITION
        assert "attach without reads_itself" in details
        code, _ = await refused(talk.stub.Poll(pb.PollRequest(session=1, max_records=1)))
        assert code is Code.FAILED_PRECONDITION
        await stream.write(goodbye())
        assert await stream.read() is grpc.aio.EOF

    play(story)


def test_one_deliver_stream_takes_the_records_at_a_time(play: Play) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        first = await talk.deliver()
        await first.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        code, details = await ended(await talk.deliver())
        assert code is Code.FAILED_PRECONDITION
        assert details.startswith("a Deliver stream consumes the records of this attachment already")
        code, _ = await refused(talk.stub.Poll(pb.PollRequest(session=1, max_records=1)))
        assert code is Code.FAILED_PRECONDITION
        talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a"])))])
        assert values((await message_of(first)).partitions) == [(0, b"a")]
        await stream.write(goodbye())
        assert await first.read() is grpc.aio.EOF

    play(story)


def test_a_deliver_stream_that_breaks_is_the_end_of_the_application(play: Play) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        records = await talk.deliver()
        await records.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        records.cancel()
        assert await ended(stream) == (
            Code.ABORTED,
            "the Deliver stream of this attachment ended (it was lost); attach again",
        )
        assert talk.deliveries.detached == [(1, False)]

    play(story)


def test_losing_attach_ends_deliver_too(play: Play) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        records = await talk.deliver()
        await records.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        stream.cancel()
        code, details = await ended(records)
        assert code is Code.ABORTED
        assert details == "the Attach stream of this session ended; attach again"

    play(story)


def test_after_an_orderly_close_another_stream_goes_on_where_the_first_one_ended(play: Play) -> None:
    async def story(talk: Talk) -> None:
        await talk.attach()
        first = await talk.deliver()
        await first.write(credit(5))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a"])))])
        assert values((await message_of(first)).partitions) == [(0, b"a")]
        await first.write(judged(judgement(0)))
        await first.done_writing()
        assert await message_of(first) == pb.DeliverResponse()
        assert await first.read() is grpc.aio.EOF
        assert [each.first for each in talk.deliveries.judgements] == [0]
        talk.deliveries.there.deliver([handed(batch_slice(batch(1, [b"b"])))])
        assert values((await message_of(await talk.deliver())).partitions) == [(1, b"b")]
        assert talk.deliveries.detached == []

    play(story)
