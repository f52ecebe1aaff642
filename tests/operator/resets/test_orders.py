"""Each partition is reset by its owner in the newest generation, and by no other member."""

from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import OwnedPartitions
from rota_operator.resets.orders import ResetOrder, reset_orders

A, B, C = (Partition("orders", number) for number in range(3))


def holding(generation: int, *partitions: Partition) -> OwnedPartitions:
    return OwnedPartitions(generation, frozenset(partitions))


def test_each_sets_what_it_has() -> None:
    found = reset_orders({A: 5, B: 0, C: 7}, {"one": holding(3, A, B), "two": holding(3, C)})
    assert found == {"one": ResetOrder(3, {A: 5, B: 0}), "two": ResetOrder(3, {C: 7})}


def test_who_has_been_overtaken_is_asked_for_nothing() -> None:
    found = reset_orders({A: 5, B: 0}, {"late": holding(3, A), "new": holding(4, A), "idle": holding(4)})
    assert found == {"new": ResetOrder(4, {A: 5})}


def test_what_nobody_has_waits() -> None:
    assert reset_orders({C: 1}, {"one": holding(3, A)}) == {}
    assert reset_orders({C: 1}, {}) == {}
    assert reset_orders({}, {"one": holding(3, A)}) == {}
