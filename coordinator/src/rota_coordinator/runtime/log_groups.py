"""
The groups that take part in the writes of the log: ends of transactions with offsets, and deletions of topics.

Called by `topic_log`; each change of a group goes through its slot, within the log's atomic write.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rota_coordinator.core.log.effects import Effects
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.slot import Slot
from rota_coordinator.store.port import StoreError
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.log_events_pb2 import GroupAdded
from rota_proto.coordinator.v1.records_pb2 import ProducerEnded


class Groups(Protocol):
    """Port to the slots, whose groups take part in transactions."""

    def slot(self, group_id: str) -> Slot:
        """Return the slot of a group."""
        ...

    @property
    def slots(self) -> Sequence[Slot]:
        """Return all slots."""
        ...


class LogGroups:
    """Invariant: a group changes with the log in one transaction of the store, or not at all."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def all_served(self) -> bool:
        """Return whether all slots are served."""
        return all(slot.state is SlotState.READY for slot in self._groups.slots)

    def are_served(self, group_ids: Iterable[str]) -> bool:
        """Return whether these groups can take part in the end of a transaction now."""
        return all(self._groups.slot(group_id).state is SlotState.READY for group_id in group_ids)

    def commit_refusal(self, members: Iterable[GroupAdded]) -> pb.ErrorCode.ValueType:
        """Return the error of the first of a transaction's groups that prevents its commit; NONE if none does."""
        for member in members:
            asked = pb.TxnCommitOffsetsRequest(
                group_id=member.group_id,
                generation_id=member.generation_id,
                member_id=member.member_id,
            )
            if member.HasField("group_instance_id"):
                asked.group_instance_id = member.group_instance_id
            error = self._groups.slot(member.group_id).groups.membership_error(asked)
            if error:
                return error
        return pb.NONE

    def append(self, effects: Effects) -> None:
        """Append a decision's part of the groups; called within the atomic write. Raises StoreError if a group is not served."""
        for event in effects.events:
            if event.HasField("topic_deleted"):
                for slot in self._groups.slots:
                    slot.forget_topic(event.topic_deleted.name)
        for ending in effects.endings:
            ended = ProducerEnded(producer_id=ending.producer_id, committed=ending.committed)
            self._groups.slot(ending.group_id).end_transaction(ending.group_id, ended)
        if not self.are_served(ending.group_id for ending in effects.endings):
            raise StoreError("a group could not take part in ending its transaction")
