"""Records come to the application as they were dispatched, in whichever order of offsets and however they are packed."""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from rota.consumer.messages import slices_of
from rota_sidecar.application.outgoing import Outgoing
from rota_sidecar.core.ledger.batches import Batch, BatchSlice
from rota_sidecar.engines.batch_slicing import BatchSlicer
from tests.sidecar.application.fakes import batch, handed

Received = tuple[int, bytes | None]


class Dispatched(NamedTuple):
    """Slices of one dispatch, and how often their records have been delivered."""

    slices: Sequence[BatchSlice]
    deliveries: int

    def records(self) -> Sequence[Received]:
        return [(offset, value_of(offset)) for each in self.slices for offset in range(each.first, each.end)]


def value_of(offset: int) -> bytes:
    return b"value %d" % offset


def batches(counts: Sequence[int]) -> Sequence[Batch]:
    """Batches of one partition, one after the other."""
    found: list[Batch] = []
    for count in counts:
        first = found[-1].end if found else 0
        found.append(batch(first, [value_of(offset) for offset in range(first, first + count)]))
    return found


@st.composite
def dispatches(draw: st.DrawFn) -> Sequence[Dispatched]:
    """Each record once, in any order of slices, as with ordering by key: a record waits for the one before it of its key."""
    slices = []
    for whole in batches(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))):
        cuts = sorted(draw(st.sets(st.integers(whole.first + 1, whole.end), max_size=3)) | {whole.end})
        slices += [
            BatchSlice(whole, first, end) for first, end in zip([whole.first, *cuts], cuts, strict=False)
        ]
    mixed = draw(st.permutations(slices))
    found = []
    while mixed:
        taken = draw(st.integers(1, len(mixed)))
        found.append(Dispatched(mixed[:taken], draw(st.integers(1, 2))))
        mixed = mixed[taken:]
    return found


def received(given: Sequence[Dispatched], records_max: Sequence[int]) -> Sequence[Received]:
    """Offsets and values as the SDK reads them, from messages of at most so many records."""
    outgoing = Outgoing(BatchSlicer())
    for each in given:
        outgoing.put(handed(*each.slices, deliveries=each.deliveries))
    found: list[Received] = []
    rooms = chain(records_max, repeat(1_000))
    while outgoing:
        taken = outgoing.take(next(rooms))
        assert not taken.judgements
        for part in taken.partitions:
            found += [
                (record.offset, record.value) for batch_slice in slices_of(part) for record in batch_slice
            ]
    return found


def test_a_record_that_waited_for_another_of_its_key_comes_after_later_ones() -> None:
    """Records before the first one of a group are ignored, because its first batch may begin earlier."""
    first, second = batches([2, 2])
    given = [Dispatched([BatchSlice(second, 2, 4), BatchSlice(first, 0, 2)], 1)]
    assert received(given, ()) == [(2, value_of(2)), (3, value_of(3)), (0, value_of(0)), (1, value_of(1))]


@given(dispatches(), st.lists(st.integers(1, 5), max_size=5))
def test_each_record_comes_once_in_the_order_of_its_dispatch(
    given: Sequence[Dispatched], records_max: Sequence[int]
) -> None:
    assert received(given, records_max) == [record for each in given for record in each.records()]
