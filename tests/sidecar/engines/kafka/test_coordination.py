"""The connections to a group's coordinator: which request goes on which, and how long each of them stays."""

import asyncio
from collections.abc import Coroutine

import pytest
from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group as wire
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.kafka import coordination as module
from rota_sidecar.engines.kafka.coordination import KafkaCoordination
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings
from rota_sidecar.engines.kafka.versions import VERSIONS
from rota_sidecar.engines.port import CoordinatorEvent, Unreachable
from tests.sidecar.engines.kafka.fake_broker import answering, listening

WITHIN_S = 60
SHORT_S = 0.2
JOIN, SYNC = pb.JoinGroupRequest(group_id="g"), pb.SyncGroupRequest(group_id="g")
HEARTBEAT = pb.HeartbeatRequest(group_id="g")


class Coordinator:
    """Answers as one; joins wait for ever while it parks them."""

    def __init__(self) -> None:
        self.address = Address("nowhere", 1)
        self.parks = False

    def answer(self, request: ApiMessage) -> ApiMessage | None:
        match request:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(coordinators=[("g", 1, *self.address, 0, None)])
            case wire.JoinGroupRequest():
                return None if self.parks else wire.JoinGroupResponse(leader="m", member_id="m", members=[])
            case wire.SyncGroupRequest():
                return wire.SyncGroupResponse(assignment=b"")
            case ListGroupsRequest():
                return ListGroupsResponse(error_code=29, groups=[])
            case _:
                return wire.HeartbeatResponse(error_code=0)


def run(test: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WITHIN_S):
            await test

    asyncio.run(within())


async def found(
    settings: KafkaSettings, broker: Coordinator, events: list[CoordinatorEvent]
) -> KafkaCoordination:
    (broker.address,) = settings.addresses
    coordination = KafkaCoordination(settings, "g", events.append)
    assert await coordination.find(WITHIN_S) == pb.NONE
    return coordination


def test_a_join_that_waits_holds_up_nothing_and_its_connection_goes_with_it() -> None:
    async def ask() -> None:
        broker, events = Coordinator(), list[CoordinatorEvent]()
        async with listening(answering(broker.answer)) as settings:
            coordination = await found(settings, broker, events)
            broker.parks = True
            joining = asyncio.create_task(coordination.ask(JOIN, SHORT_S))
            assert (await coordination.ask(HEARTBEAT, WITHIN_S)).error_code == pb.NONE
            with pytest.raises(Unreachable, match=r"did not answer within 0.2 s"):
                await joining
            # The join before is not in the way of the next one, nor is it the coordinator that was lost.
            broker.parks = False
            assert (await coordination.ask(JOIN, WITHIN_S)).error_code == pb.NONE
            assert (await coordination.ask(HEARTBEAT, WITHIN_S)).error_code == pb.NONE
            await coordination.close()
        assert events == []

    run(ask())


def test_a_round_has_one_connection_that_ends_with_the_sync() -> None:
    async def ask() -> None:
        broker, events = Coordinator(), list[CoordinatorEvent]()
        async with listening(answering(broker.answer)) as settings:
            coordination = await found(settings, broker, events)
            await coordination.ask(JOIN, WITHIN_S)
            (first,) = coordination._blocking
            await coordination.ask(JOIN, WITHIN_S)
            assert coordination._blocking == {first}
            await coordination.ask(SYNC, WITHIN_S)
            await asyncio.sleep(0)
            assert coordination._blocking == set()
            await coordination.close()
        assert events == []

    run(ask())


def test_only_so_many_joins_wait_and_a_new_look_up_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCKING_MAX", 2)

    async def ask() -> None:
        broker, events = Coordinator(), list[CoordinatorEvent]()
        async with listening(answering(broker.answer)) as settings:
            coordination = await found(settings, broker, events)
            broker.parks = True
            waiting = [asyncio.create_task(coordination.ask(JOIN, WITHIN_S)) for _ in range(2)]
            while len(coordination._blocking) < 2:
                await asyncio.sleep(0)
            with pytest.raises(Unreachable, match="2 joins of group 'g' are in flight already"):
                await coordination.ask(JOIN, WITHIN_S)
            assert await coordination.find(WITHIN_S) == pb.NONE
            for each in waiting:
                with pytest.raises(Unreachable, match="was closed by this client"):
                    await each
            await coordination.close()
        assert events == []

    run(ask())


def test_a_coordinator_that_is_not_reached_is_named() -> None:
    async def ask() -> None:
        broker = Coordinator()
        async with listening(answering(broker.answer)) as settings:
            broker.address = Address("127.0.0.1", 1)
            coordination = KafkaCoordination(settings, "g", print)
            with pytest.raises(
                Unreachable, match=r"127\.0\.0\.1:1 is the coordinator of group 'g', but connection refused"
            ):
                await coordination.find(WITHIN_S)
            with pytest.raises(Unreachable, match="not connected to the coordinator of group 'g'; call find"):
                await coordination.ask(HEARTBEAT, WITHIN_S)

    run(ask())


def test_a_group_whose_protocol_is_unknown_is_not_called_foreign() -> None:
    async def ask() -> None:
        broker, events = Coordinator(), list[CoordinatorEvent]()
        old = {kind.API_KEY: range(message_version.version + 1) for kind, message_version in VERSIONS.items()}
        async with listening(answering(broker.answer)) as settings:
            coordination = await found(settings, broker, events)
            with pytest.raises(Unreachable, match=r"does not list its groups \(error 29\)"):
                await coordination.protocol_of_group(WITHIN_S)
            await coordination.close()
        async with listening(
            answering(broker.answer, {**old, ListGroupsRequest.API_KEY: range(5)})
        ) as settings:
            coordination = await found(settings, broker, events)
            assert await coordination.protocol_of_group(WITHIN_S) == "classic"
            await coordination.close()

    run(ask())


def test_an_answer_that_makes_no_sense_ends_the_connection() -> None:
    async def ask() -> None:
        broker, events = Coordinator(), list[CoordinatorEvent]()

        def nothing(request: ApiMessage) -> ApiMessage | None:
            match request:
                case wire.OffsetFetchRequest():
                    return wire.OffsetFetchResponse(groups=[])
                case FindCoordinatorRequest() if events:
                    return FindCoordinatorResponse(coordinators=[])
                case _:
                    return broker.answer(request)

        async with listening(answering(nothing)) as settings:
            coordination = await found(settings, broker, events)
            with pytest.raises(Unreachable, match="is not one of a Kafka broker"):
                await coordination.ask(pb.FetchOffsetsRequest(group_id="g"), WITHIN_S)
            while not events:
                await asyncio.sleep(0)
            with pytest.raises(Unreachable, match="is not one of a Kafka broker"):
                await coordination.find(WITHIN_S)
            await coordination.close()

    run(ask())
