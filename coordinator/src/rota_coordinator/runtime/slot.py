"""
A slot in this process: the replicated state of its groups.

Called by `router` with requests and by timers of the event loop. A response is sent when every record written before it
is durable; only a commit that waits beyond its timeout is answered before.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from typing_extensions import override

from rota_coordinator.core.group.answers import Request, group_of
from rota_coordinator.core.group.charges import GroupCharges
from rota_coordinator.core.group.effects import Effects
from rota_coordinator.core.group.groups import Groups, Origin
from rota_coordinator.runtime.calls import Answer, OpenCalls, is_all_well, may_change_its_group, unready_error
from rota_coordinator.runtime.environments import SlotEnvironment
from rota_coordinator.runtime.replicated_state import Dropped, ReplicatedState, SlotState
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import HandoverSnapshot, ProducerEnded


class Slot(ReplicatedState[Groups]):
    """
    The shell around the groups of one slot.

    Invariant: responses are sent in the order of decisions, each after all records of earlier decisions are durable. A
    commit that times out has no response to its decision, and a heartbeat that changes nothing waits for no write.
    """

    def __init__(self, number: int, environment: SlotEnvironment) -> None:
        new_groups = lambda: Groups(environment.config, wall=environment.wall)
        super().__init__(environment.replica(number), new_groups)
        self.number = number
        self.environment = environment
        self._calls = OpenCalls(environment, self._may_act)
        self._charges = GroupCharges(environment.quotas)

    @property
    def groups(self) -> Groups:
        """Return the groups of the slot."""
        return self.machine

    @override
    def _serve(self, handover: bytes) -> None:
        for group_id, group in self.groups.groups.items():
            self._charges.charge(group_id, group)
        handed_over = HandoverSnapshot.FromString(handover)
        for group_id, effects in self.groups.loaded(self.environment.now_ms(), handed_over).items():
            # The lease may have ended meanwhile.
            if self.state is SlotState.READY:
                self._perform(group_id, effects)
        self.environment.slot_changed(self.number)

    async def finish(self) -> HandoverSnapshot | None:
        """
        Stop serving after all decided requests are answered, and return the snapshot for the next owner.

        None when that failed or when the slot was stopped meanwhile; there is nothing to hand over then.
        """
        self.environment.stalls.settle()
        if not await self._drain():
            return None
        handover = self.groups.handover(self.environment.now_ms())
        self.stop()
        return handover

    @override
    def stop(self, error: pb.ErrorCode.ValueType = pb.NOT_COORDINATOR) -> None:
        """Stop serving; waiting calls are answered with the error."""
        super().stop()
        self._charges.discharge(self.groups.groups)
        self._calls.refuse_all(error)
        self.environment.slot_changed(self.number)

    def compensate_stall(self, stall_ms: int) -> None:
        """Extend the deadlines of all groups by a stall of the process that ended now."""
        if self.state is SlotState.READY:
            self.groups.compensate_stall(stall_ms, self.environment.now_ms())
            self._calls.compensate_stall(stall_ms)

    def expire_offsets(self) -> None:
        """Expire offsets of all groups; called every few minutes."""
        for group_id in list(self.groups.groups):
            self._run(group_id, partial(self.groups.expire_offsets, group_id, self.environment.now_ms()))

    def end_transaction(self, group_id: str, ended: ProducerEnded) -> None:
        """End a producer's transaction in a group; called within the log's atomic write of the transaction's end."""
        self._run(group_id, partial(self.groups.end_transaction, group_id, ended))

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic; called within the log's atomic write of the deletion."""
        for group_id in list(self.groups.offsets):
            self._run(group_id, partial(self.groups.forget_topic, group_id, topic))

    def submit(self, request: Request, client_host: str, principal: str = "") -> Answer:
        """Decide a request of the principal; the answer completes once the decision is durable."""
        if not self._may_act():
            return Answer()
        call, answer = self._calls.open(request)
        if self.state is not SlotState.READY:
            self._calls.refuse(call, unready_error(request, self.state))
            return answer
        origin = Origin(client_host, principal, self.environment.new_uuid)
        try:
            now_ms = self.environment.now_ms()
            effects = self._decide(self.machine.decide, call, request, origin, now_ms)
        except Dropped:
            return answer
        group_id = group_of(request)
        if is_all_well(request, effects):
            self._calls.send(effects)
        else:
            self._perform(group_id, effects, changes=may_change_its_group(request))
            self._calls.limit(call)
        if self.environment.failpoints.armed:
            self.environment.failpoints.decided(request, self.groups.groups.get(group_id))
        return answer

    def _run(self, group_id: str, decide: Callable[[], Effects]) -> None:
        """Perform a decision that no request asked for, while the slot is served."""
        if self.state is SlotState.READY:
            with suppress(Dropped):
                self._perform(group_id, self._decide(decide))

    def _perform(self, group_id: str, effects: Effects, *, changes: bool = True) -> None:
        if effects.records:
            append = self.environment.store.append(self.number, self.epoch, effects.records)
            self._write(append, len(effects.records))
        if changes:
            self._charges.charge(group_id, self.groups.groups.get(group_id))
            self._schedule(group_id)
        self._deliver(partial(self._calls.send, effects))
        if changes:
            self.environment.group_changed(group_id)

    @override
    def _delay_ms(self, key: str) -> int | None:
        at_ms = self.groups.wake_at_ms(key)
        return None if at_ms is None else at_ms - self.environment.now_ms()

    @override
    def _wake(self, key: str) -> None:
        self._run(key, partial(self.groups.pass_time, key, self.environment.now_ms()))
