"""
Offsets of the group through the member: commits and fetches of the delivery core.

Used by the delivery driver. Request numbers and tenures are translated here: members come and go, deliveries stay.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member import actions as member_do
from rota_sidecar.core.member import events as member_on
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.core.member.reactions import Error
from rota_sidecar.delivery.standalone_offsets import stored
from rota_sidecar.membership.driver import Membership

Fetched = tuple[Error, Mapping[Partition, on.Stored]]


class GroupOffsets:
    """The offset requests of one member after the other; `attach_member` names each."""

    def __init__(self, post: Callable[[on.Event], None]) -> None:
        self._post = post
        self._membership: Membership | None = None
        self._requests = 0
        # By the member's request number: the action of the delivery core, or the future of `fetch`.
        self._commits: dict[int, do.Commit] = {}
        self._fetches: dict[int, do.FetchCommitted | asyncio.Future[Fetched]] = {}
        self._tenures_before = 0
        self._last_tenure = 0

    def attach_member(self, membership: Membership) -> None:
        """Use this member; requests that an earlier one did not answer fail."""
        self._membership = membership
        self._tenures_before = self._last_tenure
        for number in list(self._commits):
            self._committed(number, {})
        for number in list(self._fetches):
            self._fetched(number, pb.NOT_COORDINATOR, {})

    def own_tenure(self) -> int:
        """Return the number of a tenure that is not the member's."""
        self._last_tenure += 1
        self._tenures_before += 1
        return self._last_tenure

    def tenure(self, tenure: Tenure) -> Tenure:
        """Translate a tenure of the member into one of the deliveries."""
        self._last_tenure = tenure.number + self._tenures_before
        return tenure._replace(number=self._last_tenure)

    def commit(self, action: do.Commit) -> None:
        """Commit through the member; posts Committed."""
        self._requests += 1
        self._commits[self._requests] = action
        # A tenure of an earlier member becomes 0, which is no tenure of this one.
        offsets = {
            partition: offset._replace(tenure=max(0, offset.tenure - self._tenures_before))
            for partition, offset in action.offsets.items()
        }
        self._running.post(member_on.Commit(self._requests, offsets))

    def find(self, action: do.FetchCommitted) -> None:
        """Fetch committed offsets through the member; posts CommittedFetched."""
        self._fetch(action, sorted(action.partitions))

    async def fetch(self, partitions: Sequence[Partition]) -> Fetched:
        """Fetch committed offsets; an error stands for all."""
        answer: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._fetch(answer, partitions)
        return await answer

    def on_member_event(self, event: member_do.Committed | member_do.Fetched) -> None:
        """Complete the request that the member has answered."""
        match event:
            case member_do.Committed():
                self._committed(event.request, event.errors)
            case member_do.Fetched():
                self._fetched(event.request, event.error, stored(event.topics))

    @property
    def _running(self) -> Membership:
        assert self._membership is not None
        return self._membership

    def _fetch(
        self, asker: "do.FetchCommitted | asyncio.Future[Fetched]", partitions: Sequence[Partition]
    ) -> None:
        self._requests += 1
        self._fetches[self._requests] = asker
        self._running.post(member_on.Fetch(self._requests, partitions))

    def _committed(self, number: int, errors: Mapping[Partition, Error]) -> None:
        action = self._commits.pop(number, None)
        if action is not None:
            unsaid = dict.fromkeys(action.offsets, pb.UNKNOWN_MEMBER_ID)
            self._post(on.Committed(action.request, unsaid | dict(errors)))

    def _fetched(self, number: int, error: Error, offsets: Mapping[Partition, on.Stored]) -> None:
        asker = self._fetches.pop(number, None)
        if isinstance(asker, do.FetchCommitted):
            self._post(on.CommittedFetched(asker.request, error, offsets))
        elif asker is not None and not asker.done():
            asker.set_result((error, offsets))
