"""
Calls to the coordinator that owns a group, which may be one of several on one store.

`rota` and `admin` ask `GroupCoordinator.channel`; on NOT_COORDINATOR they have it found, and ask again. A server's connection says
nothing about ownership: behind the Service of several coordinators each is as likely to be connected as the others.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import grpc.aio
from typing_extensions import override

from rota_operator.engines.port import Unavailable
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub

CALL_S = 2.0
Answer = TypeVar("Answer")
Metadata = Sequence[tuple[str, str]]


class GroupCoordinator(Protocol):
    """The coordinator of one group, as far as it is known."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """Channel to the coordinator that was found last, at first to the configured server."""
        ...

    @property
    def metadata(self) -> Metadata:
        """Metadata of each call: the namespace for which it is made, in a cluster."""
        ...

    async def find(self) -> None:
        """Find the group's coordinator. Raises Unavailable, also while the group moves between two of them."""
        ...

    def forget(self) -> None:
        """Ask the configured server next, because the coordinator that was found last does not answer."""
        ...


class OnlyCoordinator(GroupCoordinator):
    """A coordinator that shares its store with no other one, and so owns every group."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    @property
    @override
    def channel(self) -> grpc.aio.Channel:
        return self._channel

    @property
    @override
    def metadata(self) -> Metadata:
        return ()

    @override
    async def find(self) -> None:
        pass

    @override
    def forget(self) -> None:
        pass


async def find_coordinator(channel: grpc.aio.Channel, group_id: str, metadata: Metadata) -> str:
    """Return the address of a group's coordinator, as any coordinator knows it. Raises Unavailable."""
    request = pb.FindCoordinatorRequest(group_ids=[group_id])
    call = CoordinatorStub(channel).FindCoordinator(request, timeout=CALL_S, metadata=metadata)
    answer = await await_answer(call)
    (found,) = answer.coordinators
    if found.error_code != pb.NONE:
        raise Unavailable(
            f"cannot find the coordinator of group {group_id} ({pb.ErrorCode.Name(found.error_code)})"
        )
    return found.address


async def ask_coordinator(
    coordinator: GroupCoordinator,
    ask: Callable[[grpc.aio.Channel, Metadata], Awaitable[Answer]],
    code_of: Callable[[Answer], int],
) -> Answer:
    """Call the group's coordinator with its metadata, and once more if another one is found to be that. Raises Unavailable."""
    try:
        answer = await await_answer(ask(coordinator.channel, coordinator.metadata))
    except Unavailable:
        coordinator.forget()
        raise
    if code_of(answer) != pb.NOT_COORDINATOR:
        return answer
    await coordinator.find()
    return await await_answer(ask(coordinator.channel, coordinator.metadata))


async def await_answer(call: Awaitable[Answer]) -> Answer:
    """Await an RPC. Raises Unavailable."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise Unavailable(f"request to Rota failed ({error.details() or error.code().name})") from None
