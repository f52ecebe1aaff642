"""
Access control: the only way from a gRPC call to groups and topics.

The gRPC services have an `AccessControl` and no reference to the router. `admitted` authenticates a call by its headers
and certificate before its message is read, and counts it until it ends; `caller` then returns the caller that submits
its requests. Each request about a group, as a call or as a frame of a stream, is authorized here before the group is
looked up, so that a rejection does not reveal whether the group exists.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.answers import Request, group_of, refused
from rota_coordinator.core.group.state import Group
from rota_coordinator.runtime.observer import LOG_REQUESTS, Error, Observers
from rota_coordinator.runtime.ownership import SlotOwner
from rota_coordinator.runtime.router import Service
from rota_coordinator.runtime.slot import Answer, Slot
from rota_coordinator.security.authenticator import (
    AnonymousAuthenticator,
    Authenticator,
    Peer,
    Principal,
    Unauthenticated,
)
from rota_coordinator.security.connections import Closing, Connections, address_of
from rota_coordinator.security.policy import Action, GroupPolicy, TopicAction
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]
REPORT_EVERY_S = 10

ACTIONS: dict[type[Request], Action] = {
    pb.JoinGroupRequest: Action.MEMBER,
    pb.SyncGroupRequest: Action.MEMBER,
    pb.HeartbeatRequest: Action.MEMBER,
    pb.LeaveGroupRequest: Action.MEMBER,
    pb.CommitOffsetsRequest: Action.MEMBER,
    pb.TxnCommitOffsetsRequest: Action.MEMBER,
    pb.FetchOffsetsRequest: Action.READ,
    admin.DescribeGroupsRequest: Action.READ,
    admin.DeleteGroupsRequest: Action.ADMIN,
    admin.DeleteOffsetsRequest: Action.ADMIN,
    admin.AlterOffsetsRequest: Action.ADMIN,
}


class CallPeer(Peer):
    """The credentials of the peer of a gRPC call."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @override
    def authorization(self) -> Sequence[str]:
        metadata = self._context.invocation_metadata() or ()
        return [str(value) for key, value in metadata if key == "authorization"]

    @override
    def certificate_names(self) -> Sequence[str]:
        shown = self._context.auth_context()
        names = shown.get("x509_subject_alternative_name") or shown.get("x509_common_name") or ()
        return [name.decode(errors="replace") for name in names]


