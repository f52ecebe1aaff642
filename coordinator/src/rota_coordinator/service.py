"""
All slots of this process. Called by the gRPC server and by tests that need no server.

On SQLite one process owns every slot; it claims and reads them one after the other, and serves each as soon as it
is read.
"""

import time
from collections.abc import Callable

from rota_coordinator.group.answers import Request, group_of
from rota_coordinator.group.hashing import slot_of
from rota_coordinator.slot import Answer, Shell, Slot, SlotState
from rota_coordinator.slots.table import SLOTS
from rota_proto.coordinator.v1 import coordinator_pb2 as pb


class Service:
    """The groups of this process, by slot."""

    def __init__(self, shell: Shell, address: str) -> None:
        self.address = address
        self.slots = tuple(Slot(number, shell) for number in range(SLOTS))

    async def start(self) -> None:
        """Own and read all slots."""
        for slot in self.slots:
            await slot.start()

    def expire_offsets(self) -> None:
        """Once through all slots; the server calls it every few minutes."""
        for slot in self.slots:
            slot.expire_offsets()

    def slot(self, group_id: str) -> Slot:
        """The slot that a group belongs to."""
        return self.slots[slot_of(group_id, SLOTS)]

    def stop(self) -> None:
        """Tell everybody who waits to look for another coordinator."""
        for slot in self.slots:
            slot.stop(pb.NOT_COORDINATOR)

    def submit(self, request: Request, client_host: str) -> Answer:
        """Hand a request to its group's slot."""
        return self.slot(group_of(request)).submit(request, client_host)

    def find(self, request: pb.FindCoordinatorRequest) -> pb.FindCoordinatorResponse:
        """Who coordinates these groups: this process, for the slots that it owns."""
        return pb.FindCoordinatorResponse(
            coordinators=[self._found(group_id) for group_id in request.group_ids]
        )

    def _found(self, group_id: str) -> pb.FindCoordinatorResponse.Coordinator:
        slot = self.slot(group_id)
        owned = slot.state is not SlotState.DOWN
        return pb.FindCoordinatorResponse.Coordinator(
            group_id=group_id,
            error_code=pb.NONE if owned else pb.COORDINATOR_NOT_AVAILABLE,
            address=self.address if owned else "",
            slot=slot.number,
            slot_epoch=slot.epoch,
        )


def steady_clock_ms() -> Callable[[], int]:
    """Wall-clock milliseconds that never jump: sessions must not end because somebody set the clock."""
    started_ms = int(time.time() * 1000)  # noqa: TID251  the clock that everything else is given is made here
    started_at = time.monotonic()  # noqa: TID251
    return lambda: started_ms + int((time.monotonic() - started_at) * 1000)  # noqa: TID251
