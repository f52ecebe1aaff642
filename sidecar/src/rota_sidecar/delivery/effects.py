"""
Runs the delivery core's asynchronous effects: offset lookups, standalone commits, dead-letter writes.

The delivery driver starts each effect; its outcome is posted back as an event.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.delivery.standalone_offsets import StandaloneOffsets
from rota_sidecar.engines.port import Refused, Topics, Unreachable
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter, Records

LOOK_UP_TIMEOUT_S = 10
DEAD_LETTERS_TIMEOUT_S = 30
OFFSETS_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class EffectPorts:
    """Dependencies of the effects and of the driver: records, dead letters, topics and offsets of the backend."""

    records: Records
    dead_letters: DeadLetterWriter
    # Returns the dead letter of a record. Raises ValueError if the record cannot be decoded.
    dead_letter_of: Callable[[do.WriteDeadLetter], DeadLetter]
    topics: Topics
    standalone_offsets: StandaloneOffsets


class EffectRunner:
    """Runner of effects, used on a running loop. Invariant: each effect posts exactly one outcome, unless the runner is closed."""

    def __init__(
        self, ports: EffectPorts, post: Callable[[on.Event], None], broken: Callable[[BaseException], None]
    ) -> None:
        self._ports = ports
        self._post = post
        self._broken = broken
        self._tasks: set[asyncio.Task[None]] = set()
        self._dead_letters: list[do.WriteDeadLetter] = []
        self._writes = False

    def list_offsets(self, action: do.ListOffsets) -> None:
        """List start and end offsets; posts OffsetsListed."""
        self.begin(self._list_offsets(action))

    def find(self, action: do.FetchCommitted) -> None:
        """Fetch committed offsets; posts CommittedFetched."""
        self.begin(self._find(action))

    def commit(self, action: do.Commit) -> None:
        """Commit under no generation; posts Committed."""
        self.begin(self._commit(action))

    def write(self, dead_letters: Sequence[do.WriteDeadLetter]) -> None:
        """Write dead letters; posts DeadLetterWritten for each. The ledgers bound their number."""
        self._dead_letters += dead_letters
        if not self._writes:
            self._writes = True
            self.begin(self._write())

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task; an unexpected exception of it ends the process."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def close(self) -> None:
        """Cancel all effects under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    async def _list_offsets(self, action: do.ListOffsets) -> None:
        try:
            bounds = await self._ports.records.bounds(action.partitions, LOOK_UP_TIMEOUT_S)
        except (Unreachable, Refused) as failure:
            refused = isinstance(failure, Refused)
            self._post(on.OffsetsListed(action.request, {}, str(failure), refused))
        else:
            self._post(on.OffsetsListed(action.request, bounds))

    async def _find(self, action: do.FetchCommitted) -> None:
        try:
            found = await self._ports.standalone_offsets.fetch(sorted(action.partitions), OFFSETS_TIMEOUT_S)
        except (Unreachable, Refused) as failure:
            found = error_of(failure), {}
        self._post(on.CommittedFetched(action.request, *found))

    async def _commit(self, action: do.Commit) -> None:
        try:
            errors = await self._ports.standalone_offsets.commit(action.offsets, OFFSETS_TIMEOUT_S)
        except (Unreachable, Refused) as failure:
            errors = dict.fromkeys(action.offsets, error_of(failure))
        self._post(on.Committed(action.request, errors))

    async def _write(self) -> None:
        while self._dead_letters:
            due, self._dead_letters = self._dead_letters, []
            ready: list[tuple[do.WriteDeadLetter, DeadLetter]] = []
            for action in due:
                try:
                    ready.append((action, self._ports.dead_letter_of(action)))
                except ValueError as error:
                    self._post(on.DeadLetterWritten(action.dead_letter, str(error)))
            problem = await self._written([dead_letter for _, dead_letter in ready])
            for action, dead_letter in ready:
                # A dead letter that the backend rejects must not hold up the others, so each is written on its own.
                alone = problem if not problem or len(ready) == 1 else await self._written([dead_letter])
                self._post(on.DeadLetterWritten(action.dead_letter, alone))
        self._writes = False

    async def _written(self, dead_letters: Sequence[DeadLetter]) -> str:
        """Write dead letters; return why they are not written, or empty."""
        if not dead_letters:
            return ""
        try:
            await self._ports.dead_letters.write(dead_letters, DEAD_LETTERS_TIMEOUT_S)
        except (Unreachable, Refused) as failure:
            return str(failure)
        return ""


def error_of(failure: Unreachable | Refused) -> pb.ErrorCode.ValueType:
    """Return the nearest of Kafka's errors: a transient one, or one that another attempt does not help."""
    return pb.GROUP_AUTHORIZATION_FAILED if isinstance(failure, Refused) else pb.NOT_COORDINATOR
