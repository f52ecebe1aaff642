"""Requests of the application (commit, seek, pause, resume) and of Fleet (offset reset). Each is answered once."""

from collections.abc import Iterable, Mapping
from typing import assert_never

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.context import Context
from rota_sidecar.core.delivery.partition import PartitionState
from rota_sidecar.core.delivery.states import Edge, Error, PendingCommit
from rota_sidecar.core.member.partitions import Partition, Tenure

# Limit of pending requests.
PENDING_REQUESTS_MAX = 1_000
SEEKS = {-1: Edge.END, -2: Edge.START}


class Requests:
    """Invariant: a request is answered when the outcome of each of its partitions is known."""

    def __init__(self, context: Context, partition_states: Mapping[Partition, PartitionState]) -> None:
        self._context = context
        self._partition_states = partition_states

    def handle(self, event: on.ApplicationRequest) -> None:
        """Handle a request of the application; refuse it while too many are pending."""
        if self._context.pending_requests >= PENDING_REQUESTS_MAX:
            message = f"{PENDING_REQUESTS_MAX} requests are pending: retry when some of them are answered"
            self._context.emit(do.Answer(event.request, pb.COORDINATOR_LOAD_IN_PROGRESS, message=message))
            return
        match event:
            case on.CommitRequested():
                self._commit(event)
            case on.SeekRequested():
                self._seek(event)
            case on.PauseRequested():
                self._pause(event.request, event.partitions, paused=True)
            case on.ResumeRequested():
                self._pause(event.request, event.partitions, paused=False)
            case _:
                assert_never(event)

    def _split(
        self, partitions: Iterable[Partition], error: Error
    ) -> tuple[list[PartitionState], dict[Partition, Error]]:
        """Split partitions into the owned ones, sorted, and an error for each of the others."""
        wanted = sorted(set(partitions))
        partition_states = [self._partition_states[each] for each in wanted if each in self._partition_states]
        return partition_states, {each: error for each in wanted if each not in self._partition_states}

    def _begin(
        self,
        request: int,
        errors: Mapping[Partition, Error],
        partition_states: Iterable[PartitionState],
        delivery_epoch: int = 0,
    ) -> None:
        waits_for = [partition_state.partition for partition_state in partition_states]
        self._context.begin_request(request, errors, waits_for, delivery_epoch)

    def _commit(self, event: on.CommitRequested) -> None:
        offsets = event.offsets
        requested = self._partition_states.keys() if offsets is None else offsets.keys()
        partition_states, errors = self._split(requested, pb.ILLEGAL_GENERATION)
        mine = [each for each in partition_states if each.accepts_commit(event.tenure)]
        if offsets is not None:
            # A commit without offsets means the partitions of its tenure only.
            others = (each for each in partition_states if not each.accepts_commit(event.tenure))
            errors |= {each.partition: pb.ILLEGAL_GENERATION for each in others}
        self._begin(event.request, errors, mine)
        for partition_state in mine:
            offset = None if offsets is None else offsets[partition_state.partition]
            partition_state.request_commit(PendingCommit(event.request, offset))
        self._context.answer_if_complete(event.request)

    def reset(self, event: on.ResetOffsets, tenure: Tenure | None) -> None:
        """Commit the offsets of a reset and read from them, if the member is in the generation that was planned for."""
        generation = None if tenure is None else tenure.generation
        if generation != event.generation:
            message = (
                f"the offset reset was planned for generation {event.generation}, but this member is in "
                f"{'none' if generation is None else f'generation {generation}'}: plan it again"
            )
            self._context.emit(do.Answer(event.request, pb.ILLEGAL_GENERATION, message=message))
            return
        partition_states, errors = self._split(event.offsets, pb.ILLEGAL_GENERATION)
        errors |= {each: pb.OFFSET_OUT_OF_RANGE for each, offset in event.offsets.items() if offset < 0}
        errors |= {each.partition: pb.ILLEGAL_GENERATION for each in partition_states if each.is_revoking}
        mine = [each for each in partition_states if each.partition not in errors]
        self._begin(event.request, errors, mine)
        for partition_state in mine:
            offset = on.RequestedOffset(event.offsets[partition_state.partition])
            partition_state.request_commit(PendingCommit(event.request, offset, seeks=True))
        self._context.answer_if_complete(event.request)

    def _seek(self, event: on.SeekRequested) -> None:
        partition_states, errors = self._split(event.offsets, pb.UNKNOWN_TOPIC_OR_PARTITION)
        for partition_state in partition_states:
            offset = event.offsets[partition_state.partition]
            if partition_state.refuses_seek(is_edge=offset in SEEKS):
                errors[partition_state.partition] = pb.ILLEGAL_GENERATION
            elif offset < min(SEEKS):
                errors[partition_state.partition] = pb.OFFSET_OUT_OF_RANGE
        mine = [each for each in partition_states if each.partition not in errors]
        # The number is above all present delivery epochs and below those that the seek begins.
        self._begin(event.request, errors, mine, delivery_epoch=self._context.number())
        for partition_state in mine:
            offset = event.offsets[partition_state.partition]
            if offset >= 0:
                partition_state.seek(offset)
                self._context.answer(event.request, partition_state.partition, offset=offset)
            else:
                partition_state.begin_at_edge(SEEKS[offset], event.request)
        self._context.answer_if_complete(event.request)

    def _pause(self, request: int, partitions: frozenset[Partition], *, paused: bool) -> None:
        partition_states, errors = self._split(partitions, pb.UNKNOWN_TOPIC_OR_PARTITION)
        for partition_state in partition_states:
            partition_state.pause(paused=paused)
        self._begin(request, errors, ())
        self._context.answer_if_complete(request)
