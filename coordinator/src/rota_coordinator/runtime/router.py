"""Routes requests to the slots of this process. Called by the gRPC services and by tests that need no server."""

import asyncio
from collections.abc import Callable

from rota_coordinator.core.group.answers import Request, group_of
from rota_coordinator.core.group.growth import assigned_bytes, growth
from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.group.join_size import join_answer_bytes
from rota_coordinator.core.quotas import Usage
from rota_coordinator.runtime.calls import Answer
from rota_coordinator.runtime.environments import LogEnvironment, SlotEnvironment
from rota_coordinator.runtime.overload import (
    CommitAdmission,
    Refusal,
    group_limit_refusal,
    join_size_refusal,
    may_create,
    may_grow,
    quota_refusal,
)
from rota_coordinator.runtime.ownership import DedupedReporter, ExclusiveOwnership, Ownership, start_if_down
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.slot import Slot
from rota_coordinator.runtime.topic_commits import OffsetWriteRequest, TopicCommits
from rota_coordinator.runtime.topic_log import TopicLog
from rota_proto.coordinator.v1 import coordinator_pb2 as pb


class Service:
    """
    Routes each request to the slot of its group. Invariant: every slot exists, but only the owned ones are served.
    """

    def __init__(self, environment: SlotEnvironment, address: str) -> None:
        self.address = address
        self.observers = environment.observers
        self._intake = CommitAdmission(environment.stalls)
        self._quotas = environment.quotas
        environment.stalls.subscribe(self.compensate_stall)
        self.slots = tuple(Slot(number, environment) for number in range(environment.store.slots))
        # The default: this process is the only one that uses the store.
        self.ownership: Ownership = ExclusiveOwnership(self.slots, lambda: self.address, environment.report)
        self.log: TopicLog | None = None
        self._reporter = DedupedReporter(environment.report)
        self._commits: TopicCommits | None = None

    def serve_log(self, environment: LogEnvironment) -> TopicLog:
        """Serve the embedded log as well; commits are then checked against its topics."""
        self.log = TopicLog(environment, self)
        self._commits = TopicCommits(self.log, self._submit)
        return self.log

    async def run(self, serving: Callable[[], None]) -> None:
        """Run ownership and the log until cancelled; call `serving` after the first run."""
        delay_s = await self._run_once()
        serving()
        while True:
            await asyncio.sleep(delay_s)
            delay_s = await self._run_once()

    async def _run_once(self) -> float:
        delay_s = await self.ownership.run_once()
        if self.log is not None:
            await start_if_down(self.log, self._reporter)
        return delay_s

    def missing(self) -> str:
        """Return the reason why this process does not serve all its slots yet; empty when it does."""
        unserved = (
            "" if self.log is None or self.log.state is SlotState.READY else "the log is not served yet"
        )
        return self.ownership.missing() or unserved

    async def leave(self) -> None:
        """Answer decided requests, answer all others with NOT_COORDINATOR, and release the slots."""
        if self.log is not None:
            await self.log.finish()
        await self.ownership.leave()
        for slot in self.slots:
            slot.stop(pb.NOT_COORDINATOR)

    def expire_offsets(self) -> None:
        """Expire offsets in all slots; `program` calls it every few minutes."""
        for slot in self.slots:
            slot.expire_offsets()

    def slot(self, group_id: str) -> Slot:
        """Return the slot of a group."""
        return self.slots[slot_of(group_id, len(self.slots))]

    def stop(self) -> None:
        """Stop all slots; waiting calls are answered with NOT_COORDINATOR."""
        for slot in self.slots:
            slot.stop(pb.NOT_COORDINATOR)

    def submit(self, request: Request, client_host: str, principal: str = "") -> Answer:
        """
        Submit a principal's request to the slot of its group. The answer is a Refusal if the process is overloaded or
        the request exceeds a quota.
        """
        if self._commits is not None and isinstance(request, OffsetWriteRequest):
            return self._commits.submit(request, client_host, principal)
        return self._submit(request, client_host, principal)

    def _submit(self, request: Request, client_host: str, principal: str) -> Answer:
        slot = self.slot(group_of(request))
        refusal = self._refusal(slot, request, principal)
        if refusal is not None:
            self.observers.answered(request, refusal.code, 0)
            refused = Answer()
            refused.set_exception(refusal)
            return refused
        answer = slot.submit(request, client_host, principal)
        if isinstance(request, pb.SyncGroupRequest) and request.assignments:
            self._hold(slot, request, answer)
        if slot.unfinished_append is not None and not answer.done():
            self._intake.follow(request, slot.unfinished_append)
        return answer

    def _hold(self, slot: Slot, request: pb.SyncGroupRequest, answer: Answer) -> None:
        """
        Charge the group's creator for the assignments of a parked sync, which stay in memory, whichever principal
        sent them.
        """
        group = slot.groups.groups.get(request.group_id)
        if group is not None and not answer.done():
            key = ("waiting", id(answer))
            self._quotas.charge(key, group.created_by, Usage(group_bytes=assigned_bytes(request)))
            answer.add_done_callback(lambda _: self._quotas.discharge(key))

    def _refusal(self, slot: Slot, request: Request, principal: str) -> Refusal | None:
        refusal = self._intake.refusal(request)
        if refusal is not None or not may_grow(request):
            return refusal
        group = slot.groups.groups.get(group_of(request))
        if group is None and may_create(request):
            refusal = group_limit_refusal(
                sum(len(each.groups.groups) for each in self.slots if each.state is SlotState.READY)
            )
        if refusal is not None or slot.state is not SlotState.READY:
            return refusal
        payer = principal if group is None else group.created_by
        refusal = quota_refusal(self._quotas.refusal(payer, growth(group, request)))
        if refusal is None and isinstance(request, pb.JoinGroupRequest):
            refusal = join_size_refusal(request, join_answer_bytes(group, request))
        return refusal

    def compensate_stall(self, stall_ms: int) -> None:
        """Extend the deadlines of all groups by a stall of this process that ended now."""
        for slot in self.slots:
            slot.compensate_stall(stall_ms)

    def find(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        """Return the coordinators of the groups; every process can answer."""
        found = [self._found(group_id) for group_id in request.group_ids]
        error = next((each.error_code for each in found if each.error_code), pb.NONE)
        self.observers.answered(request, error, 0)
        return pb.FindCoordinatorResponse(coordinators=found)

    def _found(self, group_id: str) -> pb.FindCoordinatorResponse.Coordinator:
        slot = self.slot(group_id)
        owner = self.ownership.slot_owner(slot)
        return pb.FindCoordinatorResponse.Coordinator(
            group_id=group_id,
            error_code=pb.NONE if owner.address else pb.COORDINATOR_NOT_AVAILABLE,
            address=owner.address,
            slot=slot.number,
            slot_epoch=owner.epoch,
        )
