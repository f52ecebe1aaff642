"""The ownership log tells who had each partition at any time of the last 15 minutes, and what is not known stays unknown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import PREPARING, STABLE, DescribedMember, Description
from rota_operator.overview.overview import Overview
from rota_operator.overview.ownership import (
    CHANGES_MAX,
    MEMBERS_MAX,
    UNOWNED,
    MemberSigns,
    Owner,
    OwnerChange,
    Ownership,
)
from rota_operator.overview.recording import START, GroupRecording
from rota_operator.overview.samples import PARTITIONS_MAX, WINDOW_MS
from rota_operator.overview.view import GroupView, PartitionView

NOW = 1_000_000
A, B = "orders-0", "orders-1"


class Recorded:
    """One group that a coordinator describes, its ownership log, and a clock."""

    def __init__(self) -> None:
        self.overview = Overview("rota://127.0.0.1:7070", [("orders", "shop/orders")])
        self.ownership = Ownership()
        self.now_ms = NOW
        self._generation = 0

    def view(self) -> GroupView:
        view = self.overview.group("orders", (), self.now_ms)
        assert view is not None
        return view

    def describe(self, state: str = STABLE, after_ms: int = 1_000, **members: Sequence[int]) -> None:
        self.now_ms += after_ms
        self._generation += 1
        described = [
            DescribedMember(f"{name}-id", name, frozenset(Partition("orders", each) for each in numbers))
            for name, numbers in members.items()
        ]
        found = Description("orders", state, self._generation, "range", described)
        self.overview.update_description(found, self.now_ms)
        self.record(0)

    def record(self, after_ms: int = 1_000) -> None:
        self.now_ms += after_ms
        self.ownership.record(self.view(), self.now_ms)

    @property
    def changes(self) -> Sequence[OwnerChange]:
        return self.ownership.since(None)

    @property
    def log(self) -> list[tuple[int, Mapping[str, Owner]]]:
        """Changes with seconds since the start."""
        return [((each.at_ms - NOW) // 1_000, each.owners) for each in self.changes]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_each_change_of_owners_is_logged_at_its_time(recorded: Recorded) -> None:
    recorded.describe(a=[0, 1])
    recorded.record()
    recorded.describe(PREPARING, a=[], b=[])
    recorded.describe(a=[0], b=[1])
    recorded.describe(b=[0, 1])
    assert recorded.log == [(1, {A: "a", B: "a"}), (4, {B: "b"}), (5, {A: "b"})]
    assert recorded.ownership.members == {"a", "b"}


def test_a_partition_without_an_owner_differs_from_one_whose_owner_is_unknown(recorded: Recorded) -> None:
    recorded.describe(a=[0])
    recorded.describe("Empty")
    recorded.overview.coordinator_lost("orders")
    recorded.record()
    recorded.describe(a=[0])
    assert recorded.log == [(1, {A: "a"}), (2, {A: UNOWNED}), (3, {A: None}), (4, {A: "a"})]


def test_before_anything_is_known_nothing_is_logged(recorded: Recorded) -> None:
    recorded.record()
    assert recorded.log == []


def test_changes_before_the_window_are_folded_into_its_first_owners(recorded: Recorded) -> None:
    recorded.describe(a=[0, 1])
    recorded.describe(a=[0], b=[1])
    recorded.record(WINDOW_MS - 1)
    assert len(recorded.changes) == 2
    recorded.record(1)
    assert recorded.log == [(2, {A: "a", B: "b"})]
    recorded.record(10 * WINDOW_MS)
    assert recorded.log == [(2, {A: "a", B: "b"})]


def test_changes_are_bounded_and_owners_before_the_first_one_are_unknown(recorded: Recorded) -> None:
    for _ in range(CHANGES_MAX):
        recorded.describe(after_ms=1, a=[0, 1])
        recorded.describe(after_ms=1, a=[0], b=[1])
    assert len(recorded.changes) == CHANGES_MAX
    assert recorded.changes[0].owners.keys() == {A, B}


def test_partitions_are_bounded(recorded: Recorded) -> None:
    recorded.describe(a=range(PARTITIONS_MAX + 1))
    assert len(recorded.changes[0].owners) == PARTITIONS_MAX


def test_a_clock_that_is_set_back_takes_later_changes_away(recorded: Recorded) -> None:
    recorded.describe(a=[0])
    recorded.describe(b=[0])
    recorded.describe(after_ms=-500, c=[0])
    recorded.record()
    assert [(each.at_ms - NOW, each.owners) for each in recorded.changes] == [
        (1_000, {A: "a"}),
        (1_500, {A: "c"}),
    ]


def test_readers_get_each_change_once(recorded: Recorded) -> None:
    recording = GroupRecording("orders")
    recorded.describe(a=[0])
    recording.record(recorded.view(), recorded.now_ms)
    first = recording.since(START)
    recorded.describe(b=[0])
    recording.record(recorded.view(), recorded.now_ms)
    second = recording.since(first.cursor)
    assert [dict(each.owners) for each in first.changes + second.changes] == [{A: "a"}, {A: "b"}]
    assert recording.since(second.cursor).changes == ()
    assert second.signs == {"a": 0, "b": 1}


def test_members_keep_their_numbers_and_free_ones_are_given_again() -> None:
    signs = MemberSigns()
    signs.update(["a", "b", "c"])
    signs.update(["c", "a", "d"])
    assert signs.numbers == {"a": 0, "c": 2, "d": 1}
    signs.update([str(number) for number in range(MEMBERS_MAX + 1)])
    assert sorted(signs.numbers.values()) == list(range(MEMBERS_MAX))


# Of two partitions at one time: a member, none, or not listed; and whether the group's state is known.
Owners = tuple[str | None, str | None]


def partition_view(number: int, owner: str | None) -> PartitionView:
    return PartitionView("orders", number, owner)


def owners_at(changes: Iterable[OwnerChange], at_ms: int) -> Mapping[str, Owner]:
    """Owners at a time, as a reader computes them."""
    found: dict[str, Owner] = {}
    for each in changes:
        if each.at_ms <= at_ms:
            found |= each.owners
    return {name: owner for name, owner in found.items() if owner is not None}


@given(
    st.lists(
        st.tuples(
            st.integers(0, WINDOW_MS // 2),
            st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["a", "b", None])),
        ),
        max_size=20,
    )
)
def test_readers_compute_the_owners_of_every_time_in_the_window(
    history: list[tuple[int, Owners]],
) -> None:
    ownership, now_ms = Ownership(), NOW
    base = Recorded().view()
    expected: list[tuple[int, Mapping[str, Owner]]] = []
    for after_ms, owners in history:
        now_ms += after_ms
        partitions = tuple(partition_view(number, each) for number, each in enumerate(owners))
        view = replace(base, state=STABLE, partitions=partitions)
        ownership.record(view, now_ms)
        expected.append((now_ms, {A: owners[0] or UNOWNED, B: owners[1] or UNOWNED}))
    last = dict(expected)
    for at_ms, found in last.items():
        if at_ms > now_ms - WINDOW_MS:
            assert owners_at(ownership.since(None), at_ms) == found


def test_changes_of_many_owners_are_folded_sooner(recorded: Recorded) -> None:
    for second in range(10):
        recorded.describe(a=[0, 1][: second % 2 * 2], b=[0, 1][second % 2 * 2 :])
        recorded.ownership.record(recorded.view(), recorded.now_ms, owners_max=6)
        assert recorded.ownership.size == sum(len(each.owners) for each in recorded.changes) <= 6
    assert len(recorded.changes) == 3
    recorded.describe(b=[0], a=[1])
    recorded.ownership.record(recorded.view(), recorded.now_ms, owners_max=-1)
    assert [each.owners for each in recorded.changes] == [{A: "b", B: "a"}], "the present owners are kept"
