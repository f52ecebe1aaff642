"""
Orders, as the pipeline `orders_enrichment` reads them: a JSON object with `order`, `good` and `count` for each record.

A record that is not an order is not dropped: it is a row with a problem, which the pipeline keeps in a table of its own.
"""

from typing import NamedTuple

from rota_spark.core.json_values import described, json_object, name_problem

QUANTITY_MAX = 1_000_000


class Order(NamedTuple):
    """An order. Invariant: without a problem, order, good and quantity are valid; with one, they are None."""

    order: str | None = None
    good: str | None = None
    quantity: int | None = None
    # Sentence that says what is wrong with the record.
    problem: str | None = None


def order_of(value: bytes | None) -> Order:
    """
    Read an order from a record's value.

    >>> order_of(b'{"order": "7", "good": "apple", "count": 2}')
    Order(order='7', good='apple', quantity=2, problem=None)
    >>> order_of(b'{"order": "7", "good": "apple"}').problem
    'count is missing: set it to an integer from 1 to 1,000,000'
    """
    fields = json_object(value)
    if isinstance(fields, str):
        return Order(problem=fields)
    for name in ("order", "good"):
        if problem := name_problem(fields, name):
            return Order(problem=problem)
    count = fields.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= QUANTITY_MAX:
        return Order(problem=f"{described('count', fields)}: set it to an integer from 1 to {QUANTITY_MAX:,}")
    return Order(fields["order"], fields["good"], count)
