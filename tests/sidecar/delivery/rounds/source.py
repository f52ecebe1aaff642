"""Processes beside the members: a producer that produces all the time, and a client that polls the committed offsets."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple

from tests.sidecar.delivery.rounds.engine import Engine, Position
from tests.support.processes import steady_ms

# 200 records a second.
EACH_S = 0.05
TOGETHER = 10
LOOKS_EACH_S = 0.1
WITHIN_S = 60


class Look(NamedTuple):
    """Committed offsets at some time between the request and its response."""

    asked_ms: int
    answered_ms: int
    offsets: Mapping[int, int]


class Regularly:
    """Does one thing every so often, in a thread of its own, until it is ended; says when that broke."""

    def __init__(self, each_s: float, do: Callable[[], object]) -> None:
        self._each_s = each_s
        self._do = do
        self._ends = threading.Event()
        self._broken: list[Exception] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def check(self) -> None:
        """Raise what broke it."""
        if self._broken:
            raise self._broken[0]

    def end(self) -> None:
        """Returns when it does nothing any more."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(WITHIN_S)

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._each_s):
                self._do()
        except Exception as error:  # noqa: BLE001  told by `check`
            self._broken.append(error)


class Source:
    """Numbered values, to all partitions in turn."""

    def __init__(self, engine: Engine, topic: str, partitions: int) -> None:
        self.acknowledged: dict[Position, str] = {}
        self._engine = engine
        self._topic = topic
        self.partitions = partitions
        # While True nothing is produced: those who consume are far behind, on a busy machine.
        self.is_held: Callable[[], bool] = lambda: False
        self._numbers = count()
        self._one_at_a_time = threading.Lock()
        self.steadily = Regularly(EACH_S, self._produce)

    def put(self, partition: int, value: str) -> Position:
        """One more; where it lies."""
        (position,) = self._append({partition: [value]})
        return position

    @property
    def ends(self) -> Mapping[int, int]:
        """By partition, behind the last record that was acknowledged."""
        with self._one_at_a_time:
            ends = dict.fromkeys(range(self.partitions), 0)
            for position in self.acknowledged:
                ends[position.partition] = max(ends[position.partition], position.offset + 1)
            return ends

    def _produce(self) -> None:
        if self.is_held():
            return
        values: dict[int, list[str]] = {}
        for _ in range(TOGETHER):
            number = next(self._numbers)
            values.setdefault(number % self.partitions, []).append(str(number))
        self._append(values)

    def _append(self, values: Mapping[int, Sequence[str]]) -> Mapping[Position, str]:
        with self._one_at_a_time:
            made = self._engine.produce(self._topic, values)
            self.acknowledged |= made
            return made


class Watch:
    """Committed offsets of a group, over time."""

    def __init__(self, engine: Engine, group: str, topic: str) -> None:
        self.looks: list[Look] = []
        self._ask = partial(engine.committed, group, topic)
        self._one_at_a_time = threading.Lock()
        self.steadily = Regularly(LOOKS_EACH_S, self.look)

    def look(self) -> Mapping[int, int]:
        """Poll the committed offsets now."""
        with self._one_at_a_time:
            asked_ms = steady_ms()
            offsets = self._ask()
            self.looks.append(Look(asked_ms, steady_ms(), offsets))
            return offsets

    @property
    def last(self) -> Mapping[int, int]:
        """Return the committed offsets of the last poll."""
        return self.looks[-1].offsets if self.looks else {}


@contextmanager
def going_on(*each: Regularly) -> Iterator[None]:
    """Within the block."""
    try:
        for one in each:
            one.start()
        yield
    finally:
        for one in each:
            one.end()
