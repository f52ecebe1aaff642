"""
Named places to die at. `--failpoints NAME`, armed by SIGUSR1, makes the process hold there, for a test to kill it: it
says that it has arrived, and then answers, decides and writes nothing more. Without the flag nothing is ever held.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

# The five places of a rebalance at which a crash leaves something different behind.
SOME_TOLD = "some-told"  # of several members that must join, the first was told
NOTIFIED = "notified"  # all were told
SOME_JOINED = "some-joined"  # the first of them has joined, the others have not
ASSIGNMENT_WRITTEN = "assignment-written"  # the leader's assignment is durable, nobody has it yet
SOME_ANSWERED = "some-answered"  # the first of several members has its part
NAMES = (SOME_TOLD, NOTIFIED, SOME_JOINED, ASSIGNMENT_WRITTEN, SOME_ANSWERED)


@dataclass(slots=True)
class Failpoints:
    """The places to hold at; none, but in tests."""

    names: Collection[str] = ()
    report: Callable[[str], None] = lambda text: None
    armed: bool = False
    held: bool = False

    def arm(self) -> None:
        """From now on the places count; a test arms them when it has set up what is to be broken."""
        self.armed = True
        self.report(f"failpoints armed: {', '.join(self.names)}")

    def reach(self, name: str) -> bool:
        """Return whether the process halts here; reported once."""
        if self.armed and name in self.names and not self.held:
            self.held = True
            self.report(f"failpoint {name} reached")
        return self.held
