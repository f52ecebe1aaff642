"""Requests to the log with anything in them, beside a producer and a reader who must not notice."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.coordinator.callers import as_it_is, path
from tests.coordinator.garbage import Garbage
from tests.log.conversation import batch, values_of
from tests.support.coordinator import QUICK, Coordinator, bearer, serving

pytestmark = pytest.mark.process

CALLS = 6_000
CALLS_AT_ONCE = 40
BROKEN = 0.2
# A fetch may wait for as long as it says; whoever asked has a deadline.
PATIENCE_S = 0.5
WITHIN_S = 60
TOKENS = """\
fuzz   plain:token-of-fuzz   admin:fuzz* topics:fuzz* transactional:*
owner  plain:token-of-owner  topics:*
"""
FUZZ, OWNER = bearer("token-of-fuzz"), bearer("token-of-owner")
TOPICS = ("fuzz", "fuzz-2", "own", "", ".", "fuzz" * 70, "fuzz\0", "nowhere")
ENDINGS = {"OK", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
METHODS: tuple[MethodDescriptor, ...] = tuple(pb.DESCRIPTOR.services_by_name["Log"].methods)


class LogGarbage(Garbage):
    """Which topics and transactional ids there are is known to it."""

    @override
    def _value(self, field: FieldDescriptor) -> object:
        if field.name in ("topic", "name", "names"):
            return self.chance.choice(TOPICS)
        if field.name == "transactional_id":
            return self.chance.choice(("", "a", "b", "fuzz"))
        if field.name in ("producer_id", "producer_epoch", "index", "base_sequence"):
            return self.chance.choice((-2, -1, 0, 1, 2, 3, 2**31 - 1))
        if field.name == "max_wait_ms":
            return self.chance.choice((-1, 0, 0, 10, 100))
        return super()._value(field)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """One that tells the fuzz from the others."""
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    with serving(tmp_path, [*QUICK, f"--tokens-file={tokens}"]) as coordinator:
        yield coordinator


class Owner:
    """Produces to a topic of its own, and reads it."""

    def __init__(self, over: grpc.aio.Channel) -> None:
        self._over = over
        self.sent = 0

    async def ask(self, name: str, request: Message) -> Message:
        """A call of the service."""
        method = next(each for each in METHODS if each.name == name)
        answer = GetMessageClass(method.output_type).FromString
        call = self._over.unary_unary(
            path(method), GetMessageClass(method.input_type).SerializeToString, answer
        )
        return await call(request, metadata=OWNER, timeout=WITHIN_S)

    async def make(self) -> None:
        """The topic."""
        topic = pb.CreateTopicsRequest.Topic(name="own", partitions=1, retention_ms=-1, retention_bytes=-1)
        await self.ask("CreateTopics", pb.CreateTopicsRequest(topics=[topic]))

    async def work(self) -> None:
        """Until cancelled."""
        while True:
            partition = pb.ProduceRequest.Partition(topic="own", batches=[batch([b"%d" % self.sent])])
            reply = await self.ask("Produce", pb.ProduceRequest(partitions=[partition]))
            assert isinstance(reply, pb.ProduceResponse)
            assert (reply.partitions[0].error_code, reply.partitions[0].base_offset) == (
                codes.NONE,
                self.sent,
            )
            self.sent += 1
            await asyncio.sleep(0.005)

    async def check(self) -> None:
        """All of it is there, and nothing else but what was under way in the end."""
        found: list[bytes] = []
        while len(found) < self.sent:
            partition = pb.FetchRequest.Partition(topic="own", offset=len(found))
            reply = await self.ask("Fetch", pb.FetchRequest(partitions=[partition]))
            assert isinstance(reply, pb.FetchResponse)
            assert reply.partitions[0].error_code == codes.NONE
            found += [value for each in reply.partitions[0].batches for value in values_of(each)]
        assert len(found) - self.sent in (0, 1)
        assert found == [b"%d" % number for number in range(len(found))]


async def call_anything(over: grpc.aio.Channel, garbage: Garbage) -> str:
    """One call; how it ended."""
    method = garbage.chance.choice(METHODS)
    data = garbage.message(GetMessageClass(method.input_type)).SerializeToString()
    if garbage.chance.random() < BROKEN:
        data = garbage.broken(data)
    call = over.unary_unary(path(method), as_it_is, GetMessageClass(method.output_type).FromString)
    try:
        await call(data, metadata=FUZZ, timeout=PATIENCE_S if method.name == "Fetch" else WITHIN_S)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}{'' if error.details() else ' without a word'}"
    return "OK"


async def fuzz(address: str, seed: int, owner_sent: list[int]) -> Counter[str]:
    """Run all clients at once."""
    garbage = LogGarbage(seed, ("fuzz", "own", ""))
    outcomes: Counter[str] = Counter()
    left = iter(range(CALLS))
    async with grpc.aio.insecure_channel(address) as over:
        owner = Owner(over)
        await owner.make()
        working = asyncio.create_task(owner.work())

        async def some() -> None:
            for _ in left:
                outcomes[await call_anything(over, garbage)] += 1
                assert not working.done(), working.exception()

        await asyncio.gather(*(some() for _ in range(CALLS_AT_ONCE)))
        working.cancel()
        await asyncio.wait({working})
        await owner.check()
        owner_sent.append(owner.sent)
    return outcomes


def test_anything_is_answered_and_harms_nobody(coordinator: Coordinator, seed: int) -> None:
    sent: list[int] = []
    outcomes = asyncio.run(fuzz(coordinator.address, seed, sent))
    assert set(outcomes) <= ENDINGS
    assert min(outcomes["OK"], outcomes["INVALID_ARGUMENT"]) > CALLS / 10
    assert sent[0] > 10
    coordinator.kill()
    coordinator.start()

    async def again() -> None:
        async with grpc.aio.insecure_channel(coordinator.address) as over:
            owner = Owner(over)
            owner.sent = sent[0]
            await owner.check()

    asyncio.run(again())
