"""Identity x group x method: who may call what about which group or topic. The methods are those of the contracts, all of them."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rota_coordinator.security.policy import Action, TopicAction
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.v1 import log_pb2 as log
from rota_service.pod_tokens import NAMESPACE_METADATA
from tests.conformance.members import topic_offsets
from tests.coordinator.callers import channel, path, refusal, session
from tests.support.coordinator import QUICK, Coordinator, bearer
from tests.support.token_reviews import TokenReviews, serving_reviews

pytestmark = pytest.mark.process
WITHIN_S = 120
SERVICES = (
    pb.DESCRIPTOR.services_by_name["Coordinator"],
    admin.DESCRIPTOR.services_by_name["Admin"],
    log.DESCRIPTOR.services_by_name["Log"],
)
METHODS: Mapping[str, MethodDescriptor] = {
    method.name: method for service in SERVICES for method in service.methods
}
DENIED = (
    pb.GROUP_AUTHORIZATION_FAILED,
    pb.TOPIC_AUTHORIZATION_FAILED,
    pb.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
TOKENS_FILE = """\
system:serviceaccount:rota:operator  service-account  admin:* consume:*
system:serviceaccount:shop:granted   service-account  legacy read:bank.g topics:legacy produce:bank.g
system:serviceaccounts:bank          service-account  consume:legacy transactional:legacy
robot                                plain:robot-token-canary  admin:shop.*
"""
RESOURCES = ("shop.g", "bank.g", "legacy", "shop")
MEMBER, ANY = "no-member", None


class Rule(NamedTuple):
    """The right that a method needs, and a request for it about a group, topic or transactional id of this name."""

    # ANY: to be authenticated.
    needs: Action | TopicAction | str | None
    request: Callable[[str], Message]


TRANSACT = "transact"


def partition(name: str) -> log.ListOffsetsRequest.Partition:
    return log.ListOffsetsRequest.Partition(topic=name, index=0, timestamp_ms=-1)


RULES: Mapping[str, Rule] = {
    "FindCoordinator": Rule(Action.READ, lambda name: pb.FindCoordinatorRequest(group_ids=[name])),
    "JoinGroup": Rule(
        Action.MEMBER,
        lambda name: pb.JoinGroupRequest(group_id=name, member_id=MEMBER, session_timeout_ms=10_000),
    ),
    "SyncGroup": Rule(
        Action.MEMBER,
        lambda name: pb.SyncGroupRequest(
            group_id=name, member_id=MEMBER, protocol_type="consumer", protocol_name="range"
        ),
    ),
    "Heartbeat": Rule(Action.MEMBER, lambda name: pb.HeartbeatRequest(group_id=name, member_id=MEMBER)),
    "LeaveGroup": Rule(
        Action.MEMBER,
        lambda name: pb.LeaveGroupRequest(group_id=name, members=[pb.LeavingMember(member_id=MEMBER)]),
    ),
    "CommitOffsets": Rule(
        Action.MEMBER,
        lambda name: pb.CommitOffsetsRequest(
            group_id=name, generation_id=1, member_id=MEMBER, topics=[topic_offsets({0: 7})]
        ),
    ),
    "TxnCommitOffsets": Rule(
        Action.MEMBER,
        lambda name: pb.TxnCommitOffsetsRequest(
            group_id=name, generation_id=1, member_id=MEMBER, topics=[topic_offsets({0: 7})]
        ),
    ),
    "FetchOffsets": Rule(Action.READ, lambda name: pb.FetchOffsetsRequest(group_id=name, all=True)),
    "Session": Rule(ANY, lambda _: pb.SessionRequest()),
    "ListGroups": Rule(ANY, lambda _: admin.ListGroupsRequest()),
    "DescribeGroups": Rule(Action.READ, lambda name: admin.DescribeGroupsRequest(group_ids=[name])),
    "WatchGroup": Rule(Action.READ, lambda name: admin.WatchGroupRequest(group_id=name)),
    "DeleteGroups": Rule(Action.ADMIN, lambda name: admin.DeleteGroupsRequest(group_ids=[name])),
    "DeleteOffsets": Rule(
        Action.ADMIN,
        lambda name: admin.DeleteOffsetsRequest(
            group_id=name, topics=[pb.TopicPartitions(name="t", partitions=[0])]
        ),
    ),
    "AlterOffsets": Rule(
        Action.ADMIN, lambda name: admin.AlterOffsetsRequest(group_id=name, topics=[topic_offsets({0: 7})])
    ),
    "DescribeSlots": Rule(ANY, lambda _: admin.DescribeSlotsRequest()),
    "CreateTopics": Rule(
        TopicAction.ADMIN,
        lambda name: log.CreateTopicsRequest(
            topics=[
                log.CreateTopicsRequest.Topic(name=name, partitions=1, retention_ms=-1, retention_bytes=-1)
            ]
        ),
    ),
    "DeleteTopics": Rule(TopicAction.ADMIN, lambda name: log.DeleteTopicsRequest(names=[name])),
    "DescribeTopics": Rule(TopicAction.CONSUME, lambda name: log.DescribeTopicsRequest(names=[name])),
    "CreatePartitions": Rule(
        TopicAction.ADMIN,
        lambda name: log.CreatePartitionsRequest(
            topics=[log.CreatePartitionsRequest.Topic(name=name, partitions=2)]
        ),
    ),
    "AlterTopics": Rule(
        TopicAction.ADMIN,
        lambda name: log.AlterTopicsRequest(
            topics=[log.AlterTopicsRequest.Topic(name=name, retention_ms=-1)]
        ),
    ),
    "Produce": Rule(
        TopicAction.PRODUCE,
        lambda name: log.ProduceRequest(partitions=[log.ProduceRequest.Partition(topic=name, index=0)]),
    ),
    "Fetch": Rule(
        TopicAction.CONSUME,
        lambda name: log.FetchRequest(partitions=[log.FetchRequest.Partition(topic=name, max_bytes=1)]),
    ),
    "ListOffsets": Rule(
        TopicAction.CONSUME, lambda name: log.ListOffsetsRequest(partitions=[partition(name)])
    ),
    "InitProducer": Rule(
        TRANSACT, lambda name: log.InitProducerRequest(transactional_id=name, transaction_timeout_ms=1_000)
    ),
    "AddOffsetsToTransaction": Rule(
        TRANSACT,
        lambda name: log.AddOffsetsToTransactionRequest(
            transactional_id=name, group_id=name, member_id=MEMBER
        ),
    ),
    "EndTransaction": Rule(TRANSACT, lambda name: log.EndTransactionRequest(transactional_id=name)),
    "DeleteRecords": Rule(
        TopicAction.ADMIN,
        lambda name: log.DeleteRecordsRequest(partitions=[log.DeleteRecordsRequest.Partition(topic=name)]),
    ),
}


class Rights(NamedTuple):
    """The widest rights to a group, a topic and a transactional id of one name."""

    group: Action | None = None
    topic: TopicAction | None = None
    transact: bool = False


# Everything that the identities may do; all else is denied.
RIGHTS: Mapping[str, Mapping[str, Rights]] = {
    "system:serviceaccount:shop:default": {"shop.g": Rights(Action.MEMBER, TopicAction.ADMIN, transact=True)},
    "system:serviceaccount:shop:granted": {
        "shop.g": Rights(Action.MEMBER, TopicAction.ADMIN, transact=True),
        "bank.g": Rights(Action.READ, TopicAction.PRODUCE),
        "legacy": Rights(Action.MEMBER, TopicAction.ADMIN),
    },
    "system:serviceaccount:bank:default": {
        "bank.g": Rights(Action.MEMBER, TopicAction.ADMIN, transact=True),
        "legacy": Rights(None, TopicAction.CONSUME, transact=True),
    },
    "system:serviceaccount:rota:operator": {
        name: Rights(Action.ADMIN, TopicAction.CONSUME) for name in RESOURCES
    },
    # As for the author of a ConsumerGroup in that namespace: its own groups, and those that its pods may join.
    "system:serviceaccount:rota:operator for namespace shop": {
        **{name: Rights(None, TopicAction.CONSUME) for name in RESOURCES},
        "shop.g": Rights(Action.ADMIN, TopicAction.CONSUME),
        "legacy": Rights(Action.ADMIN, TopicAction.CONSUME),
    },
    "system:serviceaccount:rota:operator for namespace bank": {
        **{name: Rights(None, TopicAction.CONSUME) for name in RESOURCES},
        "bank.g": Rights(Action.ADMIN, TopicAction.CONSUME),
    },
    # Who may do little may not do more for a namespace.
    "system:serviceaccount:shop:default for namespace bank": {
        "shop.g": Rights(None, TopicAction.ADMIN, transact=True)
    },
    "robot": {"shop.g": Rights(Action.ADMIN)},
}
FOR_NAMESPACE = " for namespace "
Metadata = Sequence[tuple[str, str]]
CELLS = [(identity, name, method) for identity in RIGHTS for name in RESOURCES for method in RULES]


def is_allowed(rights: Rights, method: str) -> bool:
    match RULES[method].needs:
        case Action() as action:
            return rights.group is not None and action <= rights.group
        case TopicAction() as action:
            return rights.topic is not None and action <= rights.topic
        case "transact":
            is_member = rights.group is not None and rights.group >= Action.MEMBER
            return rights.transact and (is_member or method != "AddOffsetsToTransaction")
        case _:
            return True


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenReviews]:
    with serving_reviews(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture(scope="module")
def metadata(reviews: TokenReviews) -> Mapping[str, Metadata]:
    """The metadata of each identity's calls."""
    tokens, found = {"robot": "robot-token-canary"}, dict[str, Metadata]()
    for identity in RIGHTS:
        name, _, calls_for = identity.partition(FOR_NAMESPACE)
        if name not in tokens:
            namespace, account = name.split(":")[2:]
            tokens[name] = reviews.pod(namespace, f"pod-of-{account}", account=account)
        narrowed = ((NAMESPACE_METADATA, calls_for),) if calls_for else ()
        found[identity] = (*bearer(tokens[name]), *narrowed)
    return found


