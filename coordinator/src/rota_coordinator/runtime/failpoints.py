"""
Failpoints: named points in the code at which a test kills the process.

`--failpoints NAME`, armed by SIGUSR1, halts the process at that point: it logs that it has reached the failpoint, and
then responds to nothing and writes nothing. Without the flag no failpoint halts the process.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

# The five points of a rebalance after which a crash leaves different states.
SOME_NOTIFIED = "some-notified"  # the first of several members was asked to rejoin
NOTIFIED = "notified"  # all members were asked to rejoin
SOME_JOINED = "some-joined"  # the first member has joined, the others have not
ASSIGNMENT_WRITTEN = (
    "assignment-written"  # the leader's assignment is durable, no member has received its part
)
SOME_ANSWERED = "some-answered"  # the first of several members has received its part
NAMES = (SOME_NOTIFIED, NOTIFIED, SOME_JOINED, ASSIGNMENT_WRITTEN, SOME_ANSWERED)


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

    def reach(self, name: str) -> bool:
        """Return whether the process halts here; reported once."""
        if self.armed and name in self.names and not self.held:
            self.held = True
            self.report(f"failpoint {name} reached")
        return self.held
