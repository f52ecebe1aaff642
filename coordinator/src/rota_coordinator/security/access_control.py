"""
Access control: the only way from a gRPC call to groups and topics.

The gRPC services have an `AccessControl` and no reference to the router. `admitted` authenticates a call by its headers
and certificate before its message is read, and counts it until it ends; `caller` then returns the caller that submits
its requests. Each request about a group, as a call or as a frame of a stream, is authorized here before the group is
looked up, so that a rejection does not reveal whether the group exists.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.answers import Request, group_of, refused
from rota_coordinator.core.group.state import Group
from rota_coordinator.runtime.calls import Answer
from rota_coordinator.runtime.observer import LOG_REQUESTS, Error, Observers
from rota_coordinator.runtime.ownership import SlotOwner
from rota_coordinator.runtime.router import Service
from rota_coordinator.runtime.slot import Slot
from rota_coordinator.security.authenticator import (
    AnonymousAuthenticator,
    Authenticator,
    Peer,
    Principal,
)
from rota_coordinator.security.connections import Closing, Connections, address_of
from rota_coordinator.security.denials import Denial, DenialLog, Record
from rota_coordinator.security.instances import Instances, instances_of
from rota_coordinator.security.policy import Action, GroupPolicy, TopicAction
from rota_coordinator.security.reauthentication import CallEnd, Reauthentication
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.pod_tokens import NAMESPACE_METADATA
from rota_service.token_review import AuthenticationUnavailable, Unauthenticated

Context = grpc.aio.ServicerContext[Any, Any]
# Seconds that the status of a call that is ended may take to be sent, when the client does not read.
END_S = 5
REQUEST = "Request"
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

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
        return self._values("authorization")

    def namespace(self) -> str:
        """Return the namespace for which the call is made; empty: for none. Raises ValueError."""
        names = self._values(NAMESPACE_METADATA)
        if not names:
            return ""
        if len(names) > 1 or not NAMESPACE.fullmatch(names[0]):
            raise ValueError(
                f"the metadata {NAMESPACE_METADATA} is not the name of one namespace; send one, or none"
            )
        return names[0]

    def _values(self, name: str) -> Sequence[str]:
        metadata = self._context.invocation_metadata() or ()
        return [str(value) for key, value in metadata if key == name]

    @override
    def certificate_names(self) -> Sequence[str]:
        shown = self._context.auth_context()
        names = shown.get("x509_subject_alternative_name") or shown.get("x509_common_name") or ()
        return [name.decode(errors="replace") for name in names]

    @override
    def address(self) -> str:
        return address_of(self._context.peer())


class Rules(NamedTuple):
    """The rules by which requests are authorized."""

    policy: GroupPolicy
    instances: Instances


class AuthorizedCaller:
    """
    An authenticated principal; every request it submits is authorized here. A call for a namespace, as the operator's are, has the
    principal's rights to groups of which that namespace's pods may be members, and none to others.
    """

    def __init__(
        self,
        service: Service,
        rules: Rules,
        principal: Principal,
        denied: Callable[[Denial], None],
        namespace: str = "",
    ) -> None:
        self._service = service
        self._policy = rules.policy
        self._instances = rules.instances
        self._denied = denied
        self._namespace = namespace
        self.principal = principal

    def submit(self, request: Request, client_host: str, asked: Message | None = None) -> Answer:
        """
        Authorize a request and submit it to its group; a denied request is answered with an error. `asked`: the request of the
        client, if it was another one.
        """
        error = self._error_of(request)
        if error == pb.NONE:
            return self._service.submit(request, client_host, self.principal.name)
        self.refused(request, error)
        self.denied(request if asked is None else asked, group_of(request), error)
        answer = Answer()
        answer.set_result(refused(request, error))
        return answer

    def _error_of(self, request: Request) -> pb.ErrorCode.ValueType:
        """Return the error with which a request is denied; NONE: it may be submitted."""
        group_id = group_of(request)
        if not self._may(ACTIONS[type(request)], group_id):
            return pb.GROUP_AUTHORIZATION_FAILED
        if self.principal.pod is None and not self._instances:
            # No instance is held, so the one that the request names is free.
            return pb.NONE
        named = instances_of(request)
        if isinstance(request, pb.LeaveGroupRequest) and self._may(Action.ADMIN, group_id):
            named = ()
        if all(self._instances.claim(each, self.principal.pod) for each in named):
            return pb.NONE
        return pb.FENCED_INSTANCE_ID

    def denied(self, request: Message, resource: str, error: pb.ErrorCode.ValueType) -> None:
        """Record that a request about a group, topic or transactional id is denied."""
        api = type(request).__name__.removesuffix(REQUEST)
        principal = self.principal
        name = f"{principal.name} for namespace {self._namespace}" if self._namespace else principal.name
        self._denied(Denial(name, principal.pod_name, "", api, resource, pb.ErrorCode.Name(error)))

    def find(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        """Return the coordinators of the groups that the caller may see."""
        hidden = {group_id for group_id in request.group_ids if not self._may_see(group_id)}
        for group_id in hidden:
            self.denied(request, group_id, pb.GROUP_AUTHORIZATION_FAILED)
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
        return self._may(Action.MEMBER, group_id)

    def may_use_instance(self, group_id: str, instance_id: str) -> bool:
        """Return whether the caller may speak for a static member of the group; if it is a pod, the instance is its own then."""
        return self._instances.claim((group_id, instance_id), self.principal.pod)

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
        return self._may(Action.READ, group_id)

    def _may(self, action: Action, group_id: str) -> bool:
        if self._namespace and not self._policy.is_group_of(self._namespace, group_id):
            return False
        return self._policy.may(self.principal, action, group_id)


def unseen(group_id: str) -> pb.FindCoordinatorResponse.Coordinator:
    """Return the response for a group that the caller may not see."""
    return pb.FindCoordinatorResponse.Coordinator(group_id=group_id, error_code=pb.GROUP_AUTHORIZATION_FAILED)


def count_refusal(service: Service, request: Message, error: Error) -> None:
    """Report a rejected request to the observers; requests that list or watch groups are not counted."""
    if isinstance(request, (Request | pb.FindCoordinatorRequest, *LOG_REQUESTS)):
        service.observers.answered(request, error, 0)


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
        record: Record,
        connections: Connections,
    ) -> None:
        self._service = service
        self._authenticator = authenticator
        self._rules = Rules(policy, Instances())
        self.denials = DenialLog(record, lambda: asyncio.get_running_loop().time())
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
        """
        Admit a call for as long as it lasts. Aborts it with UNAUTHENTICATED, with UNAVAILABLE while its token cannot be reviewed,
        or with RESOURCE_EXHAUSTED beyond a limit; with the first two also later, once its authentication has ended.
        """
        peer = context.peer()
        shown = CallPeer(context)
        principal = await self._authenticate(context, shown)
        try:
            namespace = shown.namespace()
        except ValueError as error:
            await self._refuse(context, CallEnd(grpc.StatusCode.INVALID_ARGUMENT, str(error)), principal)
        identity = identity_of(principal, peer)
        refusal = self.connections.begin_call(peer, identity, asyncio.get_running_loop().time())
        if refusal:
            await self._refuse(context, CallEnd(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal), principal)
        if principal.pod is not None:
            self._rules.instances.begin_call(principal.pod)
        CALLER.set(AuthorizedCaller(self._service, self._rules, principal, self.denials.add, namespace))
        admitted = Admitted(self, peer, self._reading(peer))
        # Most calls are over before that is due, but each pays for it.
        is_limited = principal.valid_for_s is not None
        again = Reauthentication(self._authenticator, shown, principal) if is_limited else None
        try:
            yield admitted
        except asyncio.CancelledError:
            if again is not None and again.end is not None:
                await self._end(context, again.end, principal)
            admitted.cancelled()
            raise
        finally:
            if again is not None:
                again.stop()
            if principal.pod is not None:
                self._rules.instances.end_call(principal.pod)
            self.connections.end_call(identity)

    async def _authenticate(self, context: Context, shown: CallPeer) -> Principal:
        try:
            return await self._authenticator.authenticate(shown)
        except Unauthenticated as unknown:
            await self._refuse(context, CallEnd(grpc.StatusCode.UNAUTHENTICATED, str(unknown)), None)
        except AuthenticationUnavailable as unavailable:
            await self._refuse(context, CallEnd(grpc.StatusCode.UNAVAILABLE, str(unavailable)), None)

    async def _refuse(self, context: Context, end: CallEnd, principal: Principal | None) -> NoReturn:
        """Record, count and abort a call that is not admitted."""
        self._record_end(context, end, principal)
        self.call_failed(context.peer())
        await context.abort(*end)

    async def _end(self, context: Context, end: CallEnd, principal: Principal) -> None:
        """Abort a call that was admitted; returns without having done so if the client does not read, and disconnects it."""
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        self._record_end(context, end, principal)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await context.abort(*end)
        self.disconnect(
            Closing(context.peer(), f"its call was ended ({end.message}), and the status was not read")
        )

    def _record_end(self, context: Context, end: CallEnd, principal: Principal | None) -> None:
        name, pod = ("", "") if principal is None else (principal.name, principal.pod_name)
        address = address_of(context.peer()) if principal is None else ""
        self.denials.add(Denial(name, pod, address, "", "", end.message))

    def _reading(self, peer: str) -> asyncio.Semaphore:
        reading = self._reads.get(peer)
        if reading is None:
            reading = self._reads[peer] = asyncio.Semaphore(self.connections.limits.reads_per_connection)
        return reading


def identity_of(principal: Principal, peer: str) -> str:
    """Return the identity that limits on calls and connections are for: unauthenticated callers of one address share them."""
    if principal is AnonymousAuthenticator.PRINCIPAL:
        return address_of(peer)
    return principal.name if principal.pod is None else f"pod {principal.pod_name}"