@contextmanager
def serving_pods(folder: Path, reviews: TokenReviews) -> Iterator[Coordinator]:
    """A coordinator with the grants of this module."""
    file = folder / "tokens"
    file.touch(mode=0o600)
    file.write_text(TOKENS_FILE)
    running = Coordinator(folder, [*QUICK, *reviews.flags, f"--tokens-file={file}"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in reviews.environment.items():
            patch.setenv(name, value)
        running.start()
    yield running
    assert not running.has_said("canary")
    assert running.stop() == 0


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory, reviews: TokenReviews) -> Iterator[Coordinator]:
    with serving_pods(tmp_path_factory.mktemp("coordinator"), reviews) as running:
        yield running


def refused_in(coordinator: Coordinator) -> list[Mapping[str, str]]:
    """The records of refusals in the log."""
    records = [json.loads(line) for line in coordinator.log.read_text().splitlines()]
    return [each for each in records if each["event"] == "refused"]


def errors_in(message: Message) -> Iterator[int]:
    """Every error code of a response."""
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None:
            for each in (value,) if isinstance(value, Message) else value:
                yield from errors_in(each)


async def answer(
    over: grpc.aio.Channel, method: MethodDescriptor, request: Message, metadata: Metadata
) -> Message:
    """The response, or the first one of a stream."""
    serialize = type(request).SerializeToString
    deserialize = GetMessageClass(method.output_type).FromString
    if method.server_streaming:
        call = over.unary_stream(path(method), serialize, deserialize)(request, metadata=metadata)
        first = await call.read()
        call.cancel()
        assert isinstance(first, Message)
        return first
    stub = over.unary_unary(path(method), serialize, deserialize)
    found = await stub(request, metadata=metadata, timeout=WITHIN_S)
    assert isinstance(found, Message)
    return found


def test_every_method_of_the_contracts_has_a_rule() -> None:
    assert RULES.keys() == METHODS.keys(), "say in RULES what a new method needs"


def test_the_matrix_is_large() -> None:
    assert len(CELLS) >= 200


def test_each_identity_may_do_what_it_was_granted_and_nothing_else(
    tmp_path: Path, reviews: TokenReviews, metadata: Mapping[str, Metadata]
) -> None:
    async def cell(over: grpc.aio.Channel, identity: str, name: str, method: str) -> bool:
        """True if the call was not denied."""
        if method == "Session":
            async with session(over, metadata=metadata[identity]):
                return True
        found = await answer(over, METHODS[method], RULES[method].request(name), metadata[identity])
        return not set(errors_in(found)) & set(DENIED)

    async def body(address: str) -> dict[tuple[str, str, str], bool]:
        async with asyncio.timeout(WITHIN_S), channel(address) as over:
            return {each: await cell(over, *each) for each in CELLS}

    with serving_pods(tmp_path, reviews) as coordinator:
        outcome = asyncio.run(body(coordinator.address))
        refused = refused_in(coordinator)
    expected = {
        (identity, name, method): is_allowed(RIGHTS[identity].get(name, Rights()), method)
        for identity, name, method in CELLS
    }
    assert {each for each in CELLS if outcome[each] != expected[each]} == set()
    # One record each, with who was refused what.
    recorded = [(each["principal"], each["resource"], each["api"]) for each in refused]
    assert sorted(recorded) == sorted(each for each in CELLS if not expected[each])


def test_frames_of_a_stream_are_authorized_one_by_one(
    coordinator: Coordinator, metadata: Mapping[str, Metadata]
) -> None:
    async def body() -> None:
        async with asyncio.timeout(WITHIN_S), channel(coordinator.address) as over:
            for identity, rights in RIGHTS.items():
                async with session(over, metadata=metadata[identity]) as stream:
                    for method in METHODS:
                        if METHODS[method].containing_service is not SERVICES[0] or method == "Session":
                            continue
                        for name in RESOURCES:
                            found = await stream.ask(RULES[method].request(name))
                            is_denied = bool(set(errors_in(found)) & set(DENIED))
                            assert is_denied != is_allowed(rights.get(name, Rights()), method), (
                                identity,
                                name,
                            )

    asyncio.run(body())


def test_lists_show_what_each_may_see(coordinator: Coordinator, metadata: Mapping[str, Metadata]) -> None:
    operator = metadata["system:serviceaccount:rota:operator"]

    async def body() -> None:
        async with asyncio.timeout(WITHIN_S), channel(coordinator.address) as over:
            for name in RESOURCES:
                made = admin.AlterOffsetsRequest(group_id=name, topics=[])
                await answer(over, METHODS["AlterOffsets"], made, operator)
            everything = await answer(over, METHODS["ListGroups"], admin.ListGroupsRequest(), operator)
            assert isinstance(everything, admin.ListGroupsResponse)
            existing = {each.group_id for each in everything.groups}
            for identity, rights in RIGHTS.items():
                asked = admin.ListGroupsRequest()
                seen = await answer(over, METHODS["ListGroups"], asked, metadata[identity])
                assert isinstance(seen, admin.ListGroupsResponse)
                visible = {name for name in existing if rights.get(name, Rights()).group is not None}
                assert {each.group_id for each in seen.groups} == visible

    asyncio.run(body())


@pytest.mark.parametrize("names", [[""], ["Shop"], ["shop.g"], ["*"], ["shop", "bank"]])
def test_a_call_for_what_is_no_namespace_is_refused(
    coordinator: Coordinator, metadata: Mapping[str, Metadata], names: Sequence[str]
) -> None:
    shown = (*metadata["robot"], *((NAMESPACE_METADATA, each) for each in names))

    async def body() -> None:
        async with asyncio.timeout(WITHIN_S), channel(coordinator.address) as over:
            code, details = await refusal(over, METHODS["DeleteGroups"], shown)
            assert (code, NAMESPACE_METADATA in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), details

    asyncio.run(body())


@pytest.mark.parametrize("method", METHODS)
def test_no_method_is_for_callers_that_are_not_known(
    coordinator: Coordinator, reviews: TokenReviews, method: str
) -> None:
    expired = reviews.pod("shop", "expired", expires_in_s=-60)
    reviews.delete(expired)
    shown = {
        "": "has no token",
        "garbage": "rejects the token",
        expired: "rejects the token",
        reviews.pod("shop", "other", audience="https://kubernetes.default.svc"): "rejects the token",
        reviews.pod("shop", ""): "not bound to a pod",
    }

    async def body() -> None:
        async with asyncio.timeout(WITHIN_S), channel(coordinator.address) as over:
            for token, message in shown.items():
                code, details = await refusal(over, METHODS[method], bearer(token))
                assert (code, message in details) == (grpc.StatusCode.UNAUTHENTICATED, True), details

    asyncio.run(body())
