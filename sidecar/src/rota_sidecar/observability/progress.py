"""
Time of each owned partition's last progress, by which stalled partitions are found.

Updated by `delivery.driver` as an observer and by `partition_status`, which knows commits and end offsets. Progress is a
verdict, an advance of the commit, and each time at which nothing was left to process; at first the assignment.
"""

from collections.abc import Callable, Sequence

from typing_extensions import override

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.observer import Observer
from rota_sidecar.membership.driver import MemberEvent


class ProgressTimes(Observer):
    """Times in ms of Unix time. Invariant: exactly the assigned partitions have one."""

    observed_events = frozenset({on.Assigned, on.Revoked, on.Lost})
    observed_actions = frozenset({do.Settled})

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._times_ms: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}

    def observe(self, partition: Partition, committed: int | None, *, is_done: bool) -> int | None:
        """Note the committed offset, and whether every record is processed; return the time of the last progress."""
        if partition not in self._times_ms:
            return None
        advances = committed is not None and committed > self._committed.get(partition, committed)
        if committed is not None:
            self._committed[partition] = committed
        if advances or is_done:
            self._times_ms[partition] = self._wall_ms()
        return self._times_ms[partition]

    @override
    def on_member_event(self, event: MemberEvent, now_ms: int) -> None:
        """Ignore events of the member."""

    @override
    def on_event(self, event: on.Event, now_ms: int) -> None:
        match event:
            case on.Assigned():
                self._times_ms.update(dict.fromkeys(event.partitions, self._wall_ms()))
            case on.Revoked() | on.Lost():
                for partition in event.partitions:
                    self._times_ms.pop(partition, None)
                    self._committed.pop(partition, None)
            case _:
                pass

    @override
    def on_actions(self, actions: Sequence[do.Action], in_flight: int, now_ms: int) -> None:
        for action in actions:
            if isinstance(action, do.Settled) and action.partition in self._times_ms:
                self._times_ms[action.partition] = self._wall_ms()
