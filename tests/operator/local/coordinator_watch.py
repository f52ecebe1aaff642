"""History of a group as its coordinator tells it, by a watch of its own: what the page's timeline is compared with."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import grpc
from typing_extensions import override

from rota_operator.overview.description import EMPTY, STABLE, Description, description_of, names_of, owners_in
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub

# By partition, as TOPIC-NUMBER.
Owners = Mapping[str, str]
# Owners of each partition, one after the other.
History = Mapping[str, Sequence[str]]
UNOWNED = "unowned"
AGAIN_S = 0.05


class DescribedOwners(NamedTuple):
    """A generation of the group once it is stable, or empty: without members and owners."""

    # When it arrived here.
    at_ms: int
    generation: int
    # By member id.
    names: Mapping[str, str]
    owners: Owners


class CoordinatorWatch(threading.Thread):
    """A watch of a group. Invariant: `described` has each description of a stable or empty group, in the order of their arrival."""

    def __init__(self, address: str, group_id: str) -> None:
        super().__init__(daemon=True)
        self.described: list[DescribedOwners] = []
        self._last: Description | None = None
        self._arrived = threading.Condition()
        self._is_stopping = threading.Event()
        self._channel = grpc.insecure_channel(address.removeprefix("rota://"))
        self._request = WatchGroupRequest(group_id=group_id)
        self.start()

    @override
    def run(self) -> None:
        # A coordinator that is still loading the group ends the watch; one that ends later would leave a gap.
        while not self.described and not self._is_stopping.wait(AGAIN_S):
            with suppress(grpc.RpcError):
                self._watch()

    def _watch(self) -> None:
        responses = AdminStub(self._channel).WatchGroup(self._request)
        for found in map(description_of, responses):
            with self._arrived:
                self._last = found
                if found.state in (STABLE, EMPTY):
                    self.described.append(owners_of(found))
                self._arrived.notify_all()

    def wait_until(self, condition: Callable[[Description], bool], within_s: float) -> None:
        """Return as soon as the group's last description meets the condition."""
        with self._arrived:
            is_met = self._arrived.wait_for(
                lambda: self._last is not None and condition(self._last), timeout=within_s
            )
            assert is_met, f"not after {within_s:g} s; the coordinator says: {self._last}"

    def stop(self) -> None:
        """End the watch."""
        self._is_stopping.set()
        self._channel.close()
        self.join()


def owners_of(found: Description) -> DescribedOwners:
    """Return the owners in a description of a stable or empty group."""
    names = names_of(found.members)
    owners = {each.text: name for each, name in owners_in(found.members, names).items()}
    assert found.generation is not None, "Rota's coordinator reports generations"
    return DescribedOwners(time.time_ns() // 1_000_000, found.generation, names, owners)


def history_of(described: Sequence[DescribedOwners]) -> History:
    """Return the owners of each partition, from its first one on; between two of them it may be unowned."""
    found: dict[str, list[str]] = {}
    for each in described:
        for partition in each.owners:
            found.setdefault(partition, [])
        for partition, owners in found.items():
            owner = each.owners.get(partition, UNOWNED)
            if owners[-1:] != [owner]:
                owners.append(owner)
    return found
