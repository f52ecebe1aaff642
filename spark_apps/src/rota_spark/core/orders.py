"""
Orders, as the pipeline `orders_enrichment` reads them: a JSON object with `order`, `good` and `count` for each record.

A record that is not an order is not dropped: it is a row with a problem, which the pipeline keeps in a table of its own.
"""

import json
from typing import Any, NamedTuple

NAME_MAX = 200
QUANTITY_MAX = 1_000_000
# Characters of a rejected value that are kept.
TEXT_MAX = 1_000


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
        return Order(problem=f"{_state('count', fields)}: set it to an integer from 1 to {QUANTITY_MAX:,}")
    return Order(fields["order"], fields["good"], count)


def json_object(value: bytes | None) -> dict[str, Any] | str:
    """Read a JSON object; return a sentence that says what is wrong if the value is not one."""
    if value is None:
        return "the record has no value"
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        return f"the value is not JSON: {type(error).__name__}"
    return found if isinstance(found, dict) else "the value is not a JSON object"


def name_problem(fields: dict[str, Any], name: str) -> str | None:
    """Return what is wrong with a name; None: nothing. Characters that a database refuses are not printable."""
    value = fields.get(name)
    if isinstance(value, str) and 1 <= len(value) <= NAME_MAX and value.isprintable():
        return None
    return f"{_state(name, fields)}: set it to 1 to {NAME_MAX} printable characters"


def text_of(value: bytes | None) -> str | None:
    """Return a value as text that every database stores, shortened; bytes that are not text are escaped."""
    if value is None:
        return None
    return value[:TEXT_MAX].decode(errors="backslashreplace").replace("\0", "\\x00")


def _state(name: str, fields: dict[str, Any]) -> str:
    return f"{name} is missing" if fields.get(name) is None else f"{name} is invalid"
