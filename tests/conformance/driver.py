"""
Operations of a coordinator under test, the same for every driver.

The cases speak Rota's own messages. A driver passes them to the core in virtual time, to Rota's server over gRPC,
or to Kafka over its wire protocol, and gives the answers back as Rota's messages.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message

# The coordinators, by the names that their drivers have.
CORE, ROTA, KAFKA = "core", "rota", "kafka"
# Both servers once more, through the sidecar's adapters.
SIDECAR_ROTA, SIDECAR_KAFKA = "sidecar-rota", "sidecar-kafka"
# Producers of each group: the ids that the core knows them by, and their names within a case.
PRODUCERS = {"first-producer": 1, "second-producer": 2}
FIRST_PRODUCER, SECOND_PRODUCER = PRODUCERS
# Deadline of an answer, for a machine that is busy.
ANSWER_S = 60.0
# A call that has no answer by then is parked.
PARKED_S = 0.2


class Call(Protocol):
    """A request that was sent."""

    async def answer(self, within_s: float = ANSWER_S) -> Message:
        """Its answer; a failure when none comes in time."""
        ...

    async def is_parked(self) -> bool:
        """Return whether a request is still unanswered after a moment."""
        ...


@dataclass(frozen=True, slots=True)
class FutureCall:
    """A request to a process: time goes by by itself."""

    future: "asyncio.Future[Message]"

    async def answer(self, within_s: float = ANSWER_S) -> Message:
        async with asyncio.timeout(within_s):
            return await asyncio.shield(self.future)

    async def is_parked(self) -> bool:
        done, _ = await asyncio.wait([self.future], timeout=PARKED_S)
        return not done


class Driver(Protocol):
    """A coordinator under test."""

    name: str

    def send(self, request: Message) -> Call:
        """Send a request; requests that are sent one after the other arrive in that order."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        ...


class Expiring(Driver, Protocol):
    """A coordinator that forgets offsets while one can wait for it."""

    @property
    def settings(self) -> "Settings": ...


class Failing(Driver, Protocol):
    """A coordinator that can be lost."""

    async def fail_over(self, group: str) -> None:
        """Lose the one that coordinates the group; what comes after knows what was written."""
        ...


class Keeper(Driver, Protocol):
    """A coordinator that knows topics."""

    async def create_topic(self, name: str) -> None:
        """Make a topic with one partition."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Delete it."""
        ...


class Producing(Driver, Protocol):
    """A coordinator that knows producers: each group has `PRODUCERS` of its own, whose transactions begin by themselves."""

    async def end_transaction(self, group: str, producer: str = FIRST_PRODUCER, *, committed: bool) -> None:
        """End the transaction in which the producer committed offsets of the group."""
        ...


class MortalProducer(Failing, Producing, Protocol):
    """Both."""


class Cluster(Failing, Protocol):
    """Several processes that share the groups."""

    async def find_all(self, groups: Sequence[str]) -> list[str]:
        """The addresses of those that coordinate these groups, asked for in one request."""
        ...

    async def owners(self) -> list[str]:
        """The address of each slot's owner."""
        ...

    def at(self, address: str) -> Driver:
        """Return the driver of one process, whichever groups it coordinates."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the coordinator for a case."""

    initial_rebalance_delay_ms: int = 0
    members_max: int = 10_000
    retention_s: int = 7 * 24 * 3600
    processes: int = 1
    # A process of its own for each case, which may kill it.
    mortal: bool = False
    # Kafka has no such setting: its rounds close as with 0.
    rebalance_coalesce_ms: int = 0


DEFAULT = Settings()
# The delay is long beside what a busy machine may lose between two looks. Cases of either kind share a coordinator: each
# set of settings is one more to start.
DELAYED = SMALL = Settings(initial_rebalance_delay_ms=2000, members_max=3)
# Kafka counts in minutes.
EXPIRING = Settings(retention_s=60)
SEVERAL = Settings(processes=3)
MORTAL = Settings(mortal=True)
SESSION_TIMEOUT_MS_MIN = 500
SESSION_TIMEOUT_MS_MAX = 30 * 60_000


def transactional_id(group: str, producer: str) -> str:
    """The transactional id of one of a group's producers."""
    return f"{producer}-of-{group}"
