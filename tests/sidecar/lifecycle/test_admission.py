"""A dynamic member joins when the operator orders it, and by itself where no operator says that it orders."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_sidecar.lifecycle.admission import (
    AWAY_MS,
    Admission,
    Admitted,
    Announced,
    AwaitingOrder,
    Input,
    Ordered,
    StreamEnded,
    Ticked,
    Unannounced,
    step,
)

pytestmark = pytest.mark.unit
NOW_MS = 1_000
EARLY, DUE, LAST = Unannounced(NOW_MS + 1), Unannounced(NOW_MS), Unannounced(NOW_MS, is_last=True)
AWAITING, ADMITTED = AwaitingOrder(), Admitted()
LATER = Unannounced(NOW_MS + AWAY_MS, is_last=True)
ORDERS, NO_ORDERS = Announced(orders_join=True), Announced(orders_join=False)
ALONE, CONNECTED = Ticked(is_connected=False), Ticked(is_connected=True)
INPUTS: tuple[Input, ...] = (ORDERS, NO_ORDERS, StreamEnded(), Ordered(), ALONE, CONNECTED)
TABLE: dict[Admission, tuple[Admission, ...]] = {
    EARLY: (AWAITING, ADMITTED, EARLY, ADMITTED, EARLY, EARLY),
    DUE: (AWAITING, ADMITTED, DUE, ADMITTED, ADMITTED, LATER),
    LAST: (AWAITING, ADMITTED, LAST, ADMITTED, ADMITTED, ADMITTED),
    AWAITING: (AWAITING, ADMITTED, Unannounced(NOW_MS + AWAY_MS), ADMITTED, AWAITING, AWAITING),
    ADMITTED: (ADMITTED,) * len(INPUTS),
}


@pytest.mark.parametrize(("admission", "number"), list(product(TABLE, range(len(INPUTS)))))
def test_each_state_meets_each_input(admission: Admission, number: int) -> None:
    assert step(admission, INPUTS[number], NOW_MS) == TABLE[admission][number]


@given(st.lists(st.tuples(st.sampled_from(INPUTS), st.integers(0, AWAY_MS)), max_size=20))
def test_without_an_operator_every_member_joins_in_time(history: list[tuple[Input, int]]) -> None:
    admission, now_ms = step(AWAITING, StreamEnded(), 0), 0
    for each, passed_ms in history:
        now_ms += passed_ms
        admission = step(admission, each, now_ms)
    admission = step(admission, StreamEnded(), now_ms)
    admission = step(admission, CONNECTED, now_ms + AWAY_MS)
    assert step(admission, CONNECTED, now_ms + 2 * AWAY_MS) == ADMITTED
