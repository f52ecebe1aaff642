"""Whom the log lets do what: a real server with a tokens file."""

import asyncio
from collections.abc import Iterator

import pytest
from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1.log_pb2_grpc import LogStub
from tests.log.conversation import Conversation, batch
from tests.support.coordinator import QUICK, serving

pytestmark = pytest.mark.process

TOKENS = """
owner    plain:owner    topics:*
writer   plain:writer   produce:open transactional:writer-* members
reader   plain:reader   consume:open
nobody   plain:nobody   admin:*
"""
DENIED = codes.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that knows four callers, and two topics."""
    folder = tmp_path_factory.mktemp("guarded-log")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    with serving(folder, (*QUICK, f"--tokens-file={tokens}")) as coordinator:
        for topic in ("open", "closed"):
            made = pb.CreateTopicsRequest.Topic(name=topic, partitions=1, retention_ms=-1, retention_bytes=-1)
            reply = ask(coordinator.address, "owner", pb.CreateTopicsRequest(topics=[made]))
            assert errors(reply) == [codes.NONE]
        yield coordinator.address


def ask(address: str, who: str, request: Message) -> Message:
    """The answer that a caller gets; of whatever type."""

    async def run() -> Message:
        async with Conversation(address) as talk:
            method = getattr(LogStub(talk.channel), type(request).__name__.removesuffix("Request"))
            reply: Message = await method(request, metadata=(("authorization", f"Bearer {who}"),))
            return reply

    return asyncio.run(run())


def errors(reply: Message) -> list[int]:
    """The error of each part."""
    parts = getattr(reply, "topics" if "topics" in reply.DESCRIPTOR.fields_by_name else "partitions")
    return [part.error_code for part in parts]


def producing(transactional_id: str = "") -> pb.ProduceRequest:
    """A batch for each topic."""
    partitions = [
        pb.ProduceRequest.Partition(topic=topic, batches=[batch([b"v"])]) for topic in ("closed", "open")
    ]
    return pb.ProduceRequest(partitions=partitions, transactional_id=transactional_id)


def fetching() -> pb.FetchRequest:
    """Both topics from the start."""
    return pb.FetchRequest(
        partitions=[pb.FetchRequest.Partition(topic=topic) for topic in ("open", "closed")]
    )


@pytest.mark.parametrize(
    ("who", "request_", "expected"),
    [
        ("writer", producing(), [DENIED, codes.NONE]),
        ("reader", producing(), [DENIED, DENIED]),
        ("nobody", producing(), [DENIED, DENIED]),
        ("reader", fetching(), [codes.NONE, DENIED]),
        ("writer", fetching(), [codes.NONE, DENIED]),
        ("nobody", fetching(), [DENIED, DENIED]),
        ("writer", producing("others"), [codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_one_may_not_ask_is_refused_alone(
    address: str, who: str, request_: Message, expected: list[int]
) -> None:
    assert errors(ask(address, who, request_)) == expected


def test_topics_are_made_and_deleted_by_those_who_may(address: str) -> None:
    asked = pb.DeleteTopicsRequest(names=["open", "closed"])
    for who in ("writer", "reader", "nobody"):
        assert errors(ask(address, who, asked)) == [DENIED, DENIED]


def test_topics_are_shown_to_those_who_may_read_them(address: str) -> None:
    def shown(who: str) -> list[str]:
        reply = ask(address, who, pb.DescribeTopicsRequest())
        assert isinstance(reply, pb.DescribeTopicsResponse)
        return [topic.name for topic in reply.topics]

    assert (shown("owner"), shown("reader"), shown("nobody")) == (["closed", "open"], ["open"], [])
    described = ask(address, "reader", pb.DescribeTopicsRequest(names=["closed", "open", "none"]))
    assert errors(described) == [DENIED, codes.NONE, DENIED]


def test_a_stranger_fences_nobody(address: str) -> None:
    request = pb.InitProducerRequest(transactional_id="writer-0", transaction_timeout_ms=1_000)
    assert error_of(ask(address, "reader", request)) == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error_of(ask(address, "writer", request)) == codes.NONE


def test_offsets_of_a_group_are_added_by_its_members_only(address: str) -> None:
    made = ask(
        address,
        "writer",
        pb.InitProducerRequest(transactional_id="writer-1", transaction_timeout_ms=1_000),
    )
    assert isinstance(made, pb.InitProducerResponse)
    for group, expected in (("members", codes.NONE), ("strangers", codes.GROUP_AUTHORIZATION_FAILED)):
        request = pb.AddOffsetsToTransactionRequest(
            transactional_id="writer-1",
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            group_id=group,
            generation_id=-1,
        )
        assert error_of(ask(address, "writer", request)) == expected


def error_of(reply: Message) -> int:
    """The error of an answer as a whole."""
    assert isinstance(reply, pb.InitProducerResponse | pb.AddOffsetsToTransactionResponse)
    return reply.error_code