class AuthorizedCaller:
    """An authenticated principal; every request it submits is authorized here."""

    def __init__(self, service: Service, policy: GroupPolicy, principal: Principal) -> None:
        self._service = service
        self._policy = policy
        self.principal = principal

    def submit(self, request: Request, client_host: str) -> Answer:
        """Authorize a request and submit it to its group; a denied request is answered with an error."""
        if self._policy.may(self.principal, ACTIONS[type(request)], group_of(request)):
            return self._service.submit(request, client_host, self.principal.name)
        self.refused(request, pb.GROUP_AUTHORIZATION_FAILED)
        answer: Answer = asyncio.get_running_loop().create_future()
        answer.set_result(refused(request, pb.GROUP_AUTHORIZATION_FAILED))
        return answer

    def find(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        """Return the coordinators of the groups that the caller may see."""
        hidden = {group_id for group_id in request.group_ids if not self._may_see(group_id)}
        seen = [group_id for group_id in request.group_ids if group_id not in hidden]
        found = iter(self._service.find(pb.FindCoordinatorRequest(group_ids=seen)).coordinators)
        return pb.FindCoordinatorResponse(
            coordinators=[
                unseen(group_id) if group_id in hidden else next(found) for group_id in request.group_ids
            ]
        )

    def is_member(self, group_id: str, member_id: str) -> bool:
        """Return whether the id is a current member, for which the caller may submit requests."""
        if not self.may_be_member(group_id):
            return False
        group = self._service.slot(group_id).groups.groups.get(group_id)
        return group is not None and member_id in group.members.by_id

    def may_be_member(self, group_id: str) -> bool:
        """Return whether the caller may commit offsets of the group."""
        return self._policy.may(self.principal, Action.MEMBER, group_id)

    def may_topic(self, action: TopicAction, topic: str) -> bool:
        """Return whether the caller may perform the action on the topic."""
        return self._policy.may_topic(self.principal, action, topic)

    def may_transact(self, transactional_id: str) -> bool:
        """Return whether the caller may be the producer of this transactional id."""
        return self._policy.may_transact(self.principal, transactional_id)

    def slots(self) -> Iterator[tuple[Slot, SlotOwner]]:
        """Yield all slots with their owners; every authenticated caller may see them."""
        for slot in self._service.slots:
            yield slot, self._service.ownership.slot_owner(slot)

    def groups(self) -> Iterator[Group]:
        """Yield the groups of this process that the caller may see."""
        for slot in self._service.slots:
            for group_id, group in slot.groups.groups.items():
                if self._may_see(group_id):
                    yield group

    def opened_by(self, group_id: str) -> str:
        """
        Return the reason of the group's last rebalance, as far as this process knows it and the caller may see the
        group.
        """
        group = self._service.slot(group_id).groups.groups.get(group_id)
        return group.opened_by if group is not None and self._may_see(group_id) else ""

    def refused(self, request: Message, error: Error) -> None:
        """Count a request that was rejected."""
        count_refusal(self._service, request, error)

    def _may_see(self, group_id: str) -> bool:
        return self._policy.may(self.principal, Action.READ, group_id)


def unseen(group_id: str) -> pb.FindCoordinatorResponse.Coordinator:
    """Return the response for a group that the caller may not see."""
    return pb.FindCoordinatorResponse.Coordinator(group_id=group_id, error_code=pb.GROUP_AUTHORIZATION_FAILED)


def count_refusal(service: Service, request: Message, error: Error) -> None:
    """Report a rejected request to the observers; requests that list or watch groups are not counted."""
    if isinstance(request, (Request | pb.FindCoordinatorRequest, *LOG_REQUESTS)):
        service.observers.answered(request, error, 0)


class RejectionLog:
    """
    Reports rejections with their count. Invariant: at most one line in `REPORT_EVERY_S` seconds, so no flood fills the
    log.
    """

    def __init__(self, report: Callable[[str], None], what: str = "calls were refused") -> None:
        self._report = report
        self._what = what
        self._count = 0
        self._silent_until_s = -math.inf

    def add(self, peer: str, why: str, now_s: float) -> None:
        """Count one rejection, and report it unless another one was reported a moment ago."""
        self._count += 1
        if now_s >= self._silent_until_s:
            self._report(f"{self._count} {self._what}, the last one from {peer}: {why}")
            self._count = 0
            self._silent_until_s = now_s + REPORT_EVERY_S


# The caller of the call that the running task serves.
CALLER: ContextVar[AuthorizedCaller] = ContextVar("caller")


class Admitted:
    """A call in progress, counted by `Connections` until it ends."""

    def __init__(self, access_control: "AccessControl", peer: str, reading: asyncio.Semaphore) -> None:
        self._access_control = access_control
        self._peer = peer
        # Held while the call's message is read.
        self.reading = reading

    def message_read(self, size_bytes: int) -> None:
        """Count a message that is complete."""
        self._access_control.connections.message_read(self._peer, size_bytes)

    def cancelled(self) -> None:
        """Count the call as cancelled by its client."""
        self._access_control.call_failed(self._peer)


class AccessControl:
    """Authenticates calls and authorizes their requests. Invariant: no request reaches a group unauthorized."""

    def __init__(
        self,
        service: Service,
        authenticator: Authenticator,
        policy: GroupPolicy,
        report: Callable[[str], None],
        connections: Connections,
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._policy = policy
        self._rejections = RejectionLog(report)
        self.connections = connections
        # Peer -> limit of concurrent reads; the calls in progress keep it alive.
        self._reads: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        # Set by the guard of the port, once it is open.
        self.disconnect: Callable[[Closing], None] = lambda closing: None

    def refused(self, request: Message, error: Error) -> None:
        """Count a request that was rejected."""
        count_refusal(self._service, request, error)

    @property
    def observers(self) -> Observers:
        """Return the observers of requests."""
        return self._service.observers

    def caller(self) -> AuthorizedCaller:
        """Return the caller of the call that the running task serves."""
        return CALLER.get()

    def call_failed(self, peer: str) -> None:
        """Count a call that was cancelled or refused; a connection with too many is closed."""
        closing = self.connections.call_failed(peer, asyncio.get_running_loop().time())
        if closing is not None:
            self.disconnect(closing)

    @asynccontextmanager
    async def admitted(self, context: Context) -> AsyncIterator[Admitted]:
        """Admit a call for as long as it lasts; aborts it with UNAUTHENTICATED, or RESOURCE_EXHAUSTED beyond a limit."""
        peer = context.peer()
        now_s = asyncio.get_running_loop().time()
        try:
            principal = await self._authenticator.authenticate(CallPeer(context))
        except Unauthenticated as unknown:
            self._rejections.add(peer, str(unknown), now_s)
            self.call_failed(peer)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(unknown))
        # Unauthenticated callers of one address share its limits.
        identity = address_of(peer) if principal is AnonymousAuthenticator.PRINCIPAL else principal.name
        refusal = self.connections.begin_call(peer, identity, now_s)
        if refusal:
            self._rejections.add(peer, refusal, now_s)
            self.call_failed(peer)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
        CALLER.set(AuthorizedCaller(self._service, self._policy, principal))
        admitted = Admitted(self, peer, self._reading(peer))
        try:
            yield admitted
        except asyncio.CancelledError:
            admitted.cancelled()
            raise
        finally:
            self.connections.end_call(identity)

    def _reading(self, peer: str) -> asyncio.Semaphore:
        reading = self._reads.get(peer)
        if reading is None:
            reading = self._reads[peer] = asyncio.Semaphore(self.connections.limits.reads_per_connection)
        return reading
