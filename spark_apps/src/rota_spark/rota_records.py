"""Records of Rota's own log, as an executor reads them with the SDK's `LogReader`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

import rota
from rota.clocks import system_clocks
from rota.log_reader import END, START, Fetched
from rota_spark.columns import Columns
from rota_spark.core.plan import Range
from rota_spark.log_records import AWAY_MAX_S, LogRecords, ReadFailed, gone

if TYPE_CHECKING:
    import pyarrow

BACKOFF_S = 0.2
DENIED = (
    rota.errors.AuthenticationFailed,
    rota.errors.ClusterAuthorizationFailed,
    rota.errors.TopicAuthorizationFailed,
)
Result = TypeVar("Result")


class RotaRecords(LogRecords):
    """Records of Rota's own log."""

    def __init__(self, address: str, *, read_committed: bool) -> None:
        self._address = address
        self._reader = rota.LogReader(address, read_committed=read_committed)
        self._columns = Columns()

    @override
    def ranges(self, topics: Sequence[str]) -> list[Range]:
        with rota.Topics(self._address) as known:
            found = known.describe(topics)
        partitions = [(each.name, number) for each in found for number in range(each.partitions)]
        starts, ends = (self._reader.offsets_at(partitions, which) for which in (START, END))
        return [Range(*each, starts[each], max(starts[each], ends[each])) for each in starts]

    @override
    def read(self, wanted: Range) -> Iterator["pyarrow.RecordBatch"]:
        offset = wanted.start
        while offset < wanted.end:
            (part,) = retried(partial(self._fetch, wanted, offset))
            yield from self._columns.batches(part.batches, wanted.end)
            offset = part.next_offset

    def _fetch(self, wanted: Range, offset: int) -> Sequence[Fetched]:
        try:
            found = self._reader.fetch({wanted.of: offset})
        except DENIED as error:
            raise _denied(wanted, error) from error
        for part in found:
            if isinstance(part.error, DENIED):
                raise _denied(wanted, part.error)
            if isinstance(part.error, rota.errors.OffsetOutOfRange):
                raise ReadFailed(
                    f"offset {offset} of {wanted.topic}-{wanted.partition} is not in the log, which begins at "
                    f"{part.log_start_offset}: its records were deleted before the group read them; reset the group's "
                    "offsets to continue behind the gap"
                )
            if isinstance(part.error, rota.errors.UnknownTopicOrPartition):
                raise ReadFailed(gone(wanted))
            if part.error is not None:
                raise part.error
        return found

    @override
    def close(self) -> None:
        self._reader.close()


def retried(ask: Callable[[], Result]) -> Result:
    """Call until it succeeds; raise its error when it is not retriable, or after AWAY_MAX_S."""
    clock_s = system_clocks().monotonic_s
    deadline_s = clock_s() + AWAY_MAX_S
    while True:
        try:
            return ask()
        except rota.errors.RotaError as error:
            if not error.retriable or clock_s() >= deadline_s:
                raise
        threading.Event().wait(BACKOFF_S)


def _denied(wanted: Range, error: rota.errors.RotaError) -> ReadFailed:
    return ReadFailed(
        f"{wanted.topic}-{wanted.partition} cannot be read ({error}): executors read with the credentials of their own "
        "environment, so set ROTA_TOKEN_FILE and ROTA_TLS_CA there to files that they have, and grant the token `consume:` of "
        "the topic"
    )
