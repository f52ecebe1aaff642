"""Ids of orders do not repeat, over all lives of the operator."""

import random
from itertools import islice

from rota_operator.fleet.order_ids import IDS, order_ids

LIVES, ORDERS = 1_000, 1_000


def test_ids_count_from_the_start() -> None:
    assert list(islice(order_ids(7), 3)) == [7, 8, 9]


def test_ids_wrap_around_and_are_never_zero() -> None:
    assert list(islice(order_ids(IDS - 2), 4)) == [IDS - 2, IDS - 1, 1, 2]
    assert next(order_ids(0)) == 1
    assert next(order_ids(IDS)) == 1


def test_lives_of_the_operator_share_no_id() -> None:
    chance = random.Random(23)
    issued = [number for _ in range(LIVES) for number in islice(order_ids(chance.getrandbits(64)), ORDERS)]
    assert len(set(issued)) == LIVES * ORDERS
