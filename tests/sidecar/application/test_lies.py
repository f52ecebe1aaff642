"""An application that says anything at all: every stream ends with a clear status, and the service lives on."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_service.event_log import is_worth_a_line
from rota_sidecar.application.service import CALLS_MAX
from rota_sidecar.core.delivery import events as on
from tests.sidecar.application.fakes import P0, batch, batch_slice, handed
from tests.sidecar.application.talking import SOCKET, AttachStream, Code, Play, Talk, at, judgement, play
from tests.support.coordinator import OWN_CONNECTION

pytestmark = pytest.mark.process

STREAMS = 60
FRAMES = 20
CLEAR = {Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.ABORTED, Code.RESOURCE_EXHAUSTED}
NUMBERS = (-(2**63), -1, 0, 1, 5, 10_000, 2**31 - 1, 2**63 - 1)


def small(draw: random.Random) -> int:
    return draw.choice([each for each in NUMBERS if -(2**31) <= each < 2**31])


def lie(draw: random.Random) -> bytes:
    """A message of some kind with some numbers, or such a message after a few bits have tipped over."""
    partition = at(draw.choice(["orders", "", "x" * 250, "a/b"]), small(draw))
    message: Message = draw.choice(
        [
            pb.DeliverRequest(),
            pb.DeliverRequest(credit=pb.DeliverRequest.Credit(records=small(draw))),
            pb.DeliverRequest(
                judgements=pb.DeliverRequest.Judgements(
                    judgements=[
                        pb.DeliverRequest.Judgement(
                            partition=partition,
                            delivery_epoch=abs(draw.choice(NUMBERS)),
                            offset=draw.choice(NUMBERS),
                            last_offset=draw.choice(NUMBERS),
                        ),
                        judgement(draw.choice(NUMBERS), draw.randrange(6)),
                    ]
                )
            ),
            pb.DeliverRequest(hello=pb.DeliverRequest.Hello(session=draw.randrange(3))),
            pb.DeliverRequest(acknowledge=pb.AttachRequest.Acknowledge(event_id=draw.randrange(3))),
            pb.AttachRequest(report=pb.AttachRequest.Report(positions=[pb.AttachRequest.Report.Position()])),
        ]
    )
    data = bytearray(message.SerializeToString())
    if data and draw.random() < 0.5:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def how_it_ends(target: str, frames: Sequence[bytes]) -> tuple[Code, str]:
    """
    Of a stream on which these are sent. With the synchronous client: asyncio's takes a write that comes too late for an error
    of its own.
    """
    with grpc.insecure_channel(target, options=OWN_CONNECTION) as channel:
        call: Any = channel.stream_stream("/rota.sidecar.v1.Consumer/Deliver")
        stream = call(iter(frames))
        with pytest.raises(grpc.RpcError):
            list(stream)
        return stream.code(), stream.details()


async def attached_by_any_means(talk: Talk) -> AttachStream:
    """As soon as the one before is gone."""
    await talk.deliveries.until(lambda: talk.deliveries.application is None)
    return await talk.attach()


def test_whatever_is_said_the_service_lives_on(
    tmp_path: Path, play: Play, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(seed)

    async def story(talk: Talk) -> None:
        codes: set[Code] = set()
        for _ in range(STREAMS):
            attach = await attached_by_any_means(talk)
            session = talk.deliveries.session
            hello = pb.DeliverRequest(hello=pb.DeliverRequest.Hello(session=session)).SerializeToString()
            frames = [hello, *(lie(draw) for _ in range(FRAMES))]
            if talk.frames is None:
                code, details = await asyncio.to_thread(how_it_ends, f"unix:{tmp_path / SOCKET}", frames)
            else:
                code, details = await talk.raw("Deliver", *frames)
            assert details
            codes.add(code)
            attach.cancel()
        assert codes <= CLEAR
        assert Code.INVALID_ARGUMENT in codes
        for event in talk.deliveries.all(on.Judged):
            assert all(0 <= each.first <= each.last for each in event.judgements)
        await attached_by_any_means(talk)
        records = await talk.deliver(talk.deliveries.session)
        await records.write(pb.DeliverRequest(credit=pb.DeliverRequest.Credit(records=1)))
        talk.deliveries.there.deliver([handed(batch_slice(batch(0, [b"a"])), partition=P0)])
        assert isinstance(await records.read(), pb.DeliverResponse)
        logged = filter(is_worth_a_line, caplog.records)
        assert [record for record in logged if record.levelname == "ERROR"] == []

    play(story)


def test_calls_above_a_bound_are_refused_and_the_others_are_answered(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.hangs = True
        codes = await asyncio.gather(*(waiting(talk) for _ in range(300)))
        assert set(codes) == {Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED}
        assert codes.count(Code.DEADLINE_EXCEEDED) >= CALLS_MAX
        assert await talk.stub.Assignment(pb.AssignmentRequest()) == pb.AssignmentResponse()

    async def waiting(talk: Talk) -> Code:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await talk.stub.Commit(pb.CommitRequest(), timeout=2)
        return refused.value.code()

    play(tmp_path, story)
