"""
Commits of all partitions: which are sent together, and when. Called by `delivery` for each partition that an event touched.

One commit is under way at a time: offsets that become due meanwhile are sent together in the next one, so that no commit
overtakes another.
"""

from collections.abc import Mapping
from typing import NamedTuple, assert_never

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.context import Context, Timer
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.delivery.states import CommitNeed, Error
from rota_sidecar.core.member.partitions import Offset, Partition


class Commit(NamedTuple):
    """The commit under way."""

    request: int
    partition_states: Mapping[Partition, PartitionState]
    offsets: Mapping[Partition, Offset]


class CommitBatch:
    """Invariant: one commit at most is under way, and it is of the member's partitions or of manually assigned ones."""

    def __init__(self, context: Context, partition_states: Mapping[Partition, PartitionState]) -> None:
        self._context = context
        self._partition_states = partition_states
        self._under_way: Commit | None = None
        # Partitions to commit after the commit under way, and at the end of the interval. Dicts keep the order.
        self._due: dict[Partition, None] = {}
        self._changed: dict[Partition, None] = {}

    def consider(self, partition: Partition, partition_state: PartitionState) -> None:
        """Schedule the partition's next commit: now, or at the end of the commit interval."""
        match partition_state.commit_need():
            case CommitNeed.NOTHING:
                self._changed.pop(partition, None)
            case CommitNeed.NOW:
                self._due[partition] = None
            case CommitNeed.LATER:
                self._changed[partition] = None
                self._context.start_timer(Timer.COMMIT, self._context.conditions.config.commit_interval_ms)
            case CommitNeed.WAITS:
                pass
            case need:
                assert_never(need)

    def remove(self, partition: Partition) -> None:
        """Commit nothing more of a partition that the member no longer owns."""
        self._due.pop(partition, None)
        self._changed.pop(partition, None)

    def accepted_again(self) -> None:
        """Retry now the commits that failed during a rebalance or without a coordinator: the next one would refuse them again."""
        for partition_state in self._partition_states.values():
            if partition_state.end_commit_backoff():
                self.try_again(partition_state)

    def try_again(self, partition_state: PartitionState) -> None:
        """Commit what failed to be committed, or was changed."""
        if partition_state.may_commit:
            self._due[partition_state.partition] = None
        self._context.touch(partition_state.partition)

    def interval_over(self) -> None:
        """Handle the end of the commit interval: commit all changed partitions."""
        for partition in self._changed:
            if (partition_state := self._partition_states.get(partition)) is not None:
                self.try_again(partition_state)
        self._changed.clear()

    def send(self) -> None:
        """Send one commit with all due partitions, unless one is under way."""
        if self._under_way is not None or not self._due:
            return
        due, self._due = self._due, {}
        sent: dict[Partition, PartitionState] = {}
        offsets: dict[Partition, Offset] = {}
        is_manual: bool | None = None
        for partition in due:
            partition_state = self._partition_states.get(partition)
            if partition_state is None:
                continue
            if is_manual not in (None, partition_state.is_manual):
                self._due[partition] = None
            elif (offset := partition_state.next_commit()) is not None:
                is_manual = partition_state.is_manual
                sent[partition], offsets[partition] = partition_state, offset
        if sent:
            request = self._context.number()
            self._under_way = Commit(request, sent, offsets)
            self._context.emit(do.Commit(request, offsets, bool(is_manual)))

    def committed(self, event: on.Committed) -> None:
        """Handle the outcome of the commit under way; outcomes of other commits are ignored."""
        commit = self._under_way
        if commit is None or commit.request != event.request:
            return
        self._under_way = None
        self._notify_application(commit, event.errors)
        for partition, partition_state in commit.partition_states.items():
            error = event.errors.get(partition, pb.UNKNOWN_SERVER_ERROR)
            is_held = self._partition_states.get(partition) is partition_state
            if error == pb.NONE:
                partition_state.commit_succeeded(is_held=is_held)
            else:
                partition_state.commit_failed(error, is_held=is_held)
                if is_held:
                    # What became due while this commit was under way waits for the backoff too.
                    self._due.pop(partition, None)
            # A new tenure of the partition may have waited for this outcome too.
            if partition in self._partition_states:
                self._context.touch(partition)

    def _notify_application(self, commit: Commit, errors: Mapping[Partition, Error]) -> None:
        """Notify the application of what was committed without a request of it."""
        if not self._context.conditions.is_attached or not self._context.conditions.traits.takes_commits:
            return
        offsets = {
            partition: commit.offsets[partition]
            for partition, partition_state in commit.partition_states.items()
            if not partition_state.answers_requests and errors.get(partition) == pb.NONE
        }
        if offsets:
            self._context.emit(do.OffsetsCommitted(offsets))
