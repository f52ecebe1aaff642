"""
Failpoints: named points in the code at which a test kills the process.

`--failpoints NAME`, armed by SIGUSR1, halts the process at that point: it logs that it has reached the failpoint, and
then responds to nothing and writes nothing. Without the flag no failpoint halts the process. The runtime knows no failpoint
by name: it asks at the arrival of a request or a timer (`held`), after a decision (`decided`), and sends the messages of a
delivery as far as `messages` yields them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.state import Group
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# The five points of a rebalance after which a crash leaves different states.
SOME_NOTIFIED = "some-notified"  # the first of several members was asked to rejoin
NOTIFIED = "notified"  # all members were asked to rejoin
SOME_JOINED = "some-joined"  # the first member has joined, the others have not
ASSIGNMENT_WRITTEN = (
    "assignment-written"  # the leader's assignment is durable, no member has received its part
)
SOME_ANSWERED = "some-answered"  # the first of several members has received its part
NAMES = (SOME_NOTIFIED, NOTIFIED, SOME_JOINED, ASSIGNMENT_WRITTEN, SOME_ANSWERED)
# A response with its call, None for a call that was superseded; or a notice.
Outgoing = tuple[Call, Message | None] | pb.RebalanceNotice


@dataclass(slots=True)
class Failpoints:
    """State of the failpoints. Invariant: `held` only if `armed`; without names nothing is held."""

    names: Collection[str] = ()
    report: Callable[[str], None] = lambda text: None
    armed: bool = False
    held: bool = False

    def arm(self) -> None:
        """Enable the failpoints; a test arms them after its setup."""
        self.armed = True
        self.report(f"failpoints armed: {', '.join(self.names)}")

    def decided(self, request: Request, group: Group | None) -> None:
        """Halt after a join that leaves the open round of its group with some, but not all, members joined."""
        if not self.armed or not isinstance(request, pb.JoinGroupRequest):
            return
        if group is not None and group.barrier is not None:
            joined = sum(member.joining is not None for member in group.members)
            if 0 < joined < len(group.members):
                self._reach(SOME_JOINED)

    def messages(self, effects: Effects) -> Iterable[Outgoing]:
        """Yield the messages of a decision in their order, up to the failpoint at which the process halts."""
        if not (effects.superseded or effects.notices or self.armed):
            return effects.replies
        superseded = [(call, None) for call in effects.superseded]
        everything: list[Outgoing] = [*effects.replies, *superseded, *effects.notices]
        return self._until_halt(effects, everything) if self.armed else everything

    def _until_halt(self, effects: Effects, messages: Iterable[Outgoing]) -> Iterator[Outgoing]:
        assigns = any(isinstance(reply, pb.SyncGroupResponse) for _, reply in effects.replies)
        if effects.records and assigns:
            self._reach(ASSIGNMENT_WRITTEN)
        answered = notified = 0
        for message in messages:
            if isinstance(message, pb.RebalanceNotice):
                if notified:
                    self._reach(SOME_NOTIFIED)
                notified += 1
            else:
                if answered and isinstance(message[1], pb.SyncGroupResponse):
                    self._reach(SOME_ANSWERED)
                answered += 1
            if self.held:
                return
            yield message
        if notified:
            self._reach(NOTIFIED)

    def _reach(self, name: str) -> None:
        """Halt the process here, if this is one of its failpoints; reported once."""
        if name in self.names and not self.held:
            self.held = True
            self.report(f"failpoint {name} reached")
